"""Encodes questions with their contexts and answers by a template, and cuts long contexts.

If a row has room for R of a context's C tokens, windows begin every s tokens until one reaches the
end: R = 5, s = 3, C = 9 gives [0, 5), [3, 8), [6, 9). Legend: D questions, A answers, C distinct
contexts, W windows.
"""

import string
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import pyarrow as pa

from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
from textmill.pipelines.readers.documents import Documents
from textmill.pipelines.rows.ragged import Ragged, ranges
from textmill.pipelines.rows.text_bytes import character_begins, utf8_bytes
from textmill.pipelines.runtime.imports import pc
from textmill.pipelines.tasks.token_spans import token_ends, token_span
from textmill.schemas.errors import FieldError

_IS_PLAIN = np.array([chr(byte).isascii() and chr(byte).isalnum() for byte in range(256)])
NONE, FIRST, EVERY, HOLDING = range(4)  # windows to keep; HOLDING: those that hold the answer


@dataclass(frozen=True)
class Windows:
    """Windows of documents; those of a document are consecutive and in order.

    Attributes:
      document_W: int64, ascending: the document of each window.
      start_W: int64, its first token.
      stop_W: int64, the token after its last.
      part_W: int64, its number within the document, from 0 on.
    """

    document_W: np.ndarray
    start_W: np.ndarray
    stop_W: np.ndarray
    part_W: np.ndarray

    def fresh_W(self) -> np.ndarray:
        """int64 [W]: tokens of each window that no earlier window of the document has."""
        before = np.append(0, self.stop_W[:-1])
        return self.stop_W - np.where(self.part_W > 0, before, self.start_W)


def choose_windows(
    wanted_D: np.ndarray,
    *,
    length_D: np.ndarray,
    room_D: np.ndarray,
    start_D: np.ndarray,
    stop_D: np.ndarray,
    stride: int,
) -> Windows:
    """Cuts contexts so that at least one window contains the whole answer.

    Args:
      wanted_D: NONE, FIRST, EVERY or HOLDING (windows that hold tokens start_D to stop_D).
      length_D: int64, C.
      room_D: int64, R, at least 1.
      start_D: int64, the answer's first token.
      stop_D: int64, the token after its last; with HOLDING at most start_D + room_D.
      stride: s; reduced in documents whose answer would otherwise be in no window.
    """
    span_D = np.where(wanted_D == HOLDING, np.maximum(stop_D - start_D, 1), 1)
    step_D = np.clip(room_D - span_D + 1, 1, stride)
    last_D = -(-np.maximum(length_D - room_D, 0) // step_D)
    # Window w is [w * s, w * s + R); it holds the answer if w * s <= start and stop <= w * s + R.
    first_holding_D = np.maximum(-((room_D - stop_D) // step_D), 0)
    last_holding_D = np.minimum(start_D // step_D, last_D)
    from_D = np.where(wanted_D == HOLDING, first_holding_D, 0)
    to_D = np.select(
        [wanted_D == NONE, wanted_D == EVERY, wanted_D == HOLDING], [-1, last_D, last_holding_D], 0
    )
    count_D = to_D - from_D + 1
    document_W = np.repeat(np.arange(len(count_D)), count_D)
    number_W = ranges(from_D, count_D)
    start_W = number_W * step_D[document_W]
    stop_W = np.minimum(start_W + room_D[document_W], length_D[document_W])
    return Windows(document_W, start_W, stop_W, number_W - from_D[document_W])


@dataclass(frozen=True)
class FirstAnswers:
    """The first answer of each question.

    Attributes:
      text_D: the answer; "" if there is none.
      start_D: int64, the byte of the context where it begins.
      stop_D: int64, the byte after it; equal to start_D if there is none.
      rejects: question with a wrong answer to (reason, detail).
    """

    text_D: pa.LargeStringArray
    start_D: np.ndarray
    stop_D: np.ndarray
    rejects: dict[int, tuple[str, str]]


def find_answers(
    contexts: pa.LargeStringArray,
    context_D: np.ndarray,
    answers: pa.ListArray,
    name: Callable[[int], str],
) -> FirstAnswers:
    """Compares every answer with the context at its offset.

    Args:
      contexts: the distinct contexts.
      context_D: the index of each question's context.
      answers: the answers of each question, of type `pipelines.readers.documents.ANSWERS`.
      name: returns the name of a question by its index, for messages.
    """
    count = len(context_D)
    number_D = pc.list_value_length(answers).to_numpy()
    question_A = np.repeat(np.arange(count), number_D)
    first_D = np.cumsum(number_D) - number_D
    texts = answers.flatten().field("text").cast(pa.large_string())
    starts = answers.flatten().field("start").to_numpy()
    place_A = _match(contexts, context_D[question_A], texts, starts)
    rejects: dict[int, tuple[str, str]] = {}
    for odd in np.flatnonzero(place_A < 0).tolist():
        question, text, start = int(question_A[odd]), texts[odd].as_py(), int(starts[odd])
        context = contexts[int(context_D[question])].as_py()
        if start == -1 and text:
            start = context.find(text)
        if text.strip() and start >= 0 and context.startswith(text, start):
            place_A[odd] = len(context[:start].encode())
        else:
            rejects.setdefault(question, _rejection(context, text, start, name(question)))
    is_good_D = number_D > 0
    is_good_D[is_good_D] = place_A[first_D[is_good_D]] >= 0
    text_D = texts.take(pa.array(first_D, mask=~is_good_D)).fill_null("")
    start_D = np.zeros(count, np.int64)
    start_D[is_good_D] = place_A[first_D[is_good_D]]
    length_D = pc.binary_length(text_D).to_numpy()
    return FirstAnswers(text_D, start_D, start_D + length_D, rejects)


def _match(
    contexts: pa.LargeStringArray,
    context_A: np.ndarray,
    texts: pa.LargeStringArray,
    start_A: np.ndarray,
) -> np.ndarray:
    """int64 [A]: the byte where each answer begins; -1 for those that need a closer check."""
    data, bounds = utf8_bytes(contexts)
    text_data, text_bounds = utf8_bytes(texts)
    begins = np.append(character_begins(data), len(data))
    first_C = np.searchsorted(begins, bounds)
    character_A = first_C[context_A] + start_A
    is_there_A = (start_A >= 0) & (character_A <= first_C[context_A + 1])
    place_A = begins[np.where(is_there_A, character_A, 0)]
    length_A = np.diff(text_bounds)
    is_there_A &= (length_A > 0) & (place_A + length_A <= bounds[context_A + 1])
    some = np.flatnonzero(is_there_A)
    if len(some):
        answer_bytes = text_data[ranges(text_bounds[some], length_A[some])]
        is_same = data[ranges(place_A[some], length_A[some])] == answer_bytes
        first = np.cumsum(length_A[some]) - length_A[some]
        is_there_A[some] = np.logical_and.reduceat(is_same, first)
        is_there_A[some] &= np.logical_or.reduceat(_IS_PLAIN[answer_bytes], first)
    return np.where(is_there_A, place_A - bounds[context_A], -1)


def _rejection(context: str, text: str, start: int, name: str) -> tuple[str, str]:
    if not text.strip():
        return "empty_answer", f"{name} has an empty answer"
    if start == -1:
        return "answer_not_in_context", f"{name}: the context does not contain {text!r:.80}"
    actual = context[start : start + len(text)] if start >= 0 else ""
    return (
        "answer_not_at_offset",
        f"{name}: the context has {actual!r:.80} at character {start:,}, not the answer "
        f"{text!r:.80}",
    )


FIELDS = ("question", "context", "answer")


@dataclass(frozen=True)
class Slot:
    """A field and the text before it.

    Attributes:
      literal: text since the previous slot, without the white space at its end.
      space: that white space. It is encoded with the field: in byte-level BPE " Paris" is a token,
        so encoding part by part gives the same ids as encoding the whole text.
      field: its name.
    """

    literal: str
    space: str
    field: str


def parse_template(template: str) -> tuple[Slot, ...]:
    """`Question: {question} answer: {answer}` -> ("Question:", " ", question), (" answer:", ...).

    The template must name each of FIELDS once, the last one at its end; `{{` is a brace.

    Raises:
      FieldError: the template is malformed, or a field is missing, repeated or unknown.
    """
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError as error:
        reason = f"{error}; write {{{{ for a literal brace"
        raise FieldError("", template, reason) from error
    slots = []
    literal = ""
    for text, name, form, conversion in parsed:
        literal += text
        if name is None:  # an escaped brace, or the end
            continue
        if name not in FIELDS or form or conversion:
            known = ", ".join(f"{{{name}}}" for name in FIELDS)
            raise FieldError("", template, f"there is no {{{name}}}, only {known}")
        bare = literal.rstrip()
        slots.append(Slot(bare, literal[len(bare) :], name))
        literal = ""
    found = [slot.field for slot in slots]
    for name in FIELDS:
        if found.count(name) != 1:
            raise FieldError("", template, f"{{{name}}} occurs {found.count(name)} times, not once")
    if found[-1] != FIELDS[-1] or literal:
        raise FieldError("", template, f"it must end with {{{FIELDS[-1]}}}")
    return tuple(slots)


@dataclass(frozen=True)
class QuestionTemplate:
    """The text of a row with a question, its context and its answer.

    Attributes:
      text: names each field once: "Question: {question} Context: {context} answer: {answer}".
      slots: its parts, each a literal and a field.
    """

    text: str
    slots: tuple[Slot, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Parses the text."""
        object.__setattr__(self, "slots", parse_template(self.text))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Makes the template of a text."""
        return cls(text)

    def __str__(self) -> str:
        """The text that `parse` reads."""
        return self.text


@dataclass(frozen=True)
class Questions:
    """D encoded questions.

    Attributes:
      pool: uint32, token ids of all texts, joined.
      literals: (start, length) in the pool of the literal before each slot of the template.
      start_D: field (question, context, answer) to int64, where it begins in the pool.
      length_D: field to int64, its tokens; 0 for a missing answer.
      begin_D: int64, the token of the context in which the answer begins.
      end_D: int64, the token after its last; equal to begin_D if there is no answer.
      rejects: question with a wrong answer to (reason, detail).
    """

    pool: np.ndarray
    literals: tuple[tuple[int, int], ...]
    start_D: dict[str, np.ndarray]
    length_D: dict[str, np.ndarray]
    begin_D: np.ndarray
    end_D: np.ndarray
    rejects: dict[int, tuple[str, str]]


def tokenize_questions(
    documents: Documents, slots: tuple[Slot, ...], tokenizer: LoadedTokenizer
) -> Questions:
    """Encodes the texts that fill a template; a context of many questions is encoded once.

    Args:
      documents: documents with the columns question, context, answers and id.
      slots: the slots of the template.
      tokenizer: the tokenizer of the dataset.
    """
    columns, count = documents.columns, len(documents.columns)
    space = {slot.field: slot.space for slot in slots}
    context = columns["context"].dictionary_encode()
    context_D = context.indices.to_numpy().astype(np.int64)
    contexts = context.dictionary
    places = find_answers(
        contexts,
        context_D,
        columns["answers"],
        lambda question: name_of(documents, question),
    )
    texts = {
        "literal": pa.array([slot.literal for slot in slots], pa.large_string()),
        "question": _after(space["question"], columns["question"]),
        "context": _after(space["context"], contexts),
        "answer": _answers(space["answer"], places),
    }
    encoded = tokenizer.encode(pa.concat_arrays(list(texts.values())))
    firsts = np.cumsum([0, *map(len, texts.values())])
    of = {name: slice(a, b) for name, a, b in zip(texts, firsts, firsts[1:], strict=False)}
    starts, lengths = encoded.offsets[:-1], encoded.lengths
    which_D = {"question": np.arange(count), "context": context_D, "answer": np.arange(count)}
    first, last = encoded.offsets[firsts[2]], encoded.offsets[firsts[3]]
    offsets = encoded.offsets[firsts[2] : firsts[3] + 1] - first
    ends_N = token_ends(tokenizer, texts["context"], Ragged(encoded.values[first:last], offsets))
    lead = len(space["context"].encode())
    begin_D, end_D = token_span(
        ends_N, offsets, context_D, places.start_D + lead, places.stop_D + lead
    )
    return Questions(
        encoded.values,
        tuple(zip(starts[of["literal"]].tolist(), lengths[of["literal"]].tolist(), strict=True)),
        {name: starts[of[name]][which_D[name]] for name in FIELDS},
        {name: lengths[of[name]][which_D[name]] for name in FIELDS},
        begin_D,
        np.where(places.stop_D > places.start_D, end_D, begin_D),
        places.rejects,
    )


def name_of(documents: Documents, question: int) -> str:
    """The name of a question in a message: its id, or the beginning of its text."""
    name = documents.columns["id"][question].as_py()
    return f"question {name or documents.columns['question'][question].as_py()!r:.80}"


def _after(space: str, text: pa.LargeStringArray) -> pa.LargeStringArray:
    if not space:
        return text
    before = pa.scalar(space, pa.large_string())
    nothing = pa.scalar("", pa.large_string())
    return pc.binary_join_element_wise(before, text, nothing)


def _answers(space: str, firsts: FirstAnswers) -> pa.LargeStringArray:
    """The first answers, each after `space`; "" if there is none."""
    some = pa.array(firsts.stop_D > firsts.start_D)
    nothing = pa.scalar("", pa.large_string())
    return pc.if_else(some, _after(space, firsts.text_D), nothing)
