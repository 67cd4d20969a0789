"""Which calls of transformers keep documents of a row apart: what docs/verify_attention.md says."""

import re
import warnings
from typing import Any

import numpy as np
import pytest

from tests.tools.clm_factory import clm_rows, clm_schema, write_clm_set
from tests.tools.places import ROOT
from textmill.schemas.format.layouts import huggingface
from textmill.trainers.data.adapters import attention_mask, variable_length
from textmill.trainers.metrics.attention import ALONE, EARLIER, LATER, PADDING, verify_attention

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, at import
    import torch
    import transformers

SIZES: dict[str, Any] = {"vocab_size": 50, "bos_token_id": 0, "eos_token_id": 2}
ATTENTION = ("eager", "sdpa")
PAGE = (ROOT / "docs" / "verify_attention.md").read_text(encoding="utf-8")
BEFORE_OF_DECODERS, OTHERS_OF_ENCODERS = {EARLIER, ALONE}, {EARLIER, LATER, ALONE}
# The page's table: arguments beside the ids, and what a decoder and an encoder see then.
TABLE: list[tuple[tuple[str, ...], set[str], set[str]]] = [
    ((), BEFORE_OF_DECODERS, OTHERS_OF_ENCODERS | {PADDING}),
    (("text",), BEFORE_OF_DECODERS, OTHERS_OF_ENCODERS),
    (("positions",), BEFORE_OF_DECODERS, OTHERS_OF_ENCODERS | {PADDING}),
    (("positions", "text"), BEFORE_OF_DECODERS, OTHERS_OF_ENCODERS),
    (("positions", "segments"), set(), set()),
]
SMALL = {
    **{"hidden_size": 32, "intermediate_size": 48},
    **{"num_hidden_layers": 2, "num_attention_heads": 4},
}
KINDS: dict[str, tuple[Any, Any, dict[str, int]]] = {
    "gpt2": (
        transformers.GPT2Config,
        transformers.GPT2LMHeadModel,
        {"n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4},
    ),
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM, SMALL),
    "bert": (transformers.BertConfig, transformers.BertForMaskedLM, SMALL),
}


def model_of(kind, attention):
    torch.manual_seed(0)
    config, model, sizes = KINDS[kind]
    return model(config(**SIZES, **sizes, attn_implementation=attention)).eval()


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Models this small compute faster than threads meet."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def batch():
    return clm_rows(clm_schema(max_length=32), 2, seed=0)


def tensor(values):
    return torch.from_numpy(np.asarray(values).astype(np.int64))


LOWEST = torch.finfo(torch.float32).min
# Each argument of a model, from rows and a mask of what may attend to what.
ARGUMENTS: dict[str, tuple[str, Any]] = {
    "positions": ("position_ids", lambda rows, may: tensor(rows["position_ids"])),
    "text": ("attention_mask", lambda rows, may: tensor(rows["segment_ids"] > 0)),
    "segments": ("attention_mask", lambda rows, may: torch.where(may, 0.0, LOWEST)),
    "booleans": ("attention_mask", lambda rows, may: may),
}


def find_leaks(model, batch, names):
    """Causes of leaks where a model is called with ids and these ARGUMENTS."""
    causal = not isinstance(model, transformers.BertForMaskedLM)

    def logits_of(rows):
        may = torch.from_numpy(attention_mask(rows["segment_ids"], causal=causal))
        given = {name: make(rows, may) for name, make in map(ARGUMENTS.__getitem__, names)}
        return model(tensor(rows["input_ids"]), **given).logits

    report = verify_attention(logits_of, batch, causal=causal)
    return {leak.cause for leak in report.leaks}


@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_model_sees_by_its_arguments(batch, kind, attention):
    model = model_of(kind, attention)
    for names, of_decoder, of_encoder in TABLE:
        due = of_encoder if kind == "bert" else of_decoder
        assert find_leaks(model, batch, names) == due, names
    # `eager` adds a mask of booleans to the scores: 1 where a token may look, 0 where it may not.
    leaks = find_leaks(model, batch, ["positions", "booleans"])
    assert PADDING in leaks if attention == "eager" else leaks == set()


@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_positions_alone_keep_documents_apart_without_a_cache_only(batch, kind, attention):
    """transformers reads segments off the positions where there is neither mask nor cache."""
    model = model_of(kind, attention)
    model.config.use_cache = False
    assert find_leaks(model, batch, ["positions"]) == set()
    assert find_leaks(model, batch, ["positions", "text"]) == BEFORE_OF_DECODERS

    def of_layout(rows):
        columns = {name: tensor(column) for name, column in huggingface(rows).items()}
        return model(**columns).logits

    assert verify_attention(of_layout, batch, causal=True).ok

    def of_lengths(rows):
        flat = variable_length(rows["segment_ids"])
        ids, places = tensor(flat.take(rows["input_ids"]))[None], tensor(flat.position_ids)[None]
        logits = torch.zeros(rows["input_ids"].size, SIZES["vocab_size"])
        logits[flat.indices] = model(ids, position_ids=places).logits[0].detach()
        return logits.reshape(*rows["input_ids"].shape, -1)

    assert verify_attention(of_lengths, batch, causal=True).ok


def test_what_the_page_shows(tmp_path, monkeypatch, capsys):
    """The page's code on a set, and what it prints, but for digits."""
    write_clm_set(tmp_path / "shards", max_length=32)
    monkeypatch.chdir(tmp_path)
    code, shown = re.findall(r"```\w*\n(.*?)```", PAGE, re.S)[:2]
    exec(code, {})
    said = capsys.readouterr().out
    assert said.count("LEAK") == 2
    number = re.compile(r"\d\.\de[+-]\d\d")
    assert number.sub("#", said).split("\n") == number.sub("#", shown).split("\n")
