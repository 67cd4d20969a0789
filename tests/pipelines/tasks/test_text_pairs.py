"""Special tokens around one text or two, and cutting both: as `tokenizers` does it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import processors

from pipelines.encoding.tokenizer import LoadedTokenizer
from pipelines.tasks.classification import fill_form, ids_between, longest_first, pair_form
from schemas.errors import DataError
from tests.tools.tokenizer_factory import strings, trained_tokenizer

ROBERTA = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
BERT = processors.TemplateProcessing(
    single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[("<s>", 0), ("</s>", 2)]
)
TEXTS = ["The quick brown fox", "jumps", "over the lazy dogs' beds", "Blåbærsyltetøy på Ærø!"] * 2


def loaded(post_processor):
    tokenizer = trained_tokenizer()
    tokenizer.post_processor = post_processor
    return tokenizer, LoadedTokenizer(tokenizer.to_str().encode())


@pytest.mark.parametrize(
    ("post_processor", "between", "types"),
    [
        (ROBERTA, ([0], [2, 2], [2]), {0}),
        (processors.BertProcessing(("</s>", 2), ("<s>", 0)), ([0], [2], [2]), {0, 1}),
        (BERT, ([0], [2], [2]), {0, 1}),
        (processors.ByteLevel(trim_offsets=False), ([], [], []), {0}),
    ],
)
def test_the_form_of_a_pair_is_found(post_processor, between, types):
    _, tokenizer = loaded(post_processor)
    assert ids_between(pair_form(tokenizer)) == between
    assert {part.type for part in pair_form(tokenizer) if part.side < 0} <= types


def test_other_forms_of_a_pair_are_refused():
    for template in ("<s> $B $A", "<s> $A $A $B"):
        post_processor = processors.TemplateProcessing(
            single="<s> $A", pair=template, special_tokens=[("<s>", 0)]
        )
        with pytest.raises(DataError, match="two texts|texts of a pair|uses a text twice"):
            pair_form(loaded(post_processor)[1])


PAIRED = [loaded(post_processor) for post_processor in (ROBERTA, BERT)]


@given(
    st.sampled_from(["left", "right"]),
    st.integers(3, 30),
    st.sampled_from(PAIRED),
    st.lists(st.tuples(st.sampled_from(TEXTS), st.sampled_from(TEXTS)), min_size=1, max_size=5),
)
def test_pairs_are_cut_and_put_together_as_tokenizers_does(side, room, paired, pairs):
    reference, tokenizer = paired
    form = pair_form(tokenizer)
    length = room + sum(part.side < 0 for part in form)
    reference.enable_truncation(length, strategy="longest_first", direction=side)
    columns = [strings(*(pair[text] for pair in pairs)) for text in (0, 1)]
    encoded = [tokenizer.encode(column) for column in columns]
    lengths = np.stack([ragged.lengths for ragged in encoded], axis=1)
    kept = longest_first(lengths, room)
    ids, types = fill_form(
        form,
        encoded,
        np.arange(len(pairs)),
        head_ExT=kept if side == "right" else np.zeros_like(kept),
        kept_ExT=kept,
    )
    for i, pair in enumerate(pairs):
        expected = reference.encode(*pair)
        part = slice(ids.offsets[i], ids.offsets[i + 1])
        assert ids.values[part].tolist() == expected.ids
        assert types.values[part].tolist() == expected.type_ids


@given(st.integers(1, 60), st.lists(st.integers(0, 60), min_size=1, max_size=2))
def test_the_longer_text_goes_first(room, lengths):
    kept = longest_first(np.array([lengths]), room)[0].tolist()
    expected = list(lengths)
    while sum(expected) > room:  # a token at a time
        longest = len(expected) - 1 - expected[::-1].index(max(expected))
        if len(expected) == 2 and expected[0] == expected[1]:
            longest = 0 if lengths[0] <= lengths[1] else 1
        expected[longest] -= 1
    assert kept == expected
