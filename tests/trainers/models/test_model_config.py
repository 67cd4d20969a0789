"""config.json beside transformers': out and in, old and new forms, or rejected."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig

from tests.tools.model_cases import (
    BERT,
    CLASSES,
    ELECTRA,
    GEMMA2,
    GEMMA3,
    GLOBAL,
    GPT2,
    LLAMA,
    LOCAL,
    MISTRAL,
    MODELS,
    MODERN,
    OPT,
    ROBERTA,
    YARN,
    read_config,
    write_config,
)
from tests.tools.torch_models import save_model
from textmill.schemas.errors import DataError, TextmillError, UsageError
from textmill.trainers.models.families import FAMILIES
from textmill.trainers.models.generation_files import published_ids
from textmill.trainers.models.hf_files import read_directory
from textmill.trainers.models.model_config import ModelConfig, published_classes


@pytest.mark.parametrize("name", MODELS)
def test_config_json_goes_out_and_in(name, tmp_path):
    fields, head = MODELS[name]
    config = read_config(AutoConfig.for_model(**fields).to_dict(), head)
    written = json.loads(json.dumps(write_config(config)))
    opened = AutoConfig.for_model(**written)
    assert read_config(opened.to_dict(), head) == read_config(written, head) == config
    for key, value in fields.items():
        assert value is None or getattr(opened, key) == value, key
    if head == "CausalLM":
        assert opened.bos_token_id == 0 and published_ids(written, tmp_path) == ((0, 7), (2,))
    if head == "SequenceClassification":
        assert opened.id2label == dict(enumerate(CLASSES))


@pytest.mark.parametrize("kind", FAMILIES)
def test_what_config_json_leaves_out_is_as_in_transformers(kind):
    whole = AutoConfig.for_model(kind).to_dict()
    short = ModelConfig.from_json({"model_type": kind}, where="here")
    assert short == ModelConfig.from_json(whole, where="here")


def test_a_whole_number_may_stand_for_a_float():
    epsilon = read_config({**LLAMA, "rms_norm_eps": 1}, "CausalLM").layer_norm_epsilon
    assert (epsilon, type(epsilon)) == (1.0, float)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (
            {**MISTRAL, "rope_theta": 1e6, "rope_scaling": None},
            {**MISTRAL, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
        ),
        (
            {
                **GEMMA3,
                "num_hidden_layers": 7,
                "sliding_window_pattern": 3,
                "rope_theta": 2e5,
                "rope_local_base_freq": 2e4,
                "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            },
            {
                **GEMMA3,
                "num_hidden_layers": 7,
                "layer_types": [LOCAL, LOCAL, GLOBAL, LOCAL, LOCAL, GLOBAL, LOCAL],
                "rope_parameters": {
                    GLOBAL: {"rope_type": "linear", "factor": 8.0, "rope_theta": 2e5},
                    LOCAL: {"rope_type": "default", "rope_theta": 2e4},
                },
            },
        ),
        (
            {
                **MODERN,
                "global_attn_every_n_layers": 2,
                "global_rope_theta": 150000.0,
                "local_rope_theta": 9000.0,
            },
            {
                **MODERN,
                "layer_types": [GLOBAL, LOCAL, GLOBAL, LOCAL],
                "rope_parameters": {
                    GLOBAL: {"rope_type": "default", "rope_theta": 150000.0},
                    LOCAL: {"rope_type": "default", "rope_theta": 9000.0},
                },
            },
        ),
    ],
)
def test_config_json_of_transformers_4_and_5(older, newer):
    config = read_config(newer, "")
    assert read_config(older, "") == config
    for fields in (older, newer):
        assert read_config(AutoConfig.for_model(**fields).to_dict(), "") == config


SWITCHES = [
    ({**BERT, "position_embedding_type": "relative_key"}, "position_embedding_type is 'relat"),
    ({**BERT, "is_decoder": True}, "is_decoder is True, but trainers support False only"),
    ({**BERT, "hidden_act": "mish"}, "hidden_act=mish is unknown: give one of relu,"),
    (
        {**BERT, "model_type": "t5"},
        "has model_type 't5': give weights of one of bert, roberta, electra, modernbert, gpt2",
    ),
    ({**GPT2, "add_cross_attention": True}, "add_cross_attention is True"),
    ({**OPT, "enable_bias": False}, "enable_bias is False, but trainers support True only"),
    ({**GPT2, "n_embd": 18}, "config.json: n_embd=18 is not a multiple of n_head=4"),
    ({**ROBERTA, "max_position_embeddings": 2}, "json: max_position_embeddings=0: must be at"),
    ({**LLAMA, "attention_bias": True}, "attention_bias is True, but trainers support False only"),
    ({**LLAMA, "rope_theta": 0}, "rope_theta=0: must be from"),  # test_rope.py has the others
    ({**LLAMA, "head_dim": 10**9}, "head_dim=1000000000: must be at most 4,096"),
    ({**LLAMA, "head_dim": 0}, "head_dim=0: must be at least 1"),
    ({**LLAMA, "head_dim": 5}, "head_dim=5 is odd: rotary positions turn pairs"),
    (
        {**LLAMA, "num_key_value_heads": 3},
        "num_attention_heads=4 is not a multiple of num_key_value_heads=3",
    ),
    (
        {**LLAMA, "num_key_value_heads": 8},
        "num_attention_heads=4 is not a multiple of num_key_value_heads=8",
    ),
    ({**LLAMA, "num_key_value_heads": 0}, "num_key_value_heads=0: must be at least 1"),
    ({**LLAMA, "num_attention_heads": 0}, "num_attention_heads=0: must be at least 1"),
    (
        {**LLAMA, "max_position_embeddings": 10**9},
        "max_position_embeddings=1000000000: must be at most",
    ),
    ({**LLAMA, "rms_norm_eps": -1.0}, "rms_norm_eps=-1.0: must be at least 0"),
    ({**LLAMA, "rms_norm_eps": float("inf")}, "rms_norm_eps=inf: must be at most 1"),
    ({**MISTRAL, "sliding_window": -7}, "sliding_window=-7: must be at least 0"),
    ({**GEMMA2, "sliding_window": 0}, "sliding_window=0: must be at least 1"),
    ({**GEMMA2, "query_pre_attn_scalar": 0}, "query_pre_attn_scalar=0: must be at least 1"),
    ({**GEMMA2, "attn_logit_softcapping": -1.0}, "attn_logit_softcapping=-1.0: must be at least 0"),
    (
        {**GEMMA2, "final_logit_softcapping": 1e300},
        r"final_logit_softcapping=1e\+300: must be at most",
    ),
    ({**GEMMA3, "attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50.0"),
    ({**GEMMA3, "use_bidirectional_attention": True}, "use_bidirectional_attention is True"),
    ({**LLAMA, "model_type": "qwen2", "use_sliding_window": True}, "use_sliding_window is True"),
    (
        {**BERT, "hidden_dropout_prob": 1.0},
        "hidden_dropout_prob=1.0: must be at least 0 and below 1",
    ),
    ({**MODERN, "local_attention": 0}, "local_attention=0: must be at least 1"),
    (
        {**MODERN, "local_attention": 1 << 40},
        "local_attention=1099511627776: must be at most 16,777,216",
    ),
    ({**MODERN, "global_rope_theta": 0}, "rope_theta=0: must be from 2"),
    ({**MODERN, "rope_parameters": {LOCAL: {"rope_type": "longrope"}}}, "'longrope' is not supp"),
    ({**MODERN, "rope_scaling": YARN}, "its rope_scaling is {.*'factor': 4.0, .* support None onl"),
    ({**MODERN, "hidden_size": 12}, "json: head_size=3 is odd"),
    ({**MODERN, "norm_bias": True}, "its norm_bias is True, but trainers support False only"),
    ({**MODERN, "decoder_bias": False}, "its decoder_bias is False, but trainers support True on"),
]


@pytest.mark.parametrize(("found", "said"), SWITCHES)
def test_switches_that_are_not_built_are_refused(found, said):
    with pytest.raises(UsageError, match=f"here: .*{said}") as info:
        read_config(found, "")
    assert len(str(info.value).splitlines()) == 1


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@given(
    st.sampled_from([GPT2, OPT, LLAMA, MISTRAL, GEMMA3, BERT, ROBERTA, ELECTRA, MODERN]), st.data()
)
def test_any_value_in_config_json_is_taken_or_refused_in_words(fields, data):
    head = "CausalLM" if fields in (GPT2, OPT, LLAMA, MISTRAL, GEMMA3) else "SequenceClassification"
    keys = FAMILIES[fields["model_type"]].keys
    others = ("model_type", "pad_token_id", "rope_theta", "rope_scaling", "rope_parameters")
    others += ("layer_types", "global_attn_every_n_layers", "sliding_window_pattern")
    named = st.sampled_from([*(key.theirs for key in keys), *others])
    changes = data.draw(st.dictionaries(named, VALUES, min_size=1, max_size=3))
    try:
        config = read_config({**fields, **changes}, head)
        hash(config)
        json.dumps(write_config(config))
    except TextmillError as error:
        assert "here" in str(error) and len(str(error)) < 700


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"local_attention": "8"}, "has '8' for local_attention instead of a whole number"),
        *(
            ({"global_attn_every_n_layers": every}, f"has {every!r} for global_attn_every_n_layers")
            for every in (0, -3, "3", True, 2.0)
        ),
        *(
            ({"layer_types": types}, "for layer_types instead of full_attention or sliding_att")
            for types in ([LOCAL] * 3, [LOCAL] * 3 + ["chunked"], "local", [[LOCAL]] * 4, {}, 4)
        ),
        ({"local_rope_theta": "x"}, "rope_theta is 'x' instead of a number"),
        ({"rope_parameters": {LOCAL: 5}}, f"{LOCAL} is 5, not an object"),
    ],
)
def test_values_of_another_type_are_refused(changes, message):
    with pytest.raises(DataError, match=f"here: .*{message}") as info:
        read_config({**MODERN, **changes}, "MaskedLM")
    assert len(str(info.value).splitlines()) == 1


def test_classes_of_a_published_classifier(tmp_path):
    """config.json lacks two classes with transformers' own names."""
    for labels in (11, 2):
        save_model(tmp_path / str(labels), {**BERT, "num_labels": labels}, "SequenceClassification")
        found, _ = read_directory(str(tmp_path / str(labels)))
        due = tuple(f"LABEL_{number}" for number in range(labels))
        assert published_classes(found, where="here") == due
    for head, due in (("SequenceClassification", CLASSES), ("MaskedLM", ())):
        assert published_classes(write_config(read_config(BERT, head)), where="here") == due
    assert published_classes({"id2label": {"0": "a"}}, where="here") == ()
    for odd in (None, 7, "ab", [], ["a", "b"], {}, {"0": "a", "2": "b"}, {"0": 1}, {"a": "0"}):
        with pytest.raises(DataError, match="here: .*id2label, which must name every class by its"):
            published_classes({**found, "id2label": odd}, where="here")
