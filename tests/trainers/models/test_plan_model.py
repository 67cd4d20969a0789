"""The model that flags, a dataset and --init_from make, or why they make none."""

import json
import math
from contextlib import nullcontext
from dataclasses import dataclass, replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.tools.class_factory import class_schema
from tests.tools.clm_factory import clm_schema
from tests.tools.hub_cache import cached
from tests.tools.model_cases import BERT, OPT, ROBERTA
from tests.tools.run_reading import change_flags
from tests.tools.shard_factory import mlm_schema
from tests.tools.torch_models import save_model
from textmill.schemas.errors import DataError, UsageError
from textmill.trainers.flags.command_line import make_flags
from textmill.trainers.flags.run_flags import DecoderFlags, EncoderFlags, RunFlags
from textmill.trainers.models.model_config import ModelConfig, with_dropout
from textmill.trainers.models.plan_model import SIZES, plan_model
from textmill.trainers.models.rope import Rope
from textmill.trainers.models.weights import init_weights, shapes


@dataclass(frozen=True)
class EncoderRun(RunFlags):
    architecture: EncoderFlags = EncoderFlags()


@dataclass(frozen=True)
class DecoderRun(RunFlags):
    architecture: DecoderFlags = DecoderFlags()


def encoder(**flags):
    return make_flags(EncoderRun, shards="set", **flags)


def decoder(**flags):
    return make_flags(DecoderRun, shards="set", **flags)


def test_new_encoders():
    schema = mlm_schema()
    config, tensors, *_ = plan_model(encoder(model="tiny"), schema)
    due = ModelConfig.new(
        family="roberta",
        vocab_size=50,
        max_positions=16,
        position_offset=2,
        layers=2,
        hidden_size=128,
        heads=2,
        intermediate_size=512,
        embedding_size=128,
        token_types=1,
        layer_norm_epsilon=1e-5,
    )
    assert config == with_dropout(due, 0.1) and tensors is None
    flags = encoder(family="electra", model="electra_small", dropout=0.2)
    config, *_ = plan_model(flags, class_schema(classes=("a", "b")))
    assert (config.embedding_size, config.classifier_dropout) == (128, 0.2)
    assert config.classes == ("a", "b") and config.position_rows == 16
    for more, width in ((dict(model="base"), 768), (dict(embedding_size=64), 64)):
        planned = plan_model(change_flags(flags, **more), schema)
        assert planned.config.embedding_size == width
    planned = plan_model(change_flags(flags, layers=1, hidden_size=32), schema)
    weights, notes = planned.first_weights(5)
    assert not notes
    for name, value in init_weights(planned.config, 5).items():
        np.testing.assert_array_equal(weights[name], value)


def test_new_modernberts():
    flags = encoder(model="modernbert_base", dropout=0.0)
    config, *_ = plan_model(flags, mlm_schema(vocab_size=50368, max_length=8192))
    assert config == ModelConfig.from_json({"model_type": "modernbert"}, where="here")
    tiny = change_flags(flags, family="modernbert", model="tiny")
    config, *_ = plan_model(tiny, mlm_schema())
    assert config.local_layers == (False, True) and config.rope_of(1) == Rope()
    assert init_weights(config, 0)["layers.0.mlp_out.weight"].std() == pytest.approx(0.01, rel=0.1)


PUBLISHED = [
    ("smollm_135m", 49152, 134_515_008),
    ("smollm_360m", 49152, 361_821_120),
    ("smollm_1.7b", 49152, 1_711_376_384),
    ("llama_1b", 128256, 1_235_814_400),
    ("llama_3b", 128256, 3_212_749_824),
    ("llama_8b", 128256, 8_030_261_248),
    ("mistral_7b", 32000, 7_241_732_096),
    ("qwen2_0.5b", 151936, 494_032_768),
    ("qwen3_0.6b", 151936, 596_049_920),
    ("qwen3_1.7b", 151936, 1_720_574_976),
    ("olmo2_1b", 100352, 1_484_916_736),
    ("gemma2_2b", 256000, 2_614_341_888),
    ("gemma3_270m", 262144, 268_098_176),
    ("gemma3_1b", 262144, 999_885_952),
    # Warner et al., section 3: 149 and 395 million parameters.
    ("modernbert_base", 50368, 149_655_232),
    ("modernbert_large", 50368, 395_881_664),
]


def test_new_decoders():
    schema = clm_schema()
    config, *_ = plan_model(decoder(model="gpt2", layers=3), schema)
    assert (config.layers, config.hidden_size, config.dropout) == (3, 768, 0.1)
    assert (config.activation, config.norm_first, config.tied) == ("gelu_new", True, True)
    flags = decoder(family="opt", norm="post", tied=False, embedding_size=8)
    config, *_ = plan_model(flags, schema)
    assert (config.norm_first, config.final_norm, config.tied) == (False, False, False)
    assert (config.activation, config.is_projected) == ("relu", True)
    flags = decoder(family="llama", rope_theta=3e4, kv_heads=2)
    config, *_ = plan_model(flags, schema)
    assert (config.heads, config.kv_heads, config.head_size) == (8, 2, 64)
    assert (config.intermediate_size, config.activation, config.tied) == (1408, "silu", True)
    assert config.rope_of(0) == Rope(3e4) and config.max_positions == schema.max_length
    flags = decoder(family="mistral", window=9)
    config, *_ = plan_model(flags, schema)
    assert [config.window_of(layer) for layer in range(4)] == [9] * 4


@pytest.mark.parametrize(("name", "vocabulary", "parameters"), PUBLISHED)
def test_published_sizes(name, vocabulary, parameters):
    """With as many parameters as the files on the Hub."""
    kind, schema = (encoder, mlm_schema) if "bert" in name else (decoder, clm_schema)
    config, *_ = plan_model(kind(model=name), schema(vocab_size=vocabulary))
    assert sum(math.prod(shape) for shape in shapes(config).values()) == parameters
    assert config.family == SIZES[name]["family"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            dict(max_positions=8),
            "--max_positions=8 has 8 positions, but rows of set have 16 tokens",
        ),
        (
            dict(kv_heads=4),
            "--kv_heads=4: kv_heads is always 8 in gpt2 models; it may differ in ll",
        ),
        (dict(head_size=8), "--head_size=8: head_size is always 64 in gpt2 models"),
        (dict(window=8), "--window=8: window is always 0 in gpt2 models; it may differ in modernb"),
        (dict(rope_theta=1e4), "--rope_theta: rope is always None in gpt2 models"),
        (dict(family="llama", rope_theta=0.0), "^--rope_theta=0.0: must be from 2 to"),
        (
            dict(family="gpt2", model="llama_1b"),
            "--family=gpt2, but --model=llama_1b is a llama: leave --family out",
        ),
        (dict(norm="post"), "--norm=post: norm_first is always True in gpt2 models"),
        (dict(embedding_size=8), "--embedding_size=8: embedding_size is always 512 in gpt2 models"),
        (dict(family="bert", embedding_size=8), "512 in bert models; it may differ in electra"),
    ],
)
def test_flags_that_make_no_model_are_refused(flags, said):
    with pytest.raises(UsageError, match=said):
        if flags.get("family") == "bert":
            plan_model(encoder(**flags), mlm_schema())
        else:
            plan_model(decoder(**flags), clm_schema())


def test_published_models(tmp_path):
    path = str(tmp_path / "in")
    save_model(tmp_path / "in", {**ROBERTA, "hidden_dropout_prob": 0.3}, "MaskedLM")
    flags = encoder(init_from=path)
    planned = plan_model(flags, mlm_schema())
    assert (planned.config.dropout, planned.config.attention_dropout) == (0.3, 0.1)
    assert plan_model(change_flags(flags, dropout=0.0), mlm_schema()).config.attention_dropout == 0
    assert planned.first_weights(0)[1] == []
    agreeing = change_flags(flags, layers=2, max_positions=18)
    assert planned.config == plan_model(agreeing, mlm_schema()).config

    larger = plan_model(flags, mlm_schema(vocab_size=57))
    assert larger.config.vocab_size == 57
    weights, [note] = larger.first_weights(0)
    assert "grows from 50 tokens to the dataset's 57" in note
    assert plan_model(flags, mlm_schema(vocab_size=40)).config.vocab_size == 50

    specials = {**mlm_schema().special_ids, "pad": 3, "unk": 1}
    for schema, more, said in (
        (mlm_schema(), dict(layers=4), "--layers=4, but the weights of --init_from=.* have 2: lea"),
        (mlm_schema(), dict(activation="relu"), "--activation=relu, but .* have gelu"),
        (
            mlm_schema(max_length=20),
            {},
            "--init_from=.* has 18 positions, but rows of set have 20 tokens",
        ),
        (mlm_schema(special_ids=specials), {}, "its pad_token_id is 1 and that of set is 3"),
    ):
        with pytest.raises(UsageError, match=said):
            plan_model(change_flags(flags, **more), schema)
    with pytest.raises(
        UsageError, match="type 'roberta', and this trainer accepts gpt2, opt, llama"
    ):
        plan_model(decoder(init_from=path), clm_schema())

    save_model(tmp_path / "opt", OPT, "CausalLM")
    decoders = decoder(init_from=str(tmp_path / "opt"))
    agreeing = change_flags(decoders, norm="pre", tied=True)
    assert plan_model(agreeing, clm_schema()).config.layers == 2
    for more, said in (
        (dict(norm="post"), "--norm=post, but"),
        (dict(tied=False), "--no_tied, but"),
        (dict(family="llama"), "--family=llama, but"),
    ):
        with pytest.raises(UsageError, match=f"{said}.*leave the flag out"):
            plan_model(change_flags(decoders, **more), clm_schema())


def test_an_output_layer_of_the_file_s_own_is_planned(tmp_path):
    """config.json ties it; --no_tied agrees with the weights."""
    save_model(tmp_path, OPT, "CausalLM")
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    tensors["lm_head.weight"] = tensors["model.decoder.embed_tokens.weight"] + 1
    save_file(tensors, path)
    flags = decoder(init_from=str(tmp_path))
    planned = plan_model(flags, clm_schema())
    assert not planned.config.tied
    weights, [note] = planned.first_weights(0)
    np.testing.assert_array_equal(weights["head.weight"], tensors["lm_head.weight"])
    assert note == (
        "lm_head.weight differs from model.decoder.embed_tokens.weight, though config.json ties "
        "them: the model keeps both"
    )
    assert plan_model(change_flags(flags, tied=False), clm_schema()).config == planned.config


def test_weights_of_a_name_on_the_hub(tmp_path, monkeypatch):
    save_model(tmp_path / "in", BERT, "MaskedLM")
    files = {file.name: file.read_bytes() for file in (tmp_path / "in").iterdir()}
    cached(tmp_path / "hf", "google-bert/bert-tiny", files)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))
    here = encoder(init_from=str(tmp_path / "in"))
    there = change_flags(here, init_from="google-bert/bert-tiny")
    assert plan_model(there, mlm_schema()).config == plan_model(here, mlm_schema()).config


def test_weights_that_are_not_of_their_config_json_are_refused_unread(tmp_path):
    """Before a framework is loaded; and no table is made of a number that a file only claims."""
    save_model(tmp_path / "in", BERT, "MaskedLM")
    flags = encoder(init_from=str(tmp_path / "in"))
    plan_model(flags, mlm_schema())
    config = json.loads((tmp_path / "in" / "config.json").read_text())
    for changes, said in (
        ({"num_hidden_layers": 3}, "it lacks bert.encoder.layer.2.attention.*, .* and 11 more"),
        ({"num_hidden_layers": 1 << 60}, "has 1,152,921,504,606,846,976 layers, but there are"),
        ({"num_hidden_layers": 1}, "it has the unknown bert.encoder.layer.1.attention"),
        ({"vocab_size": 1 << 40}, r"word_embeddings.weight has shape \(50, 16\).*1099511627776"),
    ):
        (tmp_path / "in" / "config.json").write_text(json.dumps({**config, **changes}))
        with pytest.raises(DataError, match=said):
            plan_model(flags, mlm_schema())

    # Quantized ones, or bits that were mistaken: trained on, their loss was 7e8.
    (tmp_path / "in" / "config.json").write_text(json.dumps(config))
    path, name = tmp_path / "in" / "model.safetensors", "bert.embeddings.word_embeddings.weight"
    tensors = load_file(path)
    for dtype, stored in ((np.int32, "I32"), (np.int8, "I8"), (np.bool_, "BOOL")):
        save_file({**tensors, name: tensors[name].astype(dtype)}, path)
        with pytest.raises(DataError, match=f"{name} holds {stored}, not F32, F16, BF16, F64. Gi"):
            plan_model(flags, mlm_schema())


def test_a_head_for_classes_of_other_names_has_a_note(tmp_path):
    names = {0: "no", 1: "so", 2: "yes"}
    save_model(tmp_path / "in", {**BERT, "id2label": names}, "SequenceClassification")
    flags = encoder(init_from=str(tmp_path / "in"))
    _, [note] = plan_model(flags, class_schema(classes=("yes", "so", "no"))).first_weights(0)
    assert "are ['no', 'so', 'yes']; the head stays" in note and "are ['yes', 'so', 'no']" in note
    assert not plan_model(flags, class_schema(classes=("no", "so", "yes"))).first_weights(0)[1]


OTHER_CLASSES = r"x has the classes \['neg', 'pos'\], and set has \["


@pytest.mark.parametrize(
    ("family", "schema", "said"),
    [
        ("gpt2", clm_schema(), None),
        ("gpt2", clm_schema(vocab_size=57), "x has a vocabulary of 50, but .* one of 57"),
        ("bert", class_schema(), None),
        # Published models often have LABEL_0 and LABEL_1: names may differ, but not in order.
        ("bert", class_schema(classes=("no", "yes")), None),
        ("bert", class_schema(classes=("pos", "neg")), OTHER_CLASSES),
        ("bert", class_schema(classes=("neg", "pos", "none")), OTHER_CLASSES),
        ("bert", class_schema(pairs=True), "x has one token type, but pairs of set have two"),
        ("roberta", class_schema(pairs=True), None),
    ],
)
def test_rows_that_a_model_cannot_read_are_refused(family, schema, said):
    kind, own = (decoder, clm_schema()) if family == "gpt2" else (encoder, class_schema())
    config = plan_model(kind(model="tiny", family=family), own).config
    if family == "bert":
        config = replace(config, token_types=1)
    refused = pytest.raises(UsageError, match=said) if said else nullcontext()
    with refused:
        config.check_fits(schema, where="x", shards="set")
