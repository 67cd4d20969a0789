"""Where answers stand: offsets of characters, bytes and tokens, against `tokenizers`' own."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from pipelines.encoding.tokenizer import LoadedTokenizer
from pipelines.readers.documents import ANSWERS
from pipelines.tasks.questions import find_answers
from pipelines.tasks.token_spans import token_ends, token_span
from tests.tools.tokenizer_factory import (
    TEXT,
    changed,
    config_of,
    data_of,
    strings,
    trained_tokenizer,
)
from tests.tools.tokenizer_families import train_family

CONTEXT = "På Ærø bor 6 000. Ærø er en ø."


def find(*answers_of_questions, context=CONTEXT):
    count = len(answers_of_questions)
    answers = pa.array(
        [[{"text": t, "start": s} for t, s in some] for some in answers_of_questions], ANSWERS
    )
    return find_answers(
        strings(context), np.zeros(count, np.int64), answers, lambda n: f"question {n}"
    )


def test_answers_are_found_in_bytes():
    found = find([("Ærø", 3)], [("Ærø", 18)], [("Ærø", -1)], [], [("000.", 13), ("6", -1)])
    assert found.rejects == {}
    assert found.text_D.to_pylist() == ["Ærø", "Ærø", "Ærø", "", "000."]
    data = CONTEXT.encode()
    spans = list(zip(found.start_D.tolist(), found.stop_D.tolist(), strict=True))
    assert [data[a:b].decode() for a, b in spans] == ["Ærø", "Ærø", "Ærø", "", "000."]
    assert spans[1] == (data.rindex("Ærø".encode()), data.rindex("Ærø".encode()) + 5)


@pytest.mark.parametrize(
    ("answers", "reason", "detail"),
    [
        ([("Ærø", 4)], "answer_not_at_offset", "at character 4, not the answer 'Ærø'"),
        ([("Ærø", 4)], "answer_not_at_offset", "the context has 'rø ' at"),
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
    found = find([("bor", 7)], answers)
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
        offsets = oracle.encode(text, add_special_tokens=False).offsets
        # In characters, where a token ends inside one: the one after it.
        characters = [len(text.encode()[:end].decode(errors="replace")) for end in found.tolist()]
        assert characters == [stop for _, stop in offsets]


def test_bytes_of_half_a_character_are_told_where_tokenizers_would_not():
    contexts = strings("🙂🙂 a")
    tokenizer = TOKENIZERS["byte-level"]
    encoded = tokenizer.encode(contexts)
    ends = token_ends(tokenizer, contexts, encoded)
    assert (
        ends.tolist() == np.cumsum([len(tokenizer.token_bytes[i]) for i in encoded.values]).tolist()
    )
    assert ends[-1] == len("🙂🙂 a".encode())


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
