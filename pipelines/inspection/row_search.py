"""Finds a text in the rows of a set, a batch at a time, without a loop over rows."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from pipelines.inspection.read_rows import read_rows
from pipelines.inspection.row_text import TokenTexts, sequences
from schemas.commands.terminal import visible
from schemas.features import unmask
from schemas.sidecar import Schema, SetInfo

_BATCH_ROWS = 1024  # some hundred KB of text, which stay in the cache
_CONTEXT = 60  # bytes on either side


@dataclass(frozen=True)
class Hit:
    """A row that holds the text.

    Attributes:
      split: of the row.
      row: its index in the split.
      segment: where it is found first.
      before, found, after: the text there and around it, within the segment.
      times: how often it is in the row.
    """

    split: str
    row: int
    segment: int
    before: str
    found: str
    after: str
    times: int


def search_rows(info: SetInfo, split: str, text: str, texts: TokenTexts) -> Iterator[Hit]:
    """The rows of a split whose text holds `text`, in their order; masks are taken off.

    Upper and lower case differ. A text is found across tokens, but not across segments.

    Args:
      info: the set.
      split: one of its splits.
      text: not empty.
      texts: of the set's tokenizer.

    Raises:
      DataError: a shard is damaged.
    """
    wanted, first = text.encode(), 0
    for shard in info.manifest.shards(split, info.schema.read_ending):
        count = shard.rows or 0
        for start, columns in read_rows(info, shard, range(0, count, _BATCH_ROWS)):
            yield from _search_batch(columns, info.schema, wanted, texts, (split, first + start))
        first += count


def _search_batch(
    columns: dict[str, np.ndarray],
    schema: Schema,
    wanted: bytes,
    texts: TokenTexts,
    begin: tuple[str, int],
) -> list[Hit]:
    split, first_row = begin
    hits: dict[int, Hit] = {}
    for ids, segments in sequences(schema).items():
        ids_BxL = unmask(columns) if ids == "input_ids" else columns[ids]
        row_N, place_N = np.nonzero(columns[segments])
        segment_N = columns[segments][row_N, place_N].astype(np.int64)
        data, bounds = texts.spell(ids_BxL[row_N, place_N])
        key_N = row_N * (ids_BxL.shape[1] + 1) + segment_N  # one number a segment, ascending
        at = data.find(wanted)
        while at >= 0:
            stop = at + len(wanted)
            # The tokens that hold its first and its last byte.
            first, last = (np.searchsorted(bounds, (at, stop - 1), side="right") - 1).tolist()
            row, segment = int(row_N[first]), int(segment_N[first])
            if row in hits and key_N[first] == key_N[last]:
                hits[row] = replace(hits[row], times=hits[row].times + 1)
            elif key_N[first] == key_N[last]:
                begins, ends = np.searchsorted(key_N, (key_N[first], key_N[first] + 1)).tolist()
                around = _cut_context(data, at, stop, slice(int(bounds[begins]), int(bounds[ends])))
                hits[row] = Hit(split, first_row + row, segment, *around, times=1)
            at = data.find(wanted, at + 1)
    return [hits[row] for row in sorted(hits)]


def _cut_context(data: bytes, at: int, stop: int, segment: slice) -> tuple[str, str, str]:
    """The bytes before, at and after a place, as text."""
    left, right = max(at - _CONTEXT, segment.start), min(stop + _CONTEXT, segment.stop)
    before, after = (
        # The context may be cut inside a character.
        visible(part.decode("utf-8", "ignore"))
        for part in (data[left:at], data[stop:right])
    )
    return (
        "…" * (left > segment.start) + before,
        visible(data[at:stop].decode()),
        after + "…" * (right < segment.stop),
    )
