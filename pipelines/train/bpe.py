"""BPE training: word counts in, vocabulary and merges out. Pure: numpy, no Beam.

The method is Sennrich et al. 2016 (https://arxiv.org/abs/1508.07909); the merges are those of
`tokenizers`' BpeTrainer, one for one. What that trainer does, learned by comparing, and kept:

- Ids: special tokens first, then the symbols that words are made of, then one id a merge. Those of
  byte-level BPE are the 256 byte characters in the order of their code points.
- The next merge is the pair with the highest count, ties to the smallest (left id, right id).
- A merge that spells a special token takes that token's id, and the vocabulary does not grow.
- With a longest token of n symbols, what is merged has less than n; but two symbols always may.

Two things differ, on purpose. Counts are 64-bit (there 32, wrapping above 2**31). And a merge
costs the number of its occurrences (there the length of the words that hold it, which makes one
long word quadratic).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipelines.encoding.byte_alphabet import byte_characters, first_tokens
from pipelines.train.merge_loop import lay_out, merge_all
from pipelines.train.word_counts import buffers_of

_ANY_LENGTH = 1 << 62


@dataclass(frozen=True)
class Trained:
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
    max_token_length: int | None = None,
    special_tokens: Sequence[str] = (),
    progress: np.ndarray | None = None,
) -> Trained:
    """The byte-level vocabulary and merges of words that occur `counts` times.

    Args:
        words: distinct pre-tokens as raw bytes, none empty, in any order (the order decides
            nothing), without nulls.
        counts: int64[len(words)], each at least 1.
        vocab_size: tokens wanted, special tokens and the 256 bytes included; fewer come out if
            no pair is left.
        min_frequency: a pair that occurs less often is not merged.
        max_token_length: tokens have less bytes than this, or two.
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
    ids = {token: i for i, token in enumerate(first)}
    of_byte = np.array([ids[character] for character in byte_characters()], np.int32)
    return merge_words(
        offsets,
        np.take(of_byte, data[offsets[0] : offsets[-1]]),
        counts,
        first=first,
        spelled=spelled_by_merges(special_tokens, ids),
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        max_token_length=max_token_length,
        progress=progress,
    )


def merge_words(
    offsets: np.ndarray,
    symbols: np.ndarray,
    counts: np.ndarray,
    *,
    first: Sequence[str],
    spelled: Mapping[int, Sequence[int]],
    vocab_size: int,
    min_frequency: int,
    max_token_length: int | None,
    continuing_prefix: str = "",
    progress: np.ndarray | None = None,
) -> Trained:
    """The vocabulary and merges of words of any symbols; see `train_bpe`.

    Args:
        offsets: int64[words + 1], where words begin in `symbols`; one may be empty.
        symbols: int32, their ids, one word after another.
        counts: int64[words].
        first: the tokens before any merge; those of symbols are among them.
        spelled: the special tokens that merges may spell, and their symbols.
        vocab_size: see `train_bpe`, and so on.
        min_frequency: a pair that occurs less often is not merged.
        max_token_length: of symbols.
        continuing_prefix: what tokens begin with that do not begin a word.
        progress: int64[2].
    """
    stops = np.cumsum([0, *map(len, spelled.values())])
    room = max(len(first), min(vocab_size, len(first) + len(symbols)))  # a merge takes a place
    laid_out = lay_out(offsets, symbols)
    del symbols  # as large again
    merges, word_tokens = merge_all(
        laid_out,
        counts.astype(np.int64),
        special=np.array([i for spelling in spelled.values() for i in spelling], np.int64),
        spelled=np.column_stack([np.array([*spelled], np.int64), stops[:-1], stops[1:]]),
        first=len(first),
        room=room,
        min_count=max(1, min_frequency),
        max_length=_ANY_LENGTH if max_token_length is None else max(max_token_length - 1, 2),
        progress=np.zeros(2, np.int64) if progress is None else progress,
    )
    lefts, rights, made = merges.T.tolist()
    tokens = [*first, *[""] * (max(made, default=-1) + 1 - len(first))]
    skipped = len(continuing_prefix)
    for left, right, new in zip(lefts, rights, made, strict=True):
        tokens[new] = tokens[left] + tokens[right][skipped:]
    named = [(tokens[left], tokens[right]) for left, right in zip(lefts, rights, strict=True)]
    return Trained(tokens, named, word_tokens)


def spelled_by_merges(tokens: Sequence[str], ids: Mapping[str, int]) -> dict[int, list[int]]:
    """Special tokens that merges can spell, as `Ġthe`, and the symbols of each."""
    return {
        ids[token]: [ids[character] for character in token]
        for token in tokens
        if len(token) > 1 and ids.keys() >= set(token)
    }
