"""Tokenizers of exported decoders: AutoTokenizer of transformers reads prompts as `use_model`."""

import json
import warnings
from dataclasses import replace
from functools import cache

import pytest
from tokenizers import Tokenizer, processors

from tests.tools.clm_factory import chat_schema, clm_schema
from tests.tools.shard_factory import tokenizer_json
from tests.tools.tokenizer_families import FAMILIES, train_family
from trainers.models.generation_files import INPUTS, for_prompts, text_start

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, at import
    from transformers import AutoTokenizer

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
            tokenizer = AutoTokenizer.from_pretrained(directory)
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
