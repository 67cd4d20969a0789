"""Normalizers: `tokenizers`' own, on every document, as the oracle."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.encoding.normal_text import NORMALIZERS, normalize_pieces, normalized, normalizer_of
from pipelines.rows.text_bytes import utf8_bytes
from tests.tools.filter_factory import column

SEQUENCES = [*((name,) for name in NORMALIZERS), ("NFD", "StripAccents", "Lowercase")]
CHARACTERS = [*"aeAEoσΣİıſßﬁ①Å각가각ก\u0e33कऩ\u093c\u09bc\u0301\u0327\u0345\u1ab0 \n\0\u200d🙂"]


def assert_equal(documents: list[str], names: tuple[str, ...]) -> None:
    """Compares documents with those of the library."""
    normalizer = normalizer_of(names)
    expected = [normalizer.normalize_str(document) for document in documents]
    assert normalized(column(documents), names).to_pylist() == expected


@pytest.mark.parametrize("names", SEQUENCES, ids=",".join)
@given(st.lists(st.one_of(st.lists(st.sampled_from(CHARACTERS)).map("".join), st.text())))
def test_equals_tokenizers(names, documents):
    assert_equal(documents, names)


@pytest.mark.slow
@pytest.mark.parametrize("names", SEQUENCES, ids=",".join)
def test_every_character_between_others(names):
    """Alone in a document: what the quick check lets pass must be what the library leaves."""
    points = [p for p in range(sys.maxunicode + 1) if unicodedata.category(chr(p)) != "Cs"]
    points = [p for p in points if p < 0x40000 or p % 997 == 0]
    for before, after in (("e", "\u11a8o"), ("\u0928", ""), ("\u1100", ""), ("e\u0323", "")):
        assert_equal([f"{before}{chr(point)}{after}" for point in points], names)
    assert_equal([f"e{chr(point)}o" for point in points], names)


def test_normal_text_is_not_touched():
    text = column(["Blåbær på Ærø", "中文字符 и кириллица 🙂", "low"])
    assert normalized(text, ("NFC",)) is text
    assert normalized(text, ()) is text


def test_slices_and_none():
    text = column(["x", "e\u0301", "low", "y"]).slice(1, 2)
    assert normalized(text, ("NFC",)).to_pylist() == ["é", "low"]
    assert normalized(text.slice(0, 0), ("NFC",)).to_pylist() == []


def test_pieces_of_text():
    text = column(["ab", "", "e\u0301x", "cd"]).slice(1)
    data, offsets = normalize_pieces(*utf8_bytes(text), ("NFC",))
    assert data.tobytes().decode() == "éxcd" and offsets.tolist() == [0, 0, 3, 5]
