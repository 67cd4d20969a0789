"""Searches the rows of a dataset for a text."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from textmill.pipelines.inspection.read_rows import read_rows, sequences
from textmill.pipelines.inspection.row_text import TokenTexts
from textmill.schemas.commands.terminal import visible
from textmill.schemas.files.finished import DatasetInfo
from textmill.schemas.format.features import unmask
from textmill.schemas.format.metadata import Schema

_BATCH_ROWS = 1024  # some hundred kB of text, which fit the CPU cache
_CONTEXT = 60  # bytes on either side of a match


@dataclass(frozen=True)
class RowMatch:
    """A row that contains the text; `before` and `after` are from the same segment."""

    split: str
    row: int  # in the split
    segment: int  # of the first occurrence
    before: str
    found: str
    after: str
    times: int  # in the row


def search_rows(info: DatasetInfo, split: str, text: str, texts: TokenTexts) -> Iterator[RowMatch]:
    """Yields the rows of a split whose unmasked text contains `text`, in order.

    The search is case-sensitive. A match may cross tokens, but not segments.

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
) -> list[RowMatch]:
    split, first_row = begin
    hits: dict[int, RowMatch] = {}
    for ids, segments in sequences(schema).items():
        ids_BxL = unmask(columns) if ids == "input_ids" else columns[ids]
        row_N, position_N = np.nonzero(columns[segments])
        segment_N = columns[segments][row_N, position_N].astype(np.int64)
        data, bounds = texts.spell(ids_BxL[row_N, position_N])
        key_N = row_N * (ids_BxL.shape[1] + 1) + segment_N  # one number per segment, ascending
        at = data.find(wanted)
        while at >= 0:
            stop = at + len(wanted)
            # The tokens of its first and its last byte.
            first, last = (np.searchsorted(bounds, (at, stop - 1), side="right") - 1).tolist()
            row, segment = int(row_N[first]), int(segment_N[first])
            if row in hits and key_N[first] == key_N[last]:
                hits[row] = replace(hits[row], times=hits[row].times + 1)
            elif key_N[first] == key_N[last]:
                begins, ends = np.searchsorted(key_N, (key_N[first], key_N[first] + 1)).tolist()
                around = _cut_context(data, at, stop, slice(int(bounds[begins]), int(bounds[ends])))
                hits[row] = RowMatch(split, first_row + row, segment, *around, times=1)
            at = data.find(wanted, at + 1)
    return [hits[row] for row in sorted(hits)]


def _cut_context(data: bytes, at: int, stop: int, segment: slice) -> tuple[str, str, str]:
    """Returns the text before, at and after a match."""
    left, right = max(at - _CONTEXT, segment.start), min(stop + _CONTEXT, segment.stop)
    before, after = (
        # The cut may be inside a character.
        visible(part.decode("utf-8", "ignore"))
        for part in (data[left:at], data[stop:right])
    )
    return (
        "…" * (left > segment.start) + before,
        visible(data[at:stop].decode()),
        after + "…" * (right < segment.stop),
    )
