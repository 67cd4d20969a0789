"""Counts what rules and deduplication remove from the documents of build_corpus. Pure."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from textmill.pipelines.corpus.filter_documents import Filtered
from textmill.pipelines.corpus.near_duplicates.rows import differs
from textmill.pipelines.rows.routing import content_digests
from textmill.pipelines.rows.text_bytes import count_words
from textmill.pipelines.runtime.imports import pc
from textmill.schemas.format.corpus_metadata import CorpusStatistics
from textmill.schemas.format.drops import (
    LONGEST,
    SAMPLES,
    DroppedDocument,
    Funnel,
    Observed,
    Removed,
    drop_of,
    shorten,
    total_counts,
    total_observed,
)


def count_piece(filtered: Filtered, words: int, pages: Observed) -> CorpusStatistics:
    """Counts what was read from a piece of a block, and what rules filtered, edited and kept.

    Args:
      filtered: the piece.
      words: of the kept documents.
      pages: counts of its web pages.
    """
    texts_before, kept = filtered.before["text"], filtered.documents.text
    dropped = list(filtered.reasons)
    texts = texts_before.take(pa.array(dropped, pa.int64()))
    sizes = text_lengths(texts), count_words(texts)
    removed = count_removed(list(filtered.reasons.values()), texts, *sizes)
    edited_bytes, edited_words = 0, 0
    if filtered.observed.get("edited"):
        before = texts_before.take(pa.array(np.delete(np.arange(len(texts_before)), dropped)))
        is_edited = pc.not_equal(before, kept)
        before, after = before.filter(is_edited), kept.filter(is_edited)
        edited_bytes = int(text_lengths(before).sum() - text_lengths(after).sum())
        edited_words = int(count_words(before).sum() - count_words(after).sum())
    return CorpusStatistics(
        documents_read=filtered.read,
        source_bytes=filtered.documents.source_bytes,
        dropped=filtered.dropped,
        observed=total_observed((filtered.documents.observed, pages, filtered.observed)),
        funnel=Funnel(
            documents=len(texts_before),
            text_bytes=int(text_lengths(texts_before).sum()),
            words=words + edited_words + int(sizes[1].sum()),
            edited_bytes=edited_bytes,
            edited_words=edited_words,
            removed=removed,
        ),
    )


def count_removed(
    reasons: Sequence[str],
    texts: pa.LargeStringArray,
    bytes_N: np.ndarray,
    words_N: np.ndarray,
    copies_N: np.ndarray | None = None,
    details: Sequence[str] | None = None,
) -> dict[str, Removed]:
    """Adds up N removed documents by reason, and takes samples of each reason.

    Args:
      reasons: reason of each document.
      texts: text of each document.
      bytes_N: int64, UTF-8 bytes of each text.
      words_N: int64, words of each text.
      copies_N: int64, number of documents that each one stands for; None for 1 each.
      details: remark on each document, such as the one that it is similar to.
    """
    if not reasons:
        return {}
    copies_N = np.ones(len(reasons), np.int64) if copies_N is None else copies_N
    digests = content_digests(texts)
    halves = digests.view(">u8").reshape(-1, 2)
    names, code_N = np.unique(list(reasons), return_inverse=True)
    removed = {}
    for code, name in enumerate(names.tolist()):
        own = np.flatnonzero(code_N == code)
        own = own[np.lexsort((halves[own, 1], halves[own, 0]))]
        samples = tuple(
            DroppedDocument(
                digests[row].tobytes().hex(),
                shorten(pc.utf8_slice_codeunits(texts.slice(row, 1), 0, LONGEST + 1)[0].as_py()),
                details[int(row)] if details is not None else "",
            )
            for row in own[differs(*halves[own].T)][: SAMPLES * drop_of(name).is_sampled].tolist()
        )
        removed[name] = Removed(
            documents=int(copies_N[own].sum()),
            text_bytes=int((copies_N * bytes_N)[own].sum()),
            words=int((copies_N * words_N)[own].sum()),
            samples=samples,
        )
    return removed


def drop_rows(
    batch: pa.RecordBatch, reason: str, dropped_N: np.ndarray, details: Sequence[str] | None = None
) -> CorpusStatistics:
    """Counts documents that are dropped after the shuffle.

    Args:
      batch: a partition, or rows of it.
      reason: the reason for all of them.
      dropped_N: int64, number of documents dropped from each row; a row stands for equal documents.
      details: remark on each row with a dropped document, see `count_removed`.
    """
    rows = np.flatnonzero(dropped_N)
    texts = batch["text"].take(pa.array(rows))
    removed = count_removed(
        [reason] * len(rows),
        texts,
        text_lengths(texts),
        batch["words"].to_numpy()[rows],
        dropped_N[rows],
        details,
    )
    return CorpusStatistics(
        dropped=total_counts({reason: int(dropped_N.sum())}), funnel=Funnel(removed=removed)
    )


def text_lengths(text: pa.LargeStringArray) -> np.ndarray:
    """int64 [n]: UTF-8 bytes of each text."""
    return pc.binary_length(text).to_numpy().astype(np.int64)
