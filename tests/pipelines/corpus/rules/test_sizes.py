from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipelines.corpus.rules import sizes
from pipelines.corpus.rules.sizes import repetition
from tests.tools.filter_factory import column


def plain_repetition(document):
    """The definition: 8 / 13 for `to be or not to be`, whose 13 characters have `to be` twice."""
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


WORDS = st.sampled_from(["a", "b", "cc", "æ", "\n", " ", "\n\n", "\u2003", "中", "a b", "b\n"])


@example(["", "one", "no no no no", "to be or not to be", "yes\n\nyes\n\nfour", "æø\næø"], 40)
@given(st.lists(st.lists(WORDS, max_size=12).map("".join), max_size=12), st.integers(1, 40))
def test_many_documents_at_once_are_measured_each_by_itself(documents, slice_bytes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizes, "_SLICE_BYTES", slice_bytes)
        text = column(["a a a", *documents]).slice(1)
        assert repetition(text).tolist() == pytest.approx([plain_repetition(d) for d in documents])
