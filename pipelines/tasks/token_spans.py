"""Maps tokens to bytes of the text that they encode, and spans of bytes to spans of tokens.

Legend: C texts (contexts, conversations), D spans of them, N tokens, V tokens of the vocabulary.
"""

import numpy as np
import pyarrow as pa

from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
from textmill.pipelines.rows.ragged import Ragged, ranges
from textmill.pipelines.rows.text_bytes import character_begins, utf8_bytes

_SLOW_BATCH = 256  # texts that `tokenizers` encodes at once for their offsets
_AT_ONCE = 256  # texts whose bytes are compared at once, since the index takes 8 bytes per byte


def token_ends(
    tokenizer: LoadedTokenizer, contexts: pa.LargeStringArray, encoded: Ragged
) -> np.ndarray:
    """The byte that follows each token in its context, ascending within a context.

    If the bytes of the tokens are the context, as with byte-level BPE, their lengths are added up.
    Otherwise (a different alphabet, a normalizer, a special token that strips white space)
    `tokenizers` computes the offsets.

    Args:
      tokenizer: the tokenizer of the dataset.
      contexts: C texts.
      encoded: their ids.

    Returns:
      int64 [N].
    """
    ends_N, is_other_C = _add_up(tokenizer.spelt, contexts, encoded)
    others = np.flatnonzero(is_other_C)
    for start in range(0, len(others), _SLOW_BATCH):
        some = others[start : start + _SLOW_BATCH]
        texts = contexts.take(pa.array(some)).to_pylist()
        for i, text, ends in zip(some, texts, tokenizer.character_ends(texts), strict=True):
            in_bytes = np.maximum.accumulate(_byte_offsets(text)[ends]) if ends else 0
            ends_N[encoded.offsets[i] : encoded.offsets[i + 1]] = in_bytes
    return ends_N


def _add_up(
    spelt_V: Ragged, contexts: pa.LargeStringArray, encoded: Ragged
) -> tuple[np.ndarray, np.ndarray]:
    """The byte after each token, int64 [N]; contexts that differ from their tokens, bool [C]."""
    data, bounds = utf8_bytes(contexts)
    spelt, start_V, length_V = spelt_V.values, spelt_V.offsets[:-1], spelt_V.lengths
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
        # Contexts as long as their tokens are compared byte by byte.
        alike = np.flatnonzero(~is_other_C[some])
        ids, sizes = Ragged(ids, offsets).take(alike).values, sizes[alike]
        text = data[ranges(begins[alike], sizes)]
        wrong = np.flatnonzero(spelt[ranges(start_V[ids], length_V[ids])] != text)
        is_other_C[first + alike[np.searchsorted(np.cumsum(sizes), wrong, side="right")]] = True
    return ends_N, is_other_C


def _byte_offsets(text: str) -> np.ndarray:
    """int64 [characters + 1]: the byte where each character begins, and the number of bytes."""
    data = np.frombuffer(text.encode(), np.uint8)
    return np.append(character_begins(data), len(data))


def token_span(
    ends_N: np.ndarray,
    offsets: np.ndarray,
    context_D: np.ndarray,
    start_D: np.ndarray,
    stop_D: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The tokens that contain any of the bytes start_D to stop_D of a context.

    Args:
      ends_N: the result of `token_ends`.
      offsets: int64 [C + 1], where the tokens of contexts begin in `ends_N`.
      context_D: the context of each span.
      start_D: int64, the first byte of each span.
      stop_D: int64, the byte after its last, above start_D.

    Returns:
      int64 [D] twice: the first token and the one after the last, counted within the context.
    """
    # One ascending sequence for all contexts: each begins beyond the last byte of the one before.
    longest = int(ends_N.max(initial=0)) + 1
    line_N = ends_N + np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)) * longest
    base_D = context_D * longest
    first_D = np.searchsorted(line_N, base_D + start_D, side="right")
    after_D = np.maximum(
        np.searchsorted(line_N, base_D + stop_D, side="right"),
        np.searchsorted(line_N, base_D + stop_D) + 1,  # the last token may extend beyond the span
    )
    begin_D, end_D = offsets[:-1][context_D], offsets[1:][context_D]
    return np.clip(first_D, begin_D, end_D) - begin_D, np.clip(after_D, begin_D, end_D) - begin_D
