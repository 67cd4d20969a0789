"""Questions: templates, windows over contexts, and where answers stand, in bytes and tokens."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests.tools.tokenizer_factory import (
    TEXT,
    changed,
    config_of,
    data_of,
    strings,
    trained_tokenizer,
)
from tests.tools.tokenizer_families import train_family
from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
from textmill.pipelines.readers.documents import ANSWERS
from textmill.pipelines.tasks.questions import (
    EVERY,
    FIRST,
    HOLDING,
    NONE,
    Slot,
    choose_windows,
    find_answers,
    parse_template,
)
from textmill.pipelines.tasks.token_spans import token_ends, token_span
from textmill.schemas.errors import FieldError


def test_templates_have_words_white_space_and_fields():
    assert parse_template("Question: {question} Context:\n{context}answer:  {answer}") == (
        Slot("Question:", " ", "question"),
        Slot(" Context:", "\n", "context"),
        Slot("answer:", "  ", "answer"),
    )
    assert parse_template("{{C}} {context} {{{question}}} {answer}") == (
        Slot("{C}", " ", "context"),
        Slot(" {", "", "question"),
        Slot("}", " ", "answer"),
    )


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{question} {context} {answer}.", "it must end with {answer}"),
        ("{answer} {question} {context}", "it must end with {answer}"),
        ("{question} {answer}", "{context} occurs 0 times, not once"),
        ("{question} {question} {context} {answer}", "{question} occurs 2 times, not once"),
        ("{title} {question} {context} {answer}", "there is no {title}, only {question}, {conte"),
        ("{} {question} {context} {answer}", "there is no {}, only"),
        ("{question:>5} {context} {answer}", "there is no {question}"),
        ("{question!r} {context} {answer}", "there is no {question}"),
        ("{question", "write {{ for a literal brace"),
        ("question}", "write {{ for a literal brace"),
        ("", "{question} occurs 0 times"),
    ],
)
def test_templates_that_cannot_work_are_refused(template, said):
    with pytest.raises(FieldError) as error:
        parse_template(template)
    assert said in str(error.value)
    assert error.value.value == template


def choose(wanted, length, room, start=0, stop=0, stride=128):
    """Windows of one document, as (start, stop)."""
    one = [np.array([value]) for value in (wanted, length, room, start, stop)]
    windows = choose_windows(
        one[0], length_D=one[1], room_D=one[2], start_D=one[3], stop_D=one[4], stride=stride
    )
    return list(zip(windows.start_W.tolist(), windows.stop_W.tolist(), strict=True))


def test_windows_by_hand():
    assert choose(EVERY, 9, 5, stride=3) == [(0, 5), (3, 8), (6, 9)]
    assert choose(EVERY, 5, 5, stride=3) == [(0, 5)]
    assert choose(EVERY, 6, 5, stride=3) == [(0, 5), (3, 6)]
    assert choose(EVERY, 0, 5) == [(0, 0)]
    assert choose(EVERY, 9, 4) == [(0, 4), (4, 8), (8, 9)]  # no token between two is lost
    assert choose(HOLDING, 9, 5, 4, 5, stride=3) == [(0, 5), (3, 8)]
    assert choose(HOLDING, 9, 5, 4, 6, stride=3) == [(3, 8)]
    assert choose(HOLDING, 9, 5, 8, 9, stride=3) == [(6, 9)]
    assert choose(HOLDING, 9, 9, 0, 9) == [(0, 9)]
    # Three tokens of five: windows every 3, so that [2, 5) and [3, 6) each have one.
    assert choose(HOLDING, 20, 5, 3, 6, stride=5) == [(3, 8)]
    assert choose(HOLDING, 20, 5, 2, 5, stride=5) == [(0, 5)]
    assert choose(HOLDING, 20, 5, 7, 12, stride=5) == [(7, 12)]
    assert choose(FIRST, 9, 5, 7, 8) == [(0, 5)]
    assert choose(FIRST, 3, 5) == [(0, 3)]


@st.composite
def documents(draw):
    room = draw(st.integers(1, 12))
    length = draw(st.integers(1, 40))
    span = draw(st.integers(1, min(room, length)))
    start = draw(st.integers(0, length - span))
    return draw(st.sampled_from([EVERY, HOLDING, FIRST, NONE])), length, room, start, start + span


@given(st.lists(documents(), min_size=1, max_size=8), st.integers(1, 15))
def test_an_answer_is_in_one_window_and_every_token_in_all(cases, stride):
    wanted, length, room, start, stop = np.array(cases).T
    windows = choose_windows(
        wanted, length_D=length, room_D=room, start_D=start, stop_D=stop, stride=stride
    )
    fresh = windows.fresh_W()
    for document in range(len(cases)):
        own = windows.document_W == document
        spans = list(zip(windows.start_W[own].tolist(), windows.stop_W[own].tolist(), strict=True))
        assert spans == sorted(set(spans))
        assert windows.part_W[own].tolist() == list(range(len(spans)))
        assert (not spans) == (wanted[document] == NONE)
        assert all(0 <= a < b <= length[document] and b - a <= room[document] for a, b in spans)
        steps = {b[0] - a[0] for a, b in zip(spans, spans[1:], strict=False)}
        assert len(steps) <= 1 and max(steps, default=1) <= stride
        covered = set()
        for (a, b), new in zip(spans, fresh[own].tolist(), strict=True):
            assert new == len(set(range(a, b)) - covered) > 0
            covered |= set(range(a, b))
        assert len(covered) == max(covered, default=-1) - min(covered, default=0) + 1
        if wanted[document] == HOLDING:
            assert all(a <= start[document] and stop[document] <= b for a, b in spans)
        if wanted[document] == EVERY:
            assert len(covered) == length[document]


CONTEXT = "På Ærø bor 6 000. Ærø er en ø."


@pytest.mark.parametrize(
    ("answers", "reason", "detail"),
    [
        ([("Ærø", 4)], "answer_not_at_offset", "has 'rø ' at character 4, not the answer 'Ærø'"),
        ([("ø.", 999)], "answer_not_at_offset", "the context has '' at character 999"),
        ([("ø.", -3)], "answer_not_at_offset", "the context has '' at character -3"),
        ([("ærø", -1)], "answer_not_in_context", "the context does not contain 'ærø'"),
        ([("", 3)], "empty_answer", "has an empty answer"),
        ([("", -1)], "empty_answer", "has an empty answer"),
        ([("Ærø", 3), ("bor", 3)], "answer_not_at_offset", "at character 3, not the answer 'bor'"),
        ([("x", -1), ("", 0)], "answer_not_in_context", "does not contain 'x'"),
    ],
)
def test_an_answer_that_is_not_as_said_is_refused(answers, reason, detail):
    both = [[{"text": t, "start": s} for t, s in some] for some in ([("bor", 7)], answers)]
    found = find_answers(
        strings(CONTEXT), np.zeros(2, np.int64), pa.array(both, ANSWERS), lambda n: f"question {n}"
    )
    assert set(found.rejects) == {1}
    assert found.rejects[1][0] == reason
    assert found.rejects[1][1].startswith("question 1")
    assert detail in found.rejects[1][1]


def start_of(context: str, text: str, start: int) -> int:
    """The character that an answer begins at; -1 if it is refused."""
    if not text.strip():
        return -1
    if start == -1:
        return context.find(text)
    return start if start >= 0 and context[start:].startswith(text) else -1


@given(
    st.lists(st.text("aø🙂 1.\u2003", max_size=12), min_size=1, max_size=3),
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.lists(
                st.tuples(st.text("aø🙂 1.\u2003", max_size=3), st.integers(-2, 14)), max_size=3
            ),
        ),
        max_size=6,
    ),
)
def test_answers_are_where_python_finds_them(contexts, questions):
    context_D = np.array([number % len(contexts) for number, _ in questions], np.int64)
    answers = [[{"text": t, "start": s} for t, s in some] for _, some in questions]
    found = find_answers(strings(*contexts), context_D, pa.array(answers, ANSWERS), str)
    for number, (context, (_, some)) in enumerate(
        zip([contexts[i] for i in context_D], questions, strict=True)
    ):
        starts = [start_of(context, text, start) for text, start in some]
        assert (number in found.rejects) == (-1 in starts)
        first, text = (starts[0], some[0][0]) if some and starts[0] >= 0 else (0, "")
        assert found.text_D[number].as_py() == text
        begin = len(context[:first].encode())
        assert (found.start_D[number], found.stop_D[number]) == (begin, begin + len(text.encode()))


# Without RoBERTa's post-processor, which moves ends of tokens that are white space.
BYTE_LEVEL = changed(config_of(trained_tokenizer()), "post_processor", value=None)
TOKENIZERS = {
    "byte-level": LoadedTokenizer(data_of(BYTE_LEVEL)),
    "normalized": LoadedTokenizer(
        data_of(changed(BYTE_LEVEL, "normalizer", value={"type": "NFKC"}))
    ),
    # Accents and case are dropped, and white space too.
    "WordPiece": LoadedTokenizer(train_family("BERT uncased", TEXT, 300).to_str().encode()),
}
TEXTS = st.text(st.sampled_from("aeø Å½²ﬁ中🙂\n.'"), max_size=30)


@pytest.mark.parametrize("name", TOKENIZERS)
@given(st.lists(st.one_of(TEXTS, st.sampled_from([*TEXT, "a <mask> b", ""])), max_size=6))
def test_ends_of_tokens_are_those_of_tokenizers(name, texts):
    tokenizer = TOKENIZERS[name]
    contexts = strings(*texts)
    encoded = tokenizer.encode(contexts)
    ends = token_ends(tokenizer, contexts, encoded)
    oracle = Tokenizer.from_str(tokenizer.json.decode())
    for i, text in enumerate(texts):
        found = ends[encoded.offsets[i] : encoded.offsets[i + 1]]
        if name == "byte-level" and "<mask>" not in text:  # in bytes, though half a character
            own = encoded.values[encoded.offsets[i] : encoded.offsets[i + 1]]
            lengths = [len(tokenizer.token_bytes[token]) for token in own]
            assert found.tolist() == np.cumsum(lengths).tolist()
        offsets = oracle.encode(text, add_special_tokens=False).offsets
        # In characters, where a token ends inside one: the one after it.
        characters = [len(text.encode()[:end].decode(errors="replace")) for end in found.tolist()]
        assert characters == [stop for _, stop in offsets]


def test_tokens_of_a_span_are_all_that_it_touches():
    # Three contexts: tokens [0, 3) [3, 5) [5, 9), [0, 2) [2, 7), and a character of two tokens
    # after [0, 1), of which `tokenizers` says that both end after the whole of it.
    ends, offsets = np.array([3, 5, 9, 2, 7, 1, 5, 5, 6]), np.array([0, 3, 5, 9])
    context = np.array([0, 0, 0, 0, 1, 1, 1, 2])
    start = np.array([0, 3, 2, 4, 0, 2, 1, 1])
    stop = np.array([3, 5, 4, 9, 1, 7, 3, 5])
    first, after = token_span(ends, offsets, context, start, stop)
    assert first.tolist() == [0, 1, 0, 1, 0, 1, 0, 1]
    assert after.tolist() == [1, 2, 2, 3, 1, 2, 2, 3]
