import re
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.filter_factory import column
from textmill.pipelines.rows.text_bytes import (
    count_words,
    find_characters,
    utf8_bytes,
    word_spans,
)

# Every kind of white space, what shares its first bytes, and ordinary characters.
CHARACTERS = st.sampled_from(
    [chr(c) for c in range(0x3100) if chr(c).isspace()] + [*"ab,é–—ん中😀\0"]
)
TEXTS = st.lists(st.text(st.one_of(CHARACTERS, st.characters(codec="utf-8"))))


def test_every_white_space_of_python_and_no_other():
    documents = [f"a{chr(c)}b" for c in range(sys.maxunicode) if not 0xD800 <= c < 0xE000]
    counted = count_words(column(documents))
    assert counted.tolist() == [len(document.split()) for document in documents]


@given(TEXTS)
def test_words_are_those_of_str_split(documents):
    text = column(["before", *documents, "after"]).slice(1, len(documents))
    assert count_words(text).tolist() == [len(document.split()) for document in documents]
    data, bounds = utf8_bytes(text)
    assert data.tobytes() == "".join(documents).encode()
    assert np.diff(bounds, prepend=0).tolist() == [0, *(len(d.encode()) for d in documents)]
    assert not len(data) or data.ctypes.data == text.buffers()[2].address + len("before")  # no copy
    starts, stops = word_spans(data, bounds)
    words = [data[a:b].tobytes().decode() for a, b in zip(starts, stops, strict=True)]
    assert words == [word for document in documents for word in document.split()]


def test_words_at_the_ends_of_steps():
    """Words are counted in steps of 64 bytes; a word or a space may begin at any byte of them."""
    documents = [
        "a" * n + space + "b" * m
        for n in range(260)
        for space in (" ", "\u00a0", "\u3000", "\u2003\u2003", "\u00e9\u2019")
        for m in (0, 1, 64)
    ]
    documents += ["a " * 200, " a" * 200, "\u00a0" * 130 + "a"]
    assert count_words(column(documents)).tolist() == [len(text.split()) for text in documents]


PARTS = st.sampled_from(["a" * 31, "a" * 64, "ab", "b", "é", "中", "中b", "😀"])
DOCUMENTS = st.lists(st.lists(PARTS).map("".join))


@given(DOCUMENTS, st.sampled_from(["é", "b", "é中", "中b😀"]), st.integers(1, 3))
def test_characters_are_found_where_so_many_of_a_set_follow_each_other(documents, wanted, run):
    in_set = np.zeros(sys.maxunicode + 1, bool)
    in_set[[*map(ord, wanted)]] = True
    pattern = re.compile(f"[{wanted}]{{{run}}}")
    text = column(["before", *documents, "after"]).slice(1, len(documents))
    found = find_characters(text, in_set, run)
    assert found.tolist() == [pattern.search(document) is not None for document in documents]


@pytest.mark.parametrize("wanted", ["b", "é", "中", "😀", "\ud800"])
def test_characters_at_the_ends_of_blocks(wanted):
    """Blocks of 64 bytes are skipped; a character may begin at any byte near their ends."""
    in_set = np.zeros(sys.maxunicode + 1, bool)
    in_set[[ord(wanted), 0x10FFFF]] = True
    sizes = (*range(4), *range(58, 68), *range(122, 132))
    parts = ("b", "é", "中", "😀", "\U0010ffff", "c", "è", "丁", "")
    documents = [
        "a" * n + part + "a" * m for n in sizes for part in parts for m in (0, 1, 63, 64, 65)
    ]
    found = find_characters(column(documents), in_set)
    assert found.tolist() == [
        wanted in document or "\U0010ffff" in document for document in documents
    ]
