"""Removes paragraphs that occur in many documents from all but the first (steps). Pure.

    partition -> paragraphs by hash -> those in more than N documents -> edits, by partition

The first document is the one with the smallest hash, so the order of the input does not matter.
CCNet (Wenzek et al., 2020, arXiv:1911.00359) and Dolma (Soldaini et al., 2024, arXiv:2402.00159)
find such paragraphs with hash tables and Bloom filters; a shuffle of 128-bit hashes finds them all,
and removes a wrong one only if two hashes collide.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from textmill.pipelines.corpus.near_duplicates.rows import (
    batches_by_key,
    differs,
    distinct,
    take_rows,
)
from textmill.pipelines.corpus.options import Paragraphs
from textmill.pipelines.corpus.partition import (
    binaries,
    digests_of,
    find_rows,
    join_equal,
    with_one_copy,
)
from textmill.pipelines.readers.documents import take_slices
from textmill.pipelines.rows.routing import content_digests
from textmill.pipelines.rows.text_bytes import count_words, utf8_bytes
from textmill.pipelines.runtime.imports import pc
from textmill.schemas.format.corpus_metadata import partition_of

_NEWLINE = 10
_BLANKS = np.isin(np.arange(256), list(b" \t\r\v\f\n"))
# Hash of the paragraph, hash of the document, and number of the paragraph in the document.
PARAGRAPH = np.dtype([("hash", "V16"), ("document", "V16"), ("number", "<u4")])


def paragraph_spans(text: pa.LargeStringArray, unit: str) -> tuple[np.ndarray, ...]:
    """Finds paragraphs, without the white space around them.

    Args:
      text: large_string [n], the documents.
      unit: paragraph or line.

    Returns:
      data: uint8, the bytes of all documents.
      starts, stops: int64 [paragraphs], bounds of each paragraph in `data`.
      document: int64 [paragraphs], the document of each paragraph.
    """
    data, bounds = utf8_bytes(text)
    is_end = data == _NEWLINE
    is_text = ~_BLANKS[data]
    text_at = np.flatnonzero(is_text)
    if not len(text_at):
        none = np.zeros(0, np.int64)
        return data, none, none, none
    # A paragraph begins at the first text of a document, and at text after a blank line, which is
    # two line ends; a line begins after one.
    ends_before = np.cumsum(is_end)[text_at]
    document_of = np.searchsorted(bounds, text_at, side="right") - 1
    least = 1 if unit == "line" else 2
    begins = np.ones(len(text_at), bool)
    begins[1:] = (np.diff(ends_before) >= least) | (np.diff(document_of) > 0)
    first = np.flatnonzero(begins)
    starts = text_at[first]
    stops = text_at[np.append(first[1:], len(text_at)) - 1] + 1
    return data, starts, stops, document_of[first]


def list_paragraphs(batch: pa.RecordBatch, rule: Paragraphs) -> np.ndarray:
    """Lists the paragraphs of a partition's documents, as PARAGRAPH rows."""
    data, starts, stops, document = paragraph_spans(batch["text"], rule.unit)
    rows = np.zeros(len(starts), PARAGRAPH)
    if not len(starts):
        return rows
    rows["hash"] = content_digests(take_slices(data, starts, stops)).view("V16").reshape(-1)
    rows["document"] = np.ascontiguousarray(digests_of(batch)).view("V16").reshape(-1)[document]
    first = np.flatnonzero(np.diff(document, prepend=-1))
    sizes = np.diff(np.append(first, len(document)))
    rows["number"] = np.arange(len(document)) - np.repeat(first, sizes)
    return rows


def send_paragraphs(rows: np.ndarray, partitions: int) -> Iterable[tuple[int, pa.RecordBatch]]:
    """Groups paragraphs by the partition of their own hash."""
    return batches_by_key(rows, partition_of(_bytes_of(rows["hash"]), partitions))


def _bytes_of(hashes: np.ndarray) -> np.ndarray:
    """V16 [n] -> uint8 [n, 16]."""
    return np.ascontiguousarray(hashes).view(np.uint8).reshape(-1, 16)


def find_repeated(
    streams: list[bytes], most: int, partitions: int
) -> Iterable[tuple[int, pa.RecordBatch]]:
    """Finds paragraphs in more than `most` documents; groups all but the first by partition."""
    rows = distinct(take_rows(streams, PARAGRAPH))
    if not len(rows):
        return []
    is_new = differs(rows["hash"])
    group = np.cumsum(is_new) - 1
    documents = np.bincount(group, differs(rows["hash"], rows["document"]))
    chosen = rows[(documents[group] > most) & ~is_new]
    return batches_by_key(chosen, partition_of(_bytes_of(chosen["document"]), partitions))


@dataclass(frozen=True)
class Edited:
    """A partition without its repeated paragraphs.

    Attributes:
      unchanged: rows that lost no paragraph.
      changed: rows with new text and hashes, which may belong to other partitions; None if empty.
      emptied: original rows of documents that lost all their text.
      documents: number of changed documents, before edits made some equal.
      bytes_lost: bytes that changed documents lost.
      words_lost: words that changed documents lost.
    """

    unchanged: pa.RecordBatch
    changed: pa.RecordBatch | None
    emptied: pa.RecordBatch
    documents: int
    bytes_lost: int
    words_lost: int


def remove_paragraphs(batch: pa.RecordBatch, streams: list[bytes], rule: Paragraphs) -> Edited:
    """Removes the paragraphs that `find_repeated` found, with the lines that follow each."""
    removed = take_rows(streams, PARAGRAPH)
    row_R = find_rows(batch, _bytes_of(removed["document"]))
    order = np.lexsort((removed["number"], row_R))
    row_R, number_R = row_R[order], removed["number"][order]
    rows, firsts = np.unique(row_R, return_index=True)
    before = batch.take(pa.array(rows))
    texts = [
        _without(before["text"].slice(i, 1), set(numbers.tolist()), rule.unit)
        for i, numbers in enumerate(np.split(number_R, firsts[1:]) if len(rows) else [])
    ]
    after = pa.array(texts, pa.large_string())
    is_left = pc.greater(pc.binary_length(after), 0)
    untouched = np.delete(np.arange(len(batch)), rows)
    emptied = before.filter(pc.invert(is_left))
    left, text = before.filter(is_left), after.filter(is_left)
    lost = pc.sum(pc.subtract(pc.binary_length(left["text"]), pc.binary_length(text))).as_py() or 0
    words = count_words(text)
    words_lost = int(left["words"].to_numpy().sum() - words.sum())
    changed = None
    if len(left):
        digests = content_digests(text)
        columns = dict(zip(left.schema.names, left.columns, strict=True))
        columns |= {"digest": binaries(digests), "text": text, "words": pa.array(words)}
        changed = join_equal(with_one_copy(pa.record_batch(columns)))
    unchanged = with_one_copy(batch.take(pa.array(untouched)))
    return Edited(unchanged, changed, emptied, len(left), int(lost), words_lost)


def _without(text: pa.LargeStringArray, numbers: set[int], unit: str) -> str:
    """The text of one document without the paragraphs with these numbers."""
    data, starts, stops, _ = paragraph_spans(text, unit)
    content = data.tobytes()
    # A paragraph begins with its indentation, and ends with the lines that follow it.
    begins = [0, *(content.rindex(b"\n", 0, start) + 1 for start in starts[1:].tolist())]
    ends = [*begins[1:], len(content)]
    kept = [i for i in range(len(starts)) if i not in numbers]
    if not kept:
        return ""
    pieces = [content[begins[i] : ends[i]] for i in kept]
    if kept[-1] != len(starts) - 1:  # cuts the separator at the end
        pieces[-1] = content[begins[kept[-1]] : int(stops[kept[-1]])]
    return b"".join(pieces).decode()
