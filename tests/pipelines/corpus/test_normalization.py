import sys
import unicodedata

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.corpus import normalization
from pipelines.corpus.normalization import (
    normalize,
    normalize_answers,
    normalize_line_ends,
    normalize_text,
    normalize_texts,
)
from pipelines.readers.documents import ANSWERS

FORMS = ("NFC", "NFKC")
POINTS = [chr(c) for c in range(sys.maxunicode + 1) if not 0xD800 <= c < 0xE000]
# Characters that move, compose, or fall apart.
LIVELY = [c for c in POINTS if unicodedata.combining(c) or unicodedata.normalize("NFKD", c) != c]
LIVELY += [chr(c) for c in range(0x1100, 0x1200)]


def column(documents):
    return pa.array(documents, pa.large_string())


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


def test_places_of_answers_move_with_their_context():
    before = column(["cafe\u0301 noir", "plain", "fi\u0301n, fi\u0301n"])
    after = normalize(before, "NFC")
    answers = pa.array(
        [
            [{"text": "noir", "start": 6}, {"text": "cafe\u0301", "start": 0}],
            [],
            [{"text": "fi\u0301n", "start": 6}, {"text": "unknown", "start": -1}],
        ],
        ANSWERS,
    )
    moved = normalize_answers(answers, before, after, "NFC")
    assert moved.type == ANSWERS
    assert moved.to_pylist() == [
        [{"text": "noir", "start": 5}, {"text": "café", "start": 0}],
        [],
        [{"text": "fín", "start": 5}, {"text": "unknown", "start": -1}],
    ]
    for context, found in zip(after.to_pylist(), moved.to_pylist(), strict=True):
        for answer in found:
            if answer["start"] >= 0:
                assert context[answer["start"] :].startswith(answer["text"])


def test_no_answers_at_all():
    none = pa.array([[], []], ANSWERS)
    text = column(["e\u0301", "b"])
    assert normalize_answers(none, text, normalize(text, "NFC"), "NFC") is none


@given(st.lists(st.text("a\r\né", max_size=9)))
def test_lines_end_with_a_newline(documents):
    text = column(["\r", *documents]).slice(1)
    expected = [d.replace("\r\n", "\n").replace("\r", "\n") for d in documents]
    assert normalize_line_ends(text).to_pylist() == expected
    if not any("\r" in document for document in documents):
        assert normalize_line_ends(text) is text


@given(st.text("ae\u0301\r\n", max_size=12), st.text("ae\r\n", min_size=1, max_size=5))
def test_answers_move_with_line_ends(ahead, answer):
    """But for one that begins in the middle of what becomes one character."""
    context = ahead + "x" + answer + "x"
    answers = pa.array([[{"text": answer, "start": len(ahead) + 1}]], ANSWERS)
    columns = pa.record_batch({"context": column([context]), "answers": answers})
    made = normalize_texts(columns, ["context"], "nfc")
    [found] = made["answers"].to_pylist()[0]
    assert made["context"][0].as_py()[found["start"] :].startswith(found["text"])
    assert "\r" not in found["text"]


def test_an_answer_that_begins_with_the_second_half_of_a_line_end():
    answers = pa.array([[{"text": "\nb", "start": 2}]], ANSWERS)
    columns = pa.record_batch({"context": column(["a\r\nb"]), "answers": answers})
    made = normalize_texts(columns, ["context"], "nfc")
    assert made["answers"].to_pylist() == [[{"text": "\nb", "start": 1}]]
