"""The documents that a model of quality is trained on and evaluated with."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from textmill.pipelines.quality.options import QualityOptions
from textmill.pipelines.readers.documents import Documents, Role
from textmill.pipelines.readers.sources import Source, plan_blocks, read_block
from textmill.pipelines.rows.routing import content_digests
from textmill.pipelines.runtime.imports import pc
from textmill.schemas.errors import DataError, UsageError, flag


@dataclass(frozen=True)
class Labelled:
    """Documents sorted by hash, each once.

    Attributes:
      text: large_string [n].
      digests: uint8 [n, 16].
      good: bool [n].
      read: number of documents that were read.
      duplicates: number that equal another one with the same label.
      contradicted: number of different texts with both labels, which are skipped.
      rejected: number that could not be read.
    """

    text: pa.LargeStringArray
    digests: np.ndarray
    good: np.ndarray
    read: int = 0
    duplicates: int = 0
    contradicted: int = 0
    rejected: int = 0

    def take(self, chosen: np.ndarray) -> "Labelled":
        """The documents with these numbers."""
        text = self.text.take(pa.array(chosen))
        return Labelled(text, self.digests[chosen], self.good[chosen])

    def is_held_out(self, share: float) -> np.ndarray:
        """Bool [n]: documents for evaluation, by their hash."""
        parts = np.ascontiguousarray(self.digests[:, 8:12]).view("<u4").reshape(-1)
        return parts < np.uint32(share * 2.0**32)


def read_labelled(options: QualityOptions) -> Labelled:
    """Reads all documents.

    Raises:
      UsageError: no document, or no other one, has the label of good ones.
      DataError: the inputs are damaged or empty, or too many documents are rejected.
    """
    texts: list[pa.Array] = []
    good: list[np.ndarray] = []
    rejected = 0
    for documents, is_good in _pieces(options):
        rejected += len(documents.rejects) + sum(documents.unusable.values())
        if 0 <= options.reading.max_rejects < rejected:
            first = documents.rejects[0] if documents.rejects else None
            place = f", such as {first.place}: {first.reason}" if first else ""
            raise DataError(
                f"{rejected:,} documents are rejected{place}: mend them, or raise "
                f"{flag('max_rejects')}"
            )
        texts.append(documents.text)
        good.append(is_good)
    text, is_good = pa.concat_arrays(texts), np.concatenate(good)
    digests = content_digests(text)
    halves = digests.view(">u8").reshape(-1, 2)
    order = np.lexsort((is_good, halves[:, 1], halves[:, 0]))
    digests, is_good = digests[order], is_good[order]
    is_new = np.ones(len(order), bool)
    is_new[1:] = (digests[1:] != digests[:-1]).any(axis=1)
    starts = np.flatnonzero(is_new)
    votes = np.add.reduceat(is_good.astype(np.int64), starts) if len(starts) else starts
    sizes = np.diff(np.append(starts, len(order)))
    is_clear = (votes == 0) | (votes == sizes)
    chosen = starts[is_clear]
    found = Labelled(
        text.take(pa.array(order[chosen])),
        digests[chosen],
        is_good[chosen],
        read=len(order) + rejected,
        duplicates=int((sizes - 1)[is_clear].sum()),
        contradicted=int(np.count_nonzero(~is_clear)),
        rejected=rejected,
    )
    _check_both(found, options)
    return found


def _pieces(options: QualityOptions) -> Iterator[tuple[Documents, np.ndarray]]:
    """Documents, and whether each is good."""
    text = Role("text", "string", options.text_field)
    if options.label_field:
        label = Role("label", "label", options.label_field)
        for piece in _read(options.reading.source((text, label))):
            is_good = pc.equal(piece.columns["label"], options.good_label)
            yield piece, is_good.to_numpy(zero_copy_only=False).astype(bool)
        return
    for field, paths in (("good", options.good), ("other", options.other)):
        for piece in _read(options.reading.source((text,), field=field, patterns=paths)):
            yield piece, np.full(len(piece.text), field == "good")


def _read(source: Source) -> Iterator[Documents]:
    for block in plan_blocks(source):
        yield from read_block(block, source)


def _check_both(found: Labelled, options: QualityOptions) -> None:
    number = int(np.count_nonzero(found.good))
    for count, what in ((number, "good"), (len(found.good) - number, "other")):
        if count < 2:
            cause = f"{flag('good_label', options.good_label)}: " if options.good_label else ""
            raise UsageError(
                f"{cause}{count} of {len(found.good):,} different documents "
                f"{'is' if count == 1 else 'are'} {what}: at least 2 good and 2 other ones are "
                "needed"
            )
