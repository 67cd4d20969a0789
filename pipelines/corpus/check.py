"""Re-reads a whole finished corpus, for `pipelines.verify`."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pipelines.corpus.metadata import BINS, FILLED, Corpus, FileStatistics, bins_of, read_corpus
from pipelines.corpus.partition import SOURCE, partition_of
from pipelines.corpus.words import count_words
from pipelines.host.arrow import pc
from pipelines.readers.documents import Documents, Role
from pipelines.readers.sources import MOST_DOCUMENT_BYTES, Source, plan_blocks, read_block
from pipelines.rows.routing import content_digests
from pipelines.storage import store
from schemas.errors import DataError, TextmillError
from schemas.manifest import MANIFEST, ManifestFile

_NO_ID = bytes(16)


@dataclass
class CorpusFindings:
    """The result of `check_corpus`.

    Attributes:
      problems: a sentence for each, which names the file.
      documents: number of documents that were read.
    """

    problems: list[str] = field(default_factory=list)
    documents: int = 0


def check_corpus(directory: str) -> CorpusFindings:
    """Checks the sha256 of every file, and the id, file and counts of every document.

    Raises:
      DataError: the directory is no corpus, or its metadata files contradict each other.
    """
    corpus, findings = read_corpus(directory), CorpusFindings()
    for file in corpus.manifest.files:
        if store.sha256(os.path.join(directory, file.path)) != file.sha256:
            findings.problems.append(f"{file.path}: its sha256 is not the one in {MANIFEST}")
    if not findings.problems:
        findings.problems += list(_check_documents(corpus, findings))
        for file in corpus.manifest.files:
            if file.split not in (None, "documents") and not findings.problems:
                findings.problems += list(_check_removed(corpus, file))
    return findings


def _check_documents(corpus: Corpus, findings: CorpusFindings) -> Iterator[str]:
    last, lengths = _NO_ID, np.zeros(BINS, np.int64)
    fields = [name for name in corpus.schema.columns[2:] if name not in SOURCE]
    filled: Counter[str] = Counter()
    for number, file in enumerate(corpus.documents):
        counts = FileStatistics()
        try:
            for documents in _read(corpus, file, corpus.schema.columns):
                if documents.rejects or documents.empty:
                    first = documents.rejects[0].detail if documents.rejects else "no id"
                    raise DataError(f"a document cannot be read: {first}")
                ids, text = documents.columns["id"], documents.columns["text"]
                digests = content_digests(text)
                last = _check_order(ids, digests, last)
                if (partition_of(digests, corpus.schema.files) != number).any():
                    raise DataError("the id of a document belongs to another file")
                words = count_words(text)
                lengths += np.array(bins_of(words))
                for name in fields:
                    sizes = pc.binary_length(documents.columns[name]).to_numpy()
                    filled[name] += int(np.count_nonzero(sizes))
                counts = FileStatistics(
                    counts.documents + len(ids),
                    counts.text_bytes + int(pc.sum(pc.binary_length(text)).as_py() or 0),
                    counts.words + int(words.sum()),
                    corpus.stats.files[file.path].near_duplicates,
                )
        except TextmillError as error:
            yield f"{file.path}: {error}"
            continue
        findings.documents += counts.documents
        if counts != corpus.stats.files[file.path]:
            yield f"{file.path} has {counts}, but stats.json {corpus.stats.files[file.path]}"
    counted = {name: number for name, number in filled.items() if number}
    if not findings.problems and counted != corpus.stats.observed.get(FILLED, {}):
        yield f"stats.json: {FILLED} is not {counted}"
    if not findings.problems and tuple(lengths.tolist()) != corpus.stats.lengths:
        yield f"stats.json: lengths are {corpus.stats.lengths}, not {tuple(lengths.tolist())}"


def _check_order(ids: pa.LargeStringArray, digests: np.ndarray, last: bytes) -> bytes:
    """Checks that ids are the hashes of the texts and ascend; returns the last one."""
    if not len(digests):
        return last
    if pc.unique(pc.binary_length(ids)).to_pylist() != [32]:
        raise DataError("an id does not have 32 hexadecimal digits")
    try:
        stored = bytes.fromhex("".join(ids.to_pylist()))
    except ValueError as error:
        raise DataError("an id does not have 32 hexadecimal digits") from error
    if stored != digests.tobytes():
        raise DataError("an id is not the hash of its text")
    halves = digests.view(">u8").reshape(-1, 2).astype(np.uint64)
    high, low = halves[:, 0], halves[:, 1]
    grows = (high[1:] > high[:-1]) | ((high[1:] == high[:-1]) & (low[1:] > low[:-1]))
    if not grows.all() or (last != _NO_ID and digests[0].tobytes() <= last):
        raise DataError("ids are not in strictly ascending order")
    return digests[-1].tobytes()


def _check_removed(corpus: Corpus, file: ManifestFile) -> Iterator[str]:
    """Checks that no near-duplicate listed as removed is in the corpus."""
    number = corpus.schema.removed_names().index(file.path)
    documents = corpus.documents[number]
    try:
        removed = _ids(corpus, file, "id")
        kept = _ids(corpus, documents, "id")
    except TextmillError as error:
        yield f"{file.path}: {error}"
        return
    # Without repeated paragraphs, a kept document may have the text of a removed one.
    is_edited = "duplicate_paragraphs" in corpus.schema.parameters
    if not is_edited and pc.any(pc.is_in(removed, value_set=kept)).as_py():
        yield f"{file.path}: a removed document is in {documents.path}"
    if len(removed) != file.rows or len(pc.unique(removed)) != len(removed):
        yield f"{file.path}: it does not list {file.rows:,} different documents"


def _ids(corpus: Corpus, file: ManifestFile, column: str) -> pa.LargeStringArray:
    pieces = [piece.columns[column] for piece in _read(corpus, file, (column,))]
    return pa.concat_arrays([pa.array([], pa.large_string()), *pieces])


def _read(corpus: Corpus, file: ManifestFile, columns: tuple[str, ...]) -> Iterator[Documents]:
    return read_rows(os.path.join(corpus.directory, file.path), file.rows or 0, columns)


def read_rows(path: str, rows: int, columns: tuple[str, ...]) -> Iterator[Documents]:
    """Yields the rows of one file of a corpus, in pieces.

    Args:
      path: the file, parquet or jsonl.zst.
      rows: number of rows in the file.
      columns: columns to read; the first has no empty value.

    Raises:
      DataError, UsageError: the file cannot be read, or lacks a column.
    """
    if not rows:
        return
    kept = tuple(Role(name, "field", name) for name in columns[1:])
    roles = (Role(columns[0], "string", columns[0]), *kept)
    source = Source((path,), roles=roles, max_document_bytes=MOST_DOCUMENT_BYTES)
    for block in plan_blocks(source):
        yield from read_block(block, source)
