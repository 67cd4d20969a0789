"""ELECTRA (Clark et al., 2020) trains on MLM rows: what it needs comes back from them."""

import numpy as np
import pytest

from pipelines.encoding.tokenizer import LoadedTokenizer
from schemas.features import unmask
from tests.tools.task_rows import make_rows
from tests.tools.tokenizer_factory import TEXT, trained_tokenizer

REFERENCE = trained_tokenizer()
TOKENIZER = LoadedTokenizer(REFERENCE.to_str().encode())
WORDS = " ".join(TEXT).split()


@pytest.mark.parametrize("unit", ["token", "word", "span"])
def test_replaced_tokens_are_told_from_the_unmasked_row(unit):
    texts = [" ".join(WORDS[n : n + 12]) for n in range(0, len(WORDS), 6)]
    flags = ["--task=mlm", f"--mask_unit={unit}", "--max_length=48", "--mask_copies=2"]
    made = make_rows(TOKENIZER, {"text": texts}, *flags)
    assert made.schema.mask_unit == unit
    batch = made.columns["train"]
    original = unmask(batch)  # what the discriminator's labels are made of
    found = [
        tuple(ids[numbers == number].tolist())
        for ids, numbers in zip(original, batch["segment_ids"], strict=True)
        for number in range(1, numbers.max() + 1)
    ]
    expected = []
    for text in set(texts):
        ids = REFERENCE.encode(text, add_special_tokens=False).ids
        expected += [(0, *ids[start : start + 46], 2) for start in range(0, len(ids), 46)]
    assert sorted(found) == sorted(expected * 2), "each of the two copies gives the text back"
    # The generator fills the masked places; the discriminator tells which tokens are replaced.
    rows, slots = np.nonzero(batch["masked_weights"])
    places = batch["masked_positions"][rows, slots]
    generated = batch["input_ids"].copy()
    generated[rows, places] = np.random.default_rng(0).integers(5, 500, len(rows))
    is_replaced = generated != original
    assert is_replaced[rows, places].sum() == is_replaced.sum() > 0
    untouched = np.ones(original.shape, bool)
    untouched[rows, places] = False
    assert (batch["input_ids"][untouched] == original[untouched]).all()


def test_rows_without_static_masks_are_of_the_unit_that_trainers_mask():
    for flags, unit in ((("--mask_unit=word",), "word"), (("--no_static_masking",), "token")):
        made = make_rows(TOKENIZER, {"text": TEXT}, "--task=mlm", *flags)
        assert made.schema.mask_unit == unit
