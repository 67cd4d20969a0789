"""How texts begin and end: exported tokenizers and ids of ends, beside those of transformers."""

import json
from dataclasses import replace
from functools import cache

import pytest
from tokenizers import Tokenizer, processors

from tests.tools.chat_styles import STYLES, styled_tokenizer
from tests.tools.clm_factory import chat_schema, clm_schema
from tests.tools.shard_factory import tokenizer_json
from tests.tools.tokenizer_families import FAMILIES, train_family
from tests.tools.torch_models import transformers
from textmill.schemas.errors import DataError
from textmill.trainers.models.generation_files import (
    GENERATION,
    INPUTS,
    for_prompts,
    generation_settings,
    published_ids,
    run_ends,
    text_ends,
    text_start,
    tokenizer_notes,
)

TEXTS = [f"This movie is number {n}, naïve  and {n * 7} years old." for n in range(60)]
PROMPTS = ["This movie is", " a  b", "Naïve 2024."]
OTHERS = ("BERT uncased", "T5, XLM-R", "Llama 2")  # besides byte-level BPE: one a kind of model
KINDS = [
    pytest.param(name, marks=[] if name in ("GPT-2", *OTHERS) else [pytest.mark.slow])
    for name in FAMILIES
]


@cache
def trained(name: str) -> Tokenizer:
    tokenizer = train_family(name, TEXTS, 300)
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return tokenizer


def id_of(name: str, token: str) -> int:
    number = trained(name).token_to_id(token)
    assert number is not None
    return number


def surrounded(name: str, kind: str) -> bytes:
    """A tokenizer with a post-processor of this kind, as published or trained here."""
    tokenizer = Tokenizer.from_str(trained(name).to_str())
    ids = [(token, id_of(name, token)) for token in ("<s>", "</s>")]
    (bos, eos), trims = ids, processors.ByteLevel(trim_offsets=True)
    around = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=ids
    )
    first = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=ids
    )
    of_kind = {
        "trained here, RoBERTa": processors.RobertaProcessing(eos, bos, add_prefix_space=False),
        "BERT": processors.BertProcessing(eos, bos),
        "template": around,
        "Llama 3": processors.Sequence([trims, first]),
        "bytes": processors.ByteLevel(trim_offsets=False),
        "nested": processors.Sequence([trims, processors.Sequence([around])]),
    }
    if kind != "none":
        tokenizer.post_processor = of_kind[kind]
    return tokenizer.to_str().encode()


SURROUNDINGS = ("trained here, RoBERTa", "BERT", "template", "Llama 3", "bytes", "nested", "none")


@pytest.mark.parametrize("name", KINDS)
def test_prompts_begin_with_the_start_and_have_no_end(name, tmp_path):
    """Of any tokenizer: ids of one text and of a pair; offsets stay."""
    bos = id_of(name, "<s>")
    for number, kind in enumerate(SURROUNDINGS):
        for start in ((), (bos,)):
            before = surrounded(name, kind)
            directory = tmp_path / f"{number}-{len(start)}"
            directory.mkdir()
            (directory / "tokenizer.json").write_bytes(for_prompts(before, start))
            settings = {"tokenizer_class": "PreTrainedTokenizerFast", **INPUTS}
            (directory / "tokenizer_config.json").write_text(json.dumps(settings))
            (directory / "config.json").write_text('{"model_type": "llama"}')
            tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
            ours = Tokenizer.from_str(before.decode())
            for prompt in PROMPTS:
                bare = ours.encode(prompt, add_special_tokens=False)
                found = tokenizer(prompt, return_offsets_mapping=True)
                assert found.pop("offset_mapping")[len(start) :] == bare.offsets
                ids = [*start, *bare.ids]
                assert found == {"input_ids": ids, "attention_mask": [1] * len(ids)}
                assert tokenizer(prompt, prompt)["input_ids"] == ids * 2


def test_what_is_right_already_keeps_its_bytes():
    for kind, start in (("none", ()), ("bytes", ())):
        before = surrounded("GPT-2", kind)
        assert for_prompts(before, start) == before
    once = for_prompts(surrounded("GPT-2", "nested"), (1,))
    assert for_prompts(once, (1,)) == once
    steps = json.loads(once)["post_processor"]["processors"]
    assert [step["type"] for step in steps] == ["ByteLevel", "TemplateProcessing"]
    assert json.loads(for_prompts(tokenizer_json(50), ()))["post_processor"] is None


def test_rows_begin_with_bos_or_with_nothing():
    bare = replace(clm_schema(), parameters={"prefix_ids": [], "suffix_ids": [2]}, fingerprint="")
    assert text_start(clm_schema()) == (0,)
    assert text_start(bare) == text_start(chat_schema()) == ()
    for bos, start in ((True, (0,)), (False, ())):
        schema = replace(clm_schema(), fingerprint="")
        object.__setattr__(schema, "task", "qa")
        object.__setattr__(schema, "parameters", {"bos": bos})
        assert text_start(schema) == start


@pytest.fixture(scope="module")
def model_of_transformers(tmp_path_factory):
    directory = tmp_path_factory.mktemp("published")
    sizes = transformers.GPT2Config(vocab_size=50, n_positions=8, n_embd=8, n_layer=1, n_head=1)
    transformers.AutoModelForCausalLM.from_config(sizes).save_pretrained(directory)
    return directory


NONE = object()  # no key, or no file
ENDS = [
    # config.json, generation_config.json, ids
    (2, [2, 9], (2, 9)),
    (9, [2], (2,)),
    ([2, 9], 9, (9,)),
    ([2, 9], NONE, (2, 9)),
    (2, NONE, (2,)),
    (None, [9], (9,)),
    (NONE, 9, (9,)),
]


@pytest.mark.parametrize(("of_config", "of_generation", "ids"), ENDS)
def test_ends_are_those_of_transformers(of_config, of_generation, ids, model_of_transformers):
    directory = model_of_transformers
    config = json.loads((directory / "config.json").read_text())
    config.pop("eos_token_id", None)
    if of_config is not NONE:
        config["eos_token_id"] = of_config
    (directory / "config.json").write_text(json.dumps(config))
    (directory / GENERATION).unlink(missing_ok=True)
    if of_generation is not NONE:
        (directory / GENERATION).write_text(json.dumps({"eos_token_id": of_generation}))
    assert published_ids(config, directory) == (None, ids)
    model = transformers.AutoModelForCausalLM.from_pretrained(directory)
    theirs = model.generation_config.eos_token_id
    assert tuple(theirs if isinstance(theirs, list) else [theirs]) == ids


def test_ends_that_no_file_names_are_the_family_s(tmp_path):
    assert published_ids({"model_type": "gpt2"}, tmp_path) == (None, (50256,))
    assert published_ids({"model_type": "gpt2", "eos_token_id": None}, tmp_path) == (None, ())
    (tmp_path / GENERATION).write_text('{"temperature": 0.6}')
    found = {"model_type": "opt", "eos_token_id": [2, 9], "prefix_ids": []}
    assert published_ids(found, tmp_path) == ((), (2, 9))
    assert published_ids({"model_type": "bert"}, tmp_path) == ((), ())
    with pytest.raises(DataError, match="config.json has 'two' for the id of a token"):
        published_ids({"model_type": "opt", "eos_token_id": "two"}, tmp_path)
    for content, said in (("[]", "holds a list, not an"), ('{"eos_token_id": {}}', "has {} for")):
        (tmp_path / GENERATION).write_text(content)
        with pytest.raises(DataError, match=f"{GENERATION} {said}"):
            published_ids(found, tmp_path)


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("ChatML", ["<|im_end|>"]),
        ("Llama 3", ["<|begin_of_text|>", "<|eot_id|>"]),
        ("Mistral", ["</s>"]),
        ("Gemma", ["<eos>", "<end_of_turn>"]),
        ("Phi-3", ["<|endoftext|>", "<|end|>"]),
        ("Alpaca", ["<|endoftext|>"]),
    ],
)
def test_the_end_of_a_turn_ends_a_text(name, ends, tmp_path):
    """Besides eos, and what the first weights name; ids beyond the model are left out."""
    style = STYLES[name]
    tokenizer = styled_tokenizer(style, TEXTS)
    size, tokens = tokenizer.get_vocab_size(), tokenizer.get_vocab()
    special = {"bos": tokens[style.bos], "eos": tokens[ends[0]]}
    schema = replace(chat_schema(), fingerprint="")
    changes = {
        "parameters": {**schema.parameters, "chat_template": style.plain},
        "special_ids": special,
        "vocab_size": size,
        "all_special_ids": tuple(tokens[token] for token in style.specials),
    }
    for field, value in changes.items():
        object.__setattr__(schema, field, value)
    due = tuple(tokens[token] for token in ends)
    content = tokenizer.to_str().encode()
    assert text_ends(schema, content, vocab_size=size) == due
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": [due[0], 7, size]}))
    found = text_ends(schema, content, vocab_size=size, first_weights=tmp_path)
    assert found == (*due, 7)
    assert run_ends(tmp_path, schema, content) == due  # of an older run
    settings = generation_settings(schema, found)
    assert settings == {"bos_token_id": special["bos"], "eos_token_id": [*due, 7]}
    (tmp_path / GENERATION).write_text(json.dumps(settings))
    assert run_ends(tmp_path, schema, content) == found
    assert generation_settings(schema, due[:1])["eos_token_id"] == due[0]


@pytest.mark.parametrize("name", ["Qwen 2", "GPT-2"])
def test_a_tokenizer_that_auto_tokenizer_would_change_has_a_note(name, tmp_path):
    content = trained(name).to_str().encode()
    ids = trained(name).encode(PROMPTS[0]).ids
    (tmp_path / "tokenizer.json").write_bytes(content)
    (tmp_path / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "PreTrainedTokenizerFast"}'
    )
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    notes = tokenizer_notes("qwen2", content)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert (tokenizer("Is it 2024?")["input_ids"] == trained(name).encode("Is it 2024?").ids) == (
        not notes
    )
    if notes:
        assert "open it with PreTrainedTokenizerFast" in notes[0]
        fast = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
        assert fast(PROMPTS[0])["input_ids"] == ids
    assert tokenizer_notes("llama", content) == []
