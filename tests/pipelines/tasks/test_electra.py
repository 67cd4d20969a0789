"""ELECTRA (Clark et al., 2020) trains on MLM rows: what it needs comes back from them."""

import pytest

from pipelines.encoding.tokenizer import LoadedTokenizer
from schemas.features import unmask
from tests.tools.task_rows import make_rows, segments_of
from tests.tools.tokenizer_factory import TEXT, trained_tokenizer

REFERENCE = trained_tokenizer()
TOKENIZER = LoadedTokenizer(REFERENCE.to_str().encode())
WORDS = " ".join(TEXT).split()


@pytest.mark.parametrize("unit", ["token", "word", "span"])
def test_each_copy_of_a_masked_row_gives_the_text_back(unit):
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
