"""Byte-level BPE training: word counts in, vocabulary and merges out. Pure: numpy, no Beam.

The method is Sennrich et al. 2016 (https://arxiv.org/abs/1508.07909); the merges are those of
`tokenizers`' BpeTrainer, one for one. What that trainer does, learned by comparing, and kept:

- Ids: special tokens first, then the 256 byte characters in the order of their code points, then
  one id a merge.
- The next merge is the pair with the highest count, ties to the smallest (left id, right id).
- A merge that spells a special token takes that token's id, and the vocabulary does not grow.

Two things differ, on purpose. Counts are 64-bit (there 32, wrapping above 2**31). And a merge
costs the number of its occurrences (there the length of the words that hold it, which makes one
long word quadratic).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from pipelines.encoding.byte_alphabet import byte_characters


@dataclass(frozen=True)
class TrainedBpe:
    """What training found.

    Attributes:
        tokens: every token, its index is its id; byte tokens are written in the GPT-2 alphabet
            (see `byte_characters`), special tokens as they are.
        merges: (left token, right token), best first.
        word_tokens: int64[words], the number of tokens of each word when it is encoded.
    """

    tokens: list[str]
    merges: list[tuple[str, str]]
    word_tokens: np.ndarray


def first_tokens(special_tokens: Sequence[str]) -> list[str]:
    """The vocabulary before any merge: special tokens, then the byte characters not among them."""
    return list(dict.fromkeys([*special_tokens, *sorted(byte_characters())]))


def train_bpe(
    words: pa.LargeBinaryArray,
    counts: np.ndarray,
    *,
    vocab_size: int,
    min_frequency: int = 2,
    special_tokens: Sequence[str] = (),
    progress: np.ndarray | None = None,
) -> TrainedBpe:
    """The vocabulary and merges of words that occur `counts` times.

    Args:
        words: distinct pre-tokens as raw bytes, none empty, in any order (the order decides
            nothing), without nulls.
        counts: int64[len(words)], each at least 1.
        vocab_size: tokens wanted, special tokens and the 256 bytes included; fewer come out if
            no pair is left.
        min_frequency: a pair that occurs less often is not merged.
        special_tokens: the first ids.
        progress: int64[2] if another thread looks on: the first item becomes the number of tokens
            found; it may set the second to 1 to stop early.

    Raises:
        ValueError: a count is below 1, a word is empty, or `vocab_size` does not hold the first
            tokens.
    """
    # numba takes a second to import: not before it is needed.
    from pipelines.train import merge_loop

    first = first_tokens(special_tokens)
    if vocab_size < len(first):
        raise ValueError(f"vocab_size is {vocab_size}, but {len(first)} tokens come before merges")
    if len(counts) and counts.min() < 1:
        raise ValueError(f"a word has the count {counts.min()}")
    offsets, data = _buffers(words)
    if len(words) and np.diff(offsets).min() < 1:
        raise ValueError(f"word {np.diff(offsets).argmin()} is empty")
    ids = np.array([first.index(character) for character in byte_characters()])
    room = min(vocab_size, len(first) + len(data))  # a new token takes at least one byte's place
    tokens, spellings = _first_rows(first, room)
    spelled = np.flatnonzero(tokens[: len(special_tokens), merge_loop.LENGTH] > 1)
    sizes = np.zeros(6, np.int64)
    sizes[merge_loop.TOKENS] = len(first)
    merges, word_tokens = merge_loop.merge_all(
        data,
        offsets,
        _read_only(counts.astype(np.int64)),
        ids,
        spellings,
        tokens,
        spelled,
        sizes,
        max(1, min_frequency),
        np.zeros(2, np.int64) if progress is None else progress,
    )
    strings = first + _strings(data, tokens[len(first) : sizes[merge_loop.TOKENS]])
    return TrainedBpe(
        tokens=strings,
        merges=[(strings[left], strings[right]) for left, right, _ in merges.tolist()],
        word_tokens=word_tokens,
    )


def _buffers(words: pa.LargeBinaryArray) -> tuple[np.ndarray, np.ndarray]:
    """Where words begin, int64[words + 1], in their bytes, uint8."""
    _, offsets, data = words.buffers()
    if not len(words) or offsets is None or data is None:
        return _read_only(np.zeros(1, np.int64)), _read_only(np.zeros(0, np.uint8))
    bounds = np.frombuffer(offsets, np.int64)[words.offset :][: len(words) + 1]
    return _read_only(bounds), _read_only(np.frombuffer(data, np.uint8))


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def _strings(data: np.ndarray, tokens: np.ndarray) -> list[str]:
    """How tokens, int64[tokens, 2] of (start, length) in `data`, are written."""
    starts, lengths = tokens[:, 0], tokens[:, 1]
    stops = np.cumsum(lengths)
    where = np.repeat(starts - stops + lengths, lengths) + np.arange(lengths.sum())
    written = data[where].tobytes().decode("latin-1").translate(dict(enumerate(byte_characters())))
    bounds = [0, *stops.tolist()]
    return [written[start:stop] for start, stop in pairwise(bounds)]


def _first_rows(first: Sequence[str], room: int) -> tuple[np.ndarray, np.ndarray]:
    """The table of `room` tokens with the first filled in, and the bytes that these stand for."""
    byte_of = {character: byte for byte, character in enumerate(byte_characters())}
    spelled = [_spelling(token, byte_of) for token in first]
    lengths = np.array([len(spelling) for spelling in spelled])
    tokens = np.zeros((room, 2), np.int64)
    tokens[: len(first), 0] = np.cumsum(lengths) - lengths
    tokens[: len(first), 1] = lengths
    return tokens, np.frombuffer(b"".join(spelled), np.uint8)


def _spelling(token: str, byte_of: dict[str, int]) -> bytes:
    """The bytes a token stands for, or none if some character stands for no byte.

    A special token can be spelled by merges too: `Ġthe` by the bytes of ` the`.
    """
    if all(character in byte_of for character in token):
        return bytes(byte_of[character] for character in token)
    return b""
