"""Documents and their ids -> segments, task by task. Pure.

A segment is what a row is packed of: one stream of tokens with the specials in place, and where its
segments begin and end.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Segments:
    """Segments of many documents in one stream.

    Attributes:
      stream: token ids, specials included.
      offsets: int64 [S + 1] into it.
      document_S: int64, the document that each segment is of.
      specials_added: tokens of the stream that no tokenizer made.
    """

    stream: np.ndarray
    offsets: np.ndarray
    document_S: np.ndarray
    specials_added: int


def mlm_segments(
    ids: np.ndarray,
    offsets: np.ndarray,
    prefix: tuple[int, ...],
    suffix: tuple[int, ...],
    longest: int | None,
) -> Segments:
    """Cuts documents into pieces and wraps each.

    [5, 6, 7] with longest=4 -> [<s> 5 6 </s>], [<s> 7 </s>].

    Args:
      ids: [n] of all documents, one after another.
      offsets: int64 [documents + 1] into `ids`.
      prefix: ids before each piece, such as (<s>,).
      suffix: ids after it, such as (</s>,).
      longest: tokens of a piece, specials included; None leaves documents whole.
    """
    added = len(prefix) + len(suffix)
    lengths = np.diff(offsets)
    document_S = np.arange(len(lengths))
    if longest is not None:
        pieces = -(-lengths // (longest - added))
        document_S = np.repeat(document_S, pieces)
        number_S = np.arange(len(document_S)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        starts = offsets[:-1][document_S] + number_S * (longest - added)
        offsets = np.append(starts, offsets[-1])
    count = len(document_S)
    wrapped = offsets + np.arange(count + 1) * added
    # The stream is all ids, but for the places of specials: no index a token is ever built.
    is_text = np.ones(len(ids) + count * added, bool)
    stream = np.empty(len(is_text), ids.dtype)
    for i, special in enumerate(prefix):
        stream[wrapped[:-1] + i] = special
        is_text[wrapped[:-1] + i] = False
    for i, special in enumerate(reversed(suffix), start=1):
        stream[wrapped[1:] - i] = special
        is_text[wrapped[1:] - i] = False
    stream[is_text] = ids
    return Segments(stream, wrapped, document_S, count * added)
