from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.corpus.rules import sizes
from pipelines.corpus.rules.sizes import repetition
from tests.tools.filter_factory import column


def by_hand(document):
    """The definition, a document at a time."""
    lines = [line for line in document.split("\n") if line]
    repeats = sum(len(line) for i, line in enumerate(lines) if line in lines[:i])
    words = document.split()
    pairs = [
        (count, len(a) + len(b))
        for (a, b), count in Counter(zip(words, words[1:], strict=False)).items()
        if count > 1
    ]
    count, length = max(pairs, default=(0, 0))
    in_lines = repeats / max(1, sum(map(len, lines)))
    in_pair = count * length / max(1, sum(map(len, words)))
    return max(in_lines, min(1.0, in_pair))


@pytest.mark.parametrize(
    ("document", "share"),
    [
        ("", 0.0),
        ("one", 0.0),
        ("a b c", 0.0),
        ("no no no no", 1.0),
        # `to be` twice: 8 of the 13 characters outside white space.
        ("to be or not to be", 8 / 13),
        # The second `yes` of 10 characters in lines; the empty lines are none.
        ("yes\n\nyes\n\nfour", 3 / 10),
        ("yes\nyes", 1 / 2),
        ("\nfirst\n", 0.0),
        # Characters, not bytes: `æø` is 2 of 4.
        ("æø\næø", 1 / 2),
    ],
)
def test_shares_by_hand(document, share):
    assert repetition(column([document])).tolist() == [pytest.approx(share)]
    assert by_hand(document) == pytest.approx(share)


WORDS = st.sampled_from(["a", "b", "cc", "æ", "\n", " ", "\n\n", "\u2003", "中", "a b", "b\n"])


@given(st.lists(st.lists(WORDS, max_size=12).map("".join), max_size=12), st.integers(1, 40))
def test_many_documents_at_once_are_measured_each_by_itself(documents, slice_bytes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizes, "_SLICE_BYTES", slice_bytes)
        text = column(["a a a", *documents]).slice(1)
        assert repetition(text).tolist() == pytest.approx([by_hand(d) for d in documents])
