"""The documents of a shard's rows: `train-00000-of-00004.documents`, beside the shard.

A row's list has a document and a first token for each of its segments. The tokens that all rows
hold of a document, laid end to end, count from 0: special tokens and overlaps included. All numbers
are little-endian:

    magic b"TMrowdoc", rows, lists, segments, documents, step: uint64 [5]; widths: uint8 [8]
    digests     uint8 [documents, 16], xxh3_128 of each document, in the order of first use
    list        of each row; absent if each row has its own
    length      of each list, minus 1
    document    of each segment, an index into the digests; absent if each occurs once
    first token of each segment, divided by `step`

Each of the last four has as many bytes a number as its largest number needs (`widths`), up to 4;
lengths and first tokens have none if all are 0. So a file holds no more rows and segments than it
has bytes. Masked copies of a row have the same list. Only what is read is decoded, since the file
is mapped. Python 3.8 syntax.

Legend: R rows, G lists, S segments, D documents.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from textmill.schemas.errors import DataError, describe_refusal
from textmill.schemas.format.digests import DIGEST_BYTES, Digests

# Tasks whose documents are in the shard that `shards_of` names; others route by a part of them.
ROUTED_BY_DIGEST = ("mlm", "clm", "chat", "span_corruption")
_MAGIC = b"TMrowdoc"
_HEAD = struct.Struct("<8s5Q4B4x")
_MOST = 4  # bytes of a number
_MOST_STEP = 1 << 31  # so that a first token fits int64


class RowSegments(NamedTuple):
    """The segments of some rows.

    Attributes:
      row_S: int64, index of the segment's row among the requested ones; ascending.
      document_S: int64, its document: an index into `RowDocuments.digests`.
      first_S: int64, the document's token with which it begins.
    """

    row_S: np.ndarray
    document_S: np.ndarray
    first_S: np.ndarray


def encode_row_documents(
    digests: np.ndarray,
    bounds: np.ndarray,
    document_S: np.ndarray,
    first_S: np.ndarray,
    list_R: np.ndarray | None = None,
) -> bytes:
    """The content of a file.

    Args:
      digests: uint8 [n, 16], in any order; only those that are used are written.
      bounds: int64 [G + 1]: list g has the segments from bounds[g] to bounds[g + 1], at least one.
      document_S: int64, the document of each segment, an index into `digests`.
      first_S: int64, the first token of each segment.
      list_R: int64, the list of each row, more rows than lists; None if each row has its own.
    """
    segments = np.arange(len(document_S))
    first_use = np.zeros(len(digests), np.int64)
    first_use[document_S[::-1]] = segments[::-1]  # of equal indices, the last assignment stays
    used = document_S[first_use[document_S] == segments]
    none = number_S = np.zeros(0, np.int64)
    if len(used) < len(document_S):
        number = np.zeros(len(digests), np.int64)
        number[used] = np.arange(len(used))
        number_S = number[document_S]
    step = max(1, int(np.gcd.reduce(first_S))) if len(first_S) else 1
    columns = [
        _narrow(none if list_R is None else list_R, 1),
        _narrow(np.diff(bounds) - 1),
        _narrow(number_S, 1),
        _narrow(first_S // step),
    ]
    whole = np.ascontiguousarray(digests).view(f"V{DIGEST_BYTES}")  # gathered faster than bytes
    lists = len(bounds) - 1
    rows = lists if list_R is None else len(list_R)
    head = _HEAD.pack(
        _MAGIC, rows, lists, len(document_S), len(used), step, *(c.shape[1] for c in columns)
    )
    return b"".join([head, whole[used].tobytes(), *(column.tobytes() for column in columns)])


def shards_of(digests: np.ndarray, shards: np.ndarray | int) -> np.ndarray:
    """The number of the shard of each document, by the second half of its hash.

    Args:
      digests: uint8 [n, 16], of what routes the documents; see ROUTED_BY_DIGEST.
      shards: number of shards of the split, or of that of each document, int64 [n].

    Returns:
      int64 [n].
    """
    low = np.ascontiguousarray(digests[:, 8:]).view(">u8").reshape(-1).astype(np.uint64)
    return (low % np.asarray(shards).astype(np.uint64)).astype(np.int64)


def largest_row_documents(rows: int, segments: int, documents: int) -> int:
    """An upper bound of a file's bytes."""
    return _HEAD.size + DIGEST_BYTES * documents + 2 * _MOST * (rows + segments)


class RowDocuments:
    """A file of the documents of a shard's rows; it may come from an untrusted source.

    Attributes:
      path: its path.
      rows: R.
      digests: uint8 [D, 16], the documents' hashes.
    """

    def __init__(self, path: str):
        """Maps the file, and compares its counts with its size.

        Raises:
          DataError: it is missing, cannot be read, is damaged or is no such file.
        """
        self.path = path
        try:
            with open(path, "rb") as file:
                head = file.read(_HEAD.size)
                size = file.seek(0, 2)
            if len(head) < _HEAD.size or not head.startswith(_MAGIC):
                raise self._damaged("does not begin as such a file does")
            content = np.memmap(path, np.uint8, "r").view(np.ndarray)
        except FileNotFoundError as error:
            raise DataError(f"{path} is missing, although the manifest lists it") from error
        except OSError as error:
            raise describe_refusal(path, error) from error
        _, rows, lists, segments, documents, step, *widths = _HEAD.unpack(head)
        if not (max(widths) <= _MOST and 0 < step <= _MOST_STEP):
            raise self._damaged(f"has numbers of {widths} bytes in units of {step}")
        counts = (
            0 if rows == lists else rows,
            lists,
            0 if segments == documents else segments,
            segments,
        )
        sizes = [count * width for count, width in zip(counts, widths)]
        due = _HEAD.size + DIGEST_BYTES * documents + sum(sizes)
        if size != due:
            raise self._damaged(f"has {size:,} bytes, but its counts take {due:,}")
        if not (lists <= rows and documents <= segments and lists <= segments) or any(
            count and not width for count, width in zip(counts[::2], widths[::2])
        ):
            raise self._damaged(
                f"has {lists:,} lists of {segments:,} segments for {rows:,} rows and "
                f"{documents:,} documents"
            )
        self.rows, self._lists, self._segments, self._step = rows, lists, segments, step
        ends = np.cumsum([_HEAD.size, DIGEST_BYTES * documents, *sizes]).tolist()
        self.digests = content[ends[0] : ends[1]].reshape(-1, DIGEST_BYTES)
        self._list_R, self._length_G, self._document_S, self._first_S = (
            content[start:stop].reshape(-1, width) if width else None
            for start, stop, width in zip(ends[1:], ends[2:], widths)
        )
        self._bounds = self._read_bounds()

    def documents_of(self, rows: np.ndarray) -> RowSegments:
        """The segments of the rows with these indices, in their order.

        Raises:
          DataError: the file is damaged.
          IndexError: the shard does not have a row.
        """
        rows = np.asarray(rows, np.int64)
        if len(rows) and not 0 <= rows.min() <= rows.max() < self.rows:
            raise IndexError(f"{self.path} has {self.rows:,} rows")
        lists = self._lists_of(rows)
        starts = self._bounds[lists]
        lengths = self._bounds[lists + 1] - starts
        row_S = np.repeat(np.arange(len(rows)), lengths)
        within = np.arange(len(row_S)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        at = starts[row_S] + within
        return RowSegments(row_S, self._documents_at(at), _wide(self._first_S, at) * self._step)

    def rows_of(self, digest: bytes) -> np.ndarray:
        """The rows that hold a document, which may be none: int64, ascending.

        Raises:
          DataError: the file is damaged.
        """
        return np.array(self.find_documents(Digests(digest)).get(digest, []), np.int64)

    def find_documents(self, listed: Digests) -> dict[bytes, list[int]]:
        """The rows of each listed document that the file has, ascending, all found in one pass.

        Raises:
          DataError: the file is damaged.
        """
        chosen = listed.find(self.digests)
        if not len(chosen):
            return {}
        is_chosen = np.zeros(len(self.digests), bool)
        is_chosen[chosen] = True
        segments = np.flatnonzero(is_chosen[self._documents_at(np.arange(self._segments))])
        rows = np.unique(np.searchsorted(self._bounds, segments, side="right") - 1)
        if self._lists != self.rows:
            rows = np.flatnonzero(np.isin(self._lists_of(np.arange(self.rows)), rows))
        found = self.documents_of(rows)
        here = is_chosen[found.document_S]
        rows_of: dict[int, dict[int, None]] = {number: {} for number in chosen.tolist()}
        pairs = zip(found.document_S[here].tolist(), rows[found.row_S[here]].tolist())
        for number, row in pairs:  # a row may hold a document more than once
            rows_of[number][row] = None
        return {self.digests[number].tobytes(): list(rows) for number, rows in rows_of.items()}

    def lists_of(self, rows: np.ndarray) -> np.ndarray:
        """The list of each of these rows, int64; masked copies of a row have the same.

        Raises:
          DataError: the file is damaged.
        """
        return self._lists_of(np.asarray(rows, np.int64))

    def _lists_of(self, rows: np.ndarray) -> np.ndarray:
        if self._lists == self.rows:
            return rows
        return self._below(_wide(self._list_R, rows), self._lists, "list")

    def _documents_at(self, segments: np.ndarray) -> np.ndarray:
        if self._segments == len(self.digests):
            return segments
        return self._below(_wide(self._document_S, segments), len(self.digests), "document")

    def _read_bounds(self) -> np.ndarray:
        bounds = np.arange(self._lists + 1)
        if self._length_G is not None:
            bounds[1:] += np.cumsum(_wide(self._length_G, np.arange(self._lists)))
        if bounds[-1] != self._segments:
            raise self._damaged(
                f"has lists of {bounds[-1]:,} segments, but counts {self._segments:,}"
            )
        return bounds

    def _below(self, values: np.ndarray, count: int, what: str) -> np.ndarray:
        if len(values) and int(values.max()) >= count:
            raise self._damaged(f"refers to {what} {int(values.max()):,} of {count:,}")
        return values

    def _damaged(self, what: str) -> DataError:
        return DataError(f"{self.path} {what}: it is damaged; copy or build the dataset again")


def _narrow(values: np.ndarray, least: int = 0) -> np.ndarray:
    """Numbers as bytes, uint8 [n, width], the lowest first; the width is at least `least`."""
    width = max(least, -(-int(values.max(initial=0)).bit_length() // 8))
    if width > _MOST:
        raise ValueError(f"{values.max()} does not fit {_MOST} bytes")
    # Contiguous, so that a mapped file is read in one go.
    return np.ascontiguousarray(values.astype("<u4").view(np.uint8).reshape(-1, 4)[:, :width])


def _wide(column: np.ndarray | None, indices: np.ndarray) -> np.ndarray:
    """The numbers with these indices, int64 [n], of a column that `_narrow` made; None: zeros."""
    values = np.zeros((len(indices), 4), np.uint8)
    if column is not None:
        values[:, : column.shape[1]] = column[indices]
    return values.view("<u4")[:, 0].astype(np.int64)
