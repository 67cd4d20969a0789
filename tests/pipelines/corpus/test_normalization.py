import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.corpus import normalization
from pipelines.corpus.normalization import (
    apply_form,
    normalize,
    normalize_line_ends,
    normalize_text,
)
from tests.tools.filter_factory import column

FORMS = ("NFC", "NFKC")
POINTS = [chr(c) for c in range(sys.maxunicode + 1) if not 0xD800 <= c < 0xE000]
# Characters that move, compose, or fall apart.
LIVELY = [c for c in POINTS if unicodedata.combining(c) or unicodedata.normalize("NFKD", c) != c]
LIVELY += [chr(c) for c in range(0x1100, 0x1200)]


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


@pytest.mark.parametrize("form", ["NFC", "NFKC"])
@given(
    st.text(
        alphabet="ae\u0301\u0316\u0327\u0344\u0345\u0f71\u0f73\u3099\uff9ex\u00e9가", max_size=400
    )
)
def test_runs_of_marks_are_sorted_as_unicodedata_does(form, text):
    """Those that are long in a text that is long, here any."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(normalization, "_LONG", 0)
        patch.setattr(normalization, "_RUN", 2)
        normalization._long_runs.cache_clear()
        assert normalize_text(text, form) == unicodedata.normalize(form, text)
    normalization._long_runs.cache_clear()


def test_a_million_marks_take_seconds():
    marks = "\u0301\u0316" * 500_000
    expected = unicodedata.normalize("NFC", "a" + "\u0316" * 500_000 + "\u0301" * 500_000)
    assert normalize_text("a" + marks, "NFC") == expected


def test_normal_text_is_not_copied():
    text = column(["plain", "åpen dør – “quoted”", "中文 한국어 русский"])
    assert normalize(text, "NFC") is text


@given(st.lists(st.text("a\r\né", max_size=9)))
def test_lines_end_with_a_newline(documents):
    text = column(["\r", *documents]).slice(1)
    expected = [d.replace("\r\n", "\n").replace("\r", "\n") for d in documents]
    assert normalize_line_ends(text).to_pylist() == expected
    if not any("\r" in document for document in documents):
        assert normalize_line_ends(text) is text


def test_flags_name_forms():
    text = column(["e\u0301\r\nﬁn"])
    shown = {flag: apply_form(text, flag)[0].as_py() for flag in ("none", "nfc", "nfkc")}
    assert shown == {"none": "e\u0301\r\nﬁn", "nfc": "é\nﬁn", "nfkc": "é\nfin"}
