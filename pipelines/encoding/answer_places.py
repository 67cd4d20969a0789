"""Where answers stand in their contexts: in bytes, and then in tokens. Pure.

Legend: C contexts, D questions, N tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.encoding.tokenizer import LoadedTokenizer
from pipelines.rows.ragged import Ragged, ranges
from pipelines.rows.text_bytes import utf8_bytes

_SLOW_BATCH = 256  # contexts whose offsets `tokenizers` tells at once
_AT_ONCE = 256  # contexts whose bytes are compared at once: an index a byte takes eight
_IS_PLAIN = np.array([chr(byte).isascii() and chr(byte).isalnum() for byte in range(256)])


@dataclass(frozen=True)
class AnswerPlaces:
    """The first answer of each question.

    Attributes:
      text_D: "" where there is none.
      start_D: int64, byte of the context it begins at.
      stop_D: int64, the byte after it; equal to start_D where there is none.
      rejects: question to (reason, detail), where an answer is not as the input says.
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
) -> AnswerPlaces:
    """Looks up every answer where its offset says.

    Args:
      contexts: distinct ones.
      context_D: which of them each question has.
      answers: of each question, as `pipelines.readers.documents.ANSWERS`.
      name: of a question by its number, to say which is refused.
    """
    count = len(context_D)
    number_D = pc.list_value_length(answers).to_numpy()  # pyright: ignore[reportAttributeAccessIssue]
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
            rejects.setdefault(question, _refusal(context, text, start, name(question)))
    is_good_D = number_D > 0
    is_good_D[is_good_D] = place_A[first_D[is_good_D]] >= 0
    text_D = texts.take(pa.array(first_D, mask=~is_good_D)).fill_null("")
    start_D = np.zeros(count, np.int64)
    start_D[is_good_D] = place_A[first_D[is_good_D]]
    length_D = pc.binary_length(text_D).to_numpy()  # pyright: ignore[reportAttributeAccessIssue]
    return AnswerPlaces(text_D, start_D, start_D + length_D, rejects)


def _match(
    contexts: pa.LargeStringArray,
    context_A: np.ndarray,
    texts: pa.LargeStringArray,
    start_A: np.ndarray,
) -> np.ndarray:
    """int64 [A]: the byte each answer begins at; -1 where that must be looked at more closely."""
    data, bounds = utf8_bytes(contexts)
    text_data, text_bounds = utf8_bytes(texts)
    begins = np.append(_character_begins(data), len(data))
    first_C = np.searchsorted(begins, bounds)
    character_A = first_C[context_A] + start_A
    is_there_A = (start_A >= 0) & (character_A <= first_C[context_A + 1])
    place_A = begins[np.where(is_there_A, character_A, 0)]
    length_A = np.diff(text_bounds)
    is_there_A &= (length_A > 0) & (place_A + length_A <= bounds[context_A + 1])
    some = np.flatnonzero(is_there_A)
    if len(some):
        said = text_data[ranges(text_bounds[some], length_A[some])]
        is_same = data[ranges(place_A[some], length_A[some])] == said
        first = np.cumsum(length_A[some]) - length_A[some]
        is_there_A[some] = np.logical_and.reduceat(is_same, first)
        is_there_A[some] &= np.logical_or.reduceat(_IS_PLAIN[said], first)
    return np.where(is_there_A, place_A - bounds[context_A], -1)


def _refusal(context: str, text: str, start: int, name: str) -> tuple[str, str]:
    if not text.strip():
        return "empty_answer", f"{name} has an answer of no character but white space"
    if start == -1:
        return "answer_not_in_context", f"{name}: {text!r:.80} is nowhere in the context"
    found = context[start : start + len(text)] if start >= 0 else ""
    return (
        "answer_not_at_offset",
        f"{name}: {text!r:.80} is said to be at character {start:,} of the context, where "
        f"{found!r:.80} stands",
    )


def token_ends(
    tokenizer: LoadedTokenizer, contexts: pa.LargeStringArray, encoded: Ragged
) -> np.ndarray:
    """The byte that follows each token in its context, ascending within a context.

    Where the bytes that tokens stand for are the context itself, as with byte-level BPE, they add
    up; else (another alphabet, a normalizer, a special token that swallows white space) the offsets
    that `tokenizers` gives are asked for.

    Args:
      tokenizer: of the set.
      contexts: C of them.
      encoded: their ids.

    Returns:
      int64 [N].
    """
    ends_N, is_other_C = _add_up(tokenizer.token_bytes, contexts, encoded)
    others = np.flatnonzero(is_other_C)
    for start in range(0, len(others), _SLOW_BATCH):
        some = others[start : start + _SLOW_BATCH]
        texts = contexts.take(pa.array(some)).to_pylist()
        for i, text, ends in zip(some, texts, tokenizer.character_ends(texts), strict=True):
            in_bytes = np.maximum.accumulate(_byte_offsets(text)[ends]) if ends else 0
            ends_N[encoded.offsets[i] : encoded.offsets[i + 1]] = in_bytes
    return ends_N


def _add_up(
    token_bytes: Sequence[bytes], contexts: pa.LargeStringArray, encoded: Ragged
) -> tuple[np.ndarray, np.ndarray]:
    """int64 [N], the byte after each token, and bool [C], where tokens are not the context."""
    data, bounds = utf8_bytes(contexts)
    spelt = np.frombuffer(b"".join(token_bytes), np.uint8)
    length_V = np.array([len(token) for token in token_bytes])
    start_V = np.cumsum(length_V) - length_V
    ends_N = np.empty(len(encoded.values), np.int64)
    is_other_C = np.empty(len(contexts), bool)
    for first in range(0, len(contexts), _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        begins, sizes = bounds[:-1][some], np.diff(bounds)[some]
        offsets = encoded.offsets[first : first + _AT_ONCE + 1]
        tokens = slice(offsets[0], offsets[-1])
        ids, offsets = encoded.values[tokens], offsets - offsets[0]
        ends = np.append(0, np.cumsum(length_V[ids]))
        ends_N[tokens] = ends[1:] - np.repeat(ends[offsets[:-1]], np.diff(offsets))
        is_other_C[some] = np.diff(ends[offsets]) != sizes
        # Bytes are compared in contexts that are as long as their tokens.
        alike = np.flatnonzero(~is_other_C[some])
        ids, sizes = Ragged(ids, offsets).take(alike).values, sizes[alike]
        said = data[ranges(begins[alike], sizes)]
        wrong = np.flatnonzero(spelt[ranges(start_V[ids], length_V[ids])] != said)
        is_other_C[first + alike[np.searchsorted(np.cumsum(sizes), wrong, side="right")]] = True
    return ends_N, is_other_C


def _byte_offsets(text: str) -> np.ndarray:
    """int64 [characters + 1]: the byte that each character begins at, and the number of bytes."""
    data = np.frombuffer(text.encode(), np.uint8)
    return np.append(_character_begins(data), len(data))


def _character_begins(data: np.ndarray) -> np.ndarray:
    """Where characters begin in UTF-8: int64."""
    return np.flatnonzero((data & 0xC0) != 0x80)


def token_span(
    ends_N: np.ndarray,
    offsets: np.ndarray,
    context_D: np.ndarray,
    start_D: np.ndarray,
    stop_D: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The tokens that bytes start_D to stop_D of a context are in, at least in part.

    Args:
      ends_N: as `token_ends` gives them.
      offsets: int64 [C + 1], of the contexts in them.
      context_D: the context of each question.
      start_D: int64, bytes.
      stop_D: int64, bytes, above start_D.

    Returns:
      int64 [D] each: the first token, and the one after the last, counted from the context's first.
    """
    # One ascending line for all contexts: each begins beyond the last byte of the one before.
    longest = int(ends_N.max(initial=0)) + 1
    line_N = ends_N + np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)) * longest
    base_D = context_D * longest
    first_D = np.searchsorted(line_N, base_D + start_D, side="right")
    after_D = np.maximum(
        np.searchsorted(line_N, base_D + stop_D, side="right"),
        np.searchsorted(line_N, base_D + stop_D) + 1,  # one token goes on beyond the answer
    )
    begin_D, end_D = offsets[:-1][context_D], offsets[1:][context_D]
    return np.clip(first_D, begin_D, end_D) - begin_D, np.clip(after_D, begin_D, end_D) - begin_D
