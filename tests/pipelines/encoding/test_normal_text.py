"""Normalizers: `tokenizers`' own, on every document, as the oracle."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.filter_factory import column
from textmill.pipelines.encoding import normal_text
from textmill.pipelines.encoding.normal_text import (
    NORMALIZERS,
    apply_normalizers,
    normalize,
    normalize_line_ends,
    normalize_pieces,
    normalizer_of,
)
from textmill.pipelines.rows.text_bytes import utf8_bytes

SEQUENCES = [*((name,) for name in NORMALIZERS), ("NFD", "StripAccents", "Lowercase")]
CHARACTERS = [*"aeAEoσΣİıſßﬁ①Å각가각ก\u0e33कऩ\u093c\u09bc\u0301\u0327\u0345\u1ab0 \n\0\u200d🙂"]


def assert_equal(documents: list[str], names: tuple[str, ...]) -> None:
    """Compares documents with those of the library."""
    normalizer = normalizer_of(names)
    expected = [normalizer.normalize_str(document) for document in documents]
    text = column(["e\u0301", *documents]).slice(1)
    assert apply_normalizers(text, names).to_pylist() == expected


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
    text = column(["Blåbær på Ærø – “quoted”", "中文字符 한국어 и кириллица 🙂", "low"])
    assert apply_normalizers(text, ("NFC",)) is text is normalize(text, "NFC")
    assert apply_normalizers(text, ()) is text


def test_pieces_of_text():
    text = column(["ab", "", "e\u0301x", "cd"]).slice(1)
    data, offsets = normalize_pieces(*utf8_bytes(text), ("NFC",))
    assert data.tobytes().decode() == "éxcd" and offsets.tolist() == [0, 0, 3, 5]


FORMS = ("NFC", "NFKC")
POINTS = [chr(c) for c in range(sys.maxunicode + 1) if not 0xD800 <= c < 0xE000]
# Characters that move, compose, or fall apart.
LIVELY = [c for c in POINTS if unicodedata.combining(c) or unicodedata.normalize("NFKD", c) != c]
LIVELY += [chr(c) for c in range(0x1100, 0x1200)]
MARKS = "ae\u0301\u0316\u0327\u0344\u0345\u0f71\u0f73\u3099\uff9ex\u00e9가"


@pytest.mark.parametrize("form", FORMS)
def test_every_character_and_what_may_compose_with_it(form):
    documents = POINTS + [base + c for base in "aeo\u1100\uac00\uac01\u0915" for c in LIVELY]
    found = normalize(column(documents), form).to_pylist()
    assert found == [unicodedata.normalize(form, document) for document in documents]


@given(
    st.lists(st.text(st.one_of(st.sampled_from(LIVELY), st.characters(codec="utf-8")))),
    st.sampled_from(FORMS),
)
def test_equal_to_unicodedata(documents, form):
    text = column(["e\u0301", *documents]).slice(1)
    expected = [unicodedata.normalize(form, document) for document in documents]
    assert normalize(text, form).to_pylist() == expected


@pytest.fixture(scope="module")
def short_runs():
    """Marks are sorted in runs that are long, here of two."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(normal_text, "_RUN", 2)
        normal_text._long_runs.cache_clear()
        yield
    normal_text._long_runs.cache_clear()


@pytest.mark.parametrize("form", FORMS)
@given(text=st.text(MARKS, max_size=400))
def test_runs_of_marks_are_sorted_as_unicodedata_does(short_runs, form, text):
    assert normalize(column(["a", text]), form)[1].as_py() == unicodedata.normalize(form, text)


def test_a_million_marks_take_seconds():
    marks = "\u0301\u0316" * 500_000
    expected = unicodedata.normalize("NFC", "a" + "\u0316" * 500_000 + "\u0301" * 500_000)
    assert normalize(column(["a" + marks]), "NFC").to_pylist() == [expected]


@given(st.lists(st.text("a\r\né", max_size=200)))
def test_lines_end_with_a_newline(documents):
    text = column(["\r", *documents]).slice(1)
    expected = [d.replace("\r\n", "\n").replace("\r", "\n") for d in documents]
    assert normalize_line_ends(text).to_pylist() == expected
    if not any("\r" in document for document in documents):
        assert normalize_line_ends(text) is text
