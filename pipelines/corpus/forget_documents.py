"""Applies the rules of build_corpus to the documents that --forget does not list."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from textmill.pipelines.corpus.counting import count_removed, drop_rows, text_lengths
from textmill.pipelines.corpus.decontamination.matches import Finder
from textmill.pipelines.corpus.filter_documents import Filtered, LoadedFilters
from textmill.pipelines.corpus.partition import digests_of
from textmill.pipelines.readers.documents import Documents
from textmill.pipelines.readers.forget import REASON, Found, find_documents, without
from textmill.pipelines.rows.routing import content_digests
from textmill.pipelines.rows.text_bytes import count_words
from textmill.schemas.format.corpus_metadata import CorpusStatistics
from textmill.schemas.format.digests import Digests
from textmill.schemas.format.drops import Funnel


@dataclass(frozen=True)
class Forgotten:
    """The documents that were forgotten, and the others.

    Attributes:
      filtered: the others, after the rules.
      found: those that were forgotten.
      statistics: counts of them.
    """

    filtered: Filtered
    found: Found = Found()
    statistics: CorpusStatistics = field(default_factory=CorpusStatistics)


def filter_others(
    filters: LoadedFilters,
    documents: Documents,
    listed: Digests | None,
    finder: Finder | None = None,
) -> Forgotten:
    """Filters the documents that are not listed, as if the others were not in the input.

    A document is listed by the hash of its text as it is read, in its normal form, where a rule
    finds evaluation text in it, or after all rules.
    """
    filtered = filters.apply(documents, finder)
    if listed is None:
        return Forgotten(filtered)
    left = np.delete(np.arange(len(documents.text)), list(filtered.reasons))
    in_hits = [bytes.fromhex(hit.document) for hit in filtered.hits]
    found = (
        find_documents(listed, content_digests(documents.text))
        | find_documents(listed, content_digests(filtered.before.column(0)))
        | find_documents(listed, content_digests(filtered.documents.text), left)
        | find_documents(
            listed,
            np.frombuffer(b"".join(in_hits), np.uint8).reshape(-1, 16),
            np.array(filtered.hit_numbers, np.int64),
        )
    )
    if not found.numbers:
        return Forgotten(filtered)
    numbers = sorted(found.numbers)
    texts = filtered.before.column(0).take(pa.array(numbers))
    lengths, words = text_lengths(texts), count_words(texts)
    funnel = Funnel(
        documents=len(numbers),
        text_bytes=int(lengths.sum()),
        words=int(words.sum()),
        removed=count_removed([REASON] * len(numbers), texts, lengths, words),
    )
    statistics = CorpusStatistics(
        documents_read=len(numbers), dropped={REASON: len(numbers)}, funnel=funnel
    )
    return Forgotten(filters.apply(without(documents, found.numbers), finder), found, statistics)


def forget_rows(
    batch: pa.RecordBatch, listed: Digests
) -> tuple[pa.RecordBatch, Found, CorpusStatistics]:
    """Removes listed documents from a partition whose edits gave them new hashes."""
    rows = listed.find(digests_of(batch))
    dropped_N = np.zeros(len(batch), np.int64)
    dropped_N[rows] = batch["copies"].to_numpy()[rows]
    names = {digests_of(batch)[row].tobytes().hex(): int(dropped_N[row]) for row in rows.tolist()}
    kept = batch.filter(pa.array(dropped_N == 0))
    found = Found(frozenset(rows.tolist()), names)
    return kept, found, drop_rows(batch, REASON, dropped_N)
