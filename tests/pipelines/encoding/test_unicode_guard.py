"""The stored set against both libraries, and the search for it against Python's own strings."""

import numpy as np
import pyarrow as pa
import pytest
from gigatoken import pretokenizer
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from pipelines.encoding import unicode_guard
from pipelines.encoding.unicode_guard import (
    derive_disputed,
    disputed_code_points,
    holds_disputed,
)
from pipelines.rows.text_bytes import utf8_bytes

_CHARACTERS = st.characters(exclude_categories=["Cs"])


def test_stored_set_is_what_the_installed_libraries_say():
    assert len(disputed_code_points()) == 4657
    assert np.array_equal(disputed_code_points(), derive_disputed())


def test_other_versions_are_asked_anew(monkeypatch):
    monkeypatch.setitem(unicode_guard.DERIVED_WITH, "gigatoken", "0.0.1")
    monkeypatch.setattr(unicode_guard, "derive_disputed", lambda: np.array([7], np.uint32))
    assert disputed_code_points.__wrapped__().tolist() == [7]


def test_the_two_split_differently_around_disputed_code_points_only():
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    disputed = set(disputed_code_points().tolist())
    beside = {c + step for c in disputed for step in (-1, 1)}
    sample = disputed | beside | set(range(0x3000)) | set(range(0, 0x110000, 41))
    for code_point in sorted(sample - set(range(0xD800, 0xE000))):
        c = chr(code_point)
        text = f"a{c}b1{c}2!{c}? {c} '{c}s"
        by_reference = [text[start:stop] for _, (start, stop) in byte_level.pre_tokenize_str(text)]
        by_gigatoken = [piece.decode() for piece in pretokenizer(text.encode())]
        assert (by_reference != by_gigatoken) == (code_point in disputed), hex(code_point)


@given(
    st.lists(
        st.text(_CHARACTERS | st.sampled_from([chr(c) for c in disputed_code_points()[::97]])),
        max_size=8,
    ),
    st.integers(0, 3),
    st.integers(0, 8),
)
def test_documents_with_a_disputed_code_point_are_found(documents, start, length):
    text = pa.array(documents, pa.large_string()).slice(start, length)
    disputed = set(disputed_code_points().tolist())
    expected = [any(ord(c) in disputed for c in document) for document in text.to_pylist()]
    assert holds_disputed(text).tolist() == expected


@given(
    st.sets(st.integers(0x80, 0x10FFFF), min_size=1, max_size=30),
    st.lists(st.text(_CHARACTERS), max_size=6),
)
def test_any_set_above_ascii_can_be_looked_for(wanted, documents):
    documents = [*documents, *(f"x{chr(c)}" for c in wanted if not 0xD800 <= c < 0xE000)]
    finder = unicode_guard._Finder.of(np.array(sorted(wanted)))
    found = finder.find(*utf8_bytes(pa.array(documents, pa.large_string())))
    assert found.tolist() == [any(ord(c) in wanted for c in document) for document in documents]


def test_buffers_are_the_array_itself():
    text = pa.array(["a", "", "bcd", "é"], pa.large_string())
    data, bounds = utf8_bytes(text.slice(1, 3))
    assert bounds.tolist() == [0, 0, 3, 5]
    assert data.tobytes() == "bcdé".encode()
    assert data.ctypes.data == text.buffers()[2].address + 1
    no_data, no_bounds = utf8_bytes(pa.array([], pa.large_string()))
    assert no_bounds.tolist() == [0] and len(no_data) == 0


def test_text_of_another_kind_is_refused():
    with pytest.raises(TypeError, match="StringArray"):
        holds_disputed(pa.array(["a"]))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="1 nulls"):
        holds_disputed(pa.array(["a", None], pa.large_string()))
