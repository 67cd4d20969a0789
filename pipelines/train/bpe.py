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

import numpy as np
import pyarrow as pa

from pipelines.encoding.byte_alphabet import byte_characters, first_tokens, spelt_bytes
from pipelines.train.merge_loop import merge_all
from pipelines.train.word_counts import buffers_of


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
    first = first_tokens(special_tokens)
    if vocab_size < len(first):
        raise ValueError(f"vocab_size is {vocab_size}, but {len(first)} tokens come before merges")
    if len(counts) and counts.min() < 1:
        raise ValueError(f"a word has the count {counts.min()}")
    offsets, data = buffers_of(words)
    if len(words) and np.diff(offsets).min() < 1:
        raise ValueError(f"word {np.diff(offsets).argmin()} is empty")
    special, spelled = _spelled_by_merges(special_tokens)
    merges, word_tokens = merge_all(
        data,
        offsets,
        counts.astype(np.int64),
        ids=np.array([first.index(character) for character in byte_characters()]),
        special=special,
        spelled=spelled,
        first=len(first),
        room=min(vocab_size, len(first) + len(data)),  # a new token takes a byte's place
        min_count=max(1, min_frequency),
        progress=np.zeros(2, np.int64) if progress is None else progress,
    )
    tokens = first + [""] * (int(merges[:, 2].max(initial=0)) + 1 - len(first))
    for left, right, new in merges.tolist():
        tokens[new] = tokens[left] + tokens[right]
    named = [(tokens[left], tokens[right]) for left, right, _ in merges.tolist()]
    return TrainedBpe(tokens, named, word_tokens)


def _spelled_by_merges(special_tokens: Sequence[str]) -> tuple[bytes, np.ndarray]:
    """Special tokens that merges can spell, as `Ġthe` by the bytes of ` the`.

    Returns:
        their bytes, one after another; int64[tokens, 3], the id of each and where its bytes are.
    """
    alphabet, special, spelled = set(byte_characters()), b"", []
    for token, text in enumerate(special_tokens):
        if len(text) > 1 and alphabet.issuperset(text):
            [spelling] = spelt_bytes([text])
            spelled.append((token, len(special), len(special) + len(spelling)))
            special += spelling
    return special, np.array(spelled, np.int64).reshape(-1, 3)
