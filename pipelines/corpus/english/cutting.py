"""Cuts columns of English text into words. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipelines.corpus.english.characters import character_table
from pipelines.corpus.english.spellings import spelling_table
from pipelines.corpus.english.word_loop import cut_words
from pipelines.rows.text_bytes import slices, utf8_bytes

_AT_ONCE = 1 << 18  # bytes of text cut together, so that they fit the CPU's cache


@dataclass(frozen=True)
class Words:
    """The words of some documents.

    Attributes:
      data: uint8, the bytes of the documents.
      bounds: int64 [D + 1], where documents begin in `data`.
      spans: int64 [2, W], where words start and stop in `data`.
      offsets: int64 [D + 1], the first word of each document.
    """

    data: np.ndarray
    bounds: np.ndarray
    spans: np.ndarray
    offsets: np.ndarray


def english_words(text: pa.LargeStringArray) -> Iterator[Words]:
    """Yields the words of documents, a slice of documents at a time."""
    for some in slices(text, _AT_ONCE):
        data, bounds = utf8_bytes(some)
        yield Words(data, bounds, *cut(data, np.stack([bounds[:-1], bounds[1:]])))


def cut(
    data: np.ndarray, pieces: np.ndarray, spaces: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Spans of words, and the first word of each piece: see `word_loop.cut_words`."""
    return cut_words(data, pieces, character_table(), spelling_table(), spaces)
