"""Rows of CLM have every token once, predicted wherever it can be; those of MLM give it back."""

import numpy as np
import pytest

from tests.tools.task_rows import make_rows, segments_of
from tests.tools.tokenizer_factory import TEXT, changed, config_of, data_of, trained_tokenizer
from textmill.pipelines.build_shards import BUILDER
from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
from textmill.pipelines.inspection.checks.row_checks import row_problems
from textmill.schemas.errors import UsageError
from textmill.schemas.format.features import unmask

REFERENCE = trained_tokenizer()
TOKENIZER = LoadedTokenizer(REFERENCE.to_str().encode())
WORDS = " ".join(TEXT).split()
DOCUMENTS = sorted({f"{text[:size]} {size}" for text in TEXT for size in range(1, len(text))})


def make(*flags, tokenizer=TOKENIZER):
    """Columns of rows of 32 tokens, and their statistics."""
    made = make_rows(tokenizer, {"text": DOCUMENTS}, "--task=clm", "--max_length=32", *flags)
    columns = made.columns["train"]
    assert row_problems(columns, made.schema) == []
    return columns, made.shards["train"].statistics


@pytest.mark.parametrize(
    ("task", "max_length"), [("clm", 1024), ("chat", 1024), ("mlm", 128), ("qa", 128)]
)
def test_the_default_length_of_rows_is_that_of_the_task(task, max_length):
    flags = [f"--task={task}", "--input=a.txt", "--tokenizer=t", "--output=o"]
    assert BUILDER.parse(flags)[0].max_length == max_length
    for length in ("--max_length=64", "--max-length=64"):
        assert BUILDER.parse([*flags, length])[0].max_length == 64


@pytest.mark.parametrize("packing", ["best_fit", "none"])
def test_documents_come_back_whole_with_their_ends(packing):
    columns, total = make(f"--packing={packing}", "--bos")
    expected = []
    for document in DOCUMENTS:
        ids = [0, *REFERENCE.encode(document, add_special_tokens=False).ids, 2]
        expected += [ids[start : start + 32] for start in range(0, len(ids), 32)]
    found = list(segments_of(columns, "input_ids", "loss_weights"))
    assert sorted(ids for ids, _ in found) == sorted(expected)
    assert all(weights == [0] + [1] * (len(ids) - 1) for ids, weights in found)
    assert total.documents == len(DOCUMENTS) and total.specials_added == 2 * len(DOCUMENTS)
    assert sum(map(len, expected)) == total.tokens + total.specials_added == total.tokens_in_rows
    # The denominators of bits per byte and of perplexity per word.
    assert total.text_bytes == sum(len(document.encode()) for document in DOCUMENTS)
    assert total.words == sum(len(document.split()) for document in DOCUMENTS)


def test_the_classic_stream_fills_all_rows_but_the_last():
    columns, _ = make("--packing=concat")
    segments = columns["segment_ids"]
    assert np.count_nonzero(np.count_nonzero(segments, axis=1) < 32) <= 1
    same = segments[:, 1:] == segments[:, :-1]
    assert (columns["loss_weights"][:, 1:] == (same & (segments[:, 1:] > 0))).all()
    assert not columns["loss_weights"][:, 0].any()


def test_a_tokenizer_without_the_specials_is_refused():
    config = changed(config_of(REFERENCE), "added_tokens", value=[])
    config["post_processor"] = None
    for special in ("<s>", "</s>"):
        config["model"]["vocab"][special + "-"] = config["model"]["vocab"].pop(special)
    tokenizer = LoadedTokenizer(data_of(config))
    for flags, role in (((), "eos"), (("--bos", "--no_eos"), "bos")):
        with pytest.raises(UsageError, match=f"no {role} token: use --no_{role}"):
            make(*flags, tokenizer=tokenizer)
    _, total = make("--no_eos", tokenizer=tokenizer)
    assert total.specials_added == 0 and total.tokens == total.tokens_in_rows


def test_a_flag_of_another_task_is_said_to_be_one():
    with pytest.raises(UsageError, match="--mask_rate is a flag of --task=mlm, not of clm"):
        make("--mask_rate=0.3")
    with pytest.raises(UsageError, match="--task=translation: choose one of "):
        make("--task=translation")


@pytest.mark.parametrize("unit", ["token", "word", "span"])
def test_each_copy_of_a_masked_row_gives_the_text_back(unit):
    """ELECTRA (Clark et al., 2020) trains on such rows."""
    texts = [" ".join(WORDS[n : n + 12]) for n in range(0, len(WORDS), 6)]
    flags = ["--task=mlm", f"--mask_unit={unit}", "--max_length=48", "--mask_copies=2"]
    made = make_rows(TOKENIZER, {"text": texts}, *flags)
    assert made.schema.mask_unit == unit
    batch = made.columns["train"]
    original = batch | {"input_ids": unmask(batch)}  # of which the discriminator's labels are made
    expected = []
    for text in set(texts):
        ids = REFERENCE.encode(text, add_special_tokens=False).ids
        expected += [[0, *ids[start : start + 46], 2] for start in range(0, len(ids), 46)]
    assert sorted(ids for (ids,) in segments_of(original, "input_ids")) == sorted(expected * 2)


def test_rows_without_static_masks_are_of_the_unit_that_trainers_mask():
    for flags, unit in ((("--mask_unit=word",), "word"), (("--no_static_masking",), "token")):
        made = make_rows(TOKENIZER, {"text": TEXT}, "--task=mlm", *flags)
        assert made.schema.mask_unit == unit
