"""The settings of build_corpus' workers, the functions of its steps, and their reports."""

import hashlib
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from textmill.pipelines import store
from textmill.pipelines.corpus.decontamination.matches import Hit, add_hits
from textmill.pipelines.corpus.filter_documents import Filtered
from textmill.pipelines.corpus.filters import Filters
from textmill.pipelines.corpus.near_duplicates.flags import NearDuplicateRule
from textmill.pipelines.corpus.near_duplicates.rows import REMOVED, differs, distinct, take_rows
from textmill.pipelines.corpus.near_duplicates.steps import (
    Cluster,
    add_clusters,
)
from textmill.pipelines.corpus.options import PARAGRAPHS, Paragraphs
from textmill.pipelines.corpus.paragraphs import remove_paragraphs
from textmill.pipelines.corpus.partition import digests_of
from textmill.pipelines.host.imports import pc
from textmill.pipelines.readers.corpus_metadata import (
    DOCUMENTS,
    FILLED,
    CorpusSchema,
    CorpusStatistics,
    FileStatistics,
    bins_of,
)
from textmill.pipelines.readers.page_hosts import PageHosts
from textmill.pipelines.rows.routing import content_digests, json_of
from textmill.pipelines.rows.text_bytes import count_words
from textmill.pipelines.runners.block_run import BlockJob, BlockReport
from textmill.pipelines.writers import shard_files
from textmill.pipelines.writers.rejects import Stashed
from textmill.schemas.drops import (
    LONGEST,
    SAMPLES,
    DroppedDocument,
    Funnel,
    Removed,
    shorten,
    total_counts,
    total_observed,
)
from textmill.schemas.manifest import ManifestFile

_GROUP_BYTES = 16 << 20  # of text in a row group, which becomes a block when it is read
_ZSTD_LEVEL = 3


@dataclass(frozen=True, kw_only=True)
class CorpusJob(BlockJob):
    """The settings that every worker needs."""

    filters: Filters
    index: str | None = None  # path of the n-grams of evaluation texts
    schema: CorpusSchema
    output: str  # the directory of the corpus, which holds the staging folder
    keep_source: bool
    max_rejects: int  # the run fails if it rejects more; no limit below 0
    config: bytes  # content of config.yaml, which repeats the run
    near: NearDuplicateRule | None = None  # None if near-duplicates are kept
    paragraphs: Paragraphs | None = None  # None if repeated paragraphs are kept

    @property
    def is_staged(self) -> bool:
        """Whether later steps read partitions again."""
        return self.near is not None or self.paragraphs is not None

    @property
    def partitions(self) -> int:
        """Number of partitions: one for each file of the corpus."""
        return self.schema.files

    @property
    def keys(self) -> int:
        """The partitions."""
        return self.partitions


@dataclass(frozen=True, kw_only=True)
class CorpusReport(BlockReport):
    """The report of a bundle of blocks or of partitions."""

    ADDED = {"hits": lambda hits: add_hits(chain(*hits)), "clusters": add_clusters}

    statistics: CorpusStatistics = field(default_factory=CorpusStatistics)
    files: tuple[ManifestFile, ...] = ()
    hits: tuple[Hit, ...] = ()  # text that documents share with evaluation texts
    stashed: tuple[Stashed, ...] = ()  # filtered documents, with --keep_rejects
    clusters: tuple[Cluster, ...] = ()  # the largest clusters of near-duplicates
    hosts: PageHosts = field(default_factory=PageHosts)


def count_piece(filtered: Filtered) -> CorpusStatistics:
    """Counts what was read from a piece of a block, and what rules filtered, edited and kept."""
    texts_before, kept = filtered.before["text"], filtered.documents.text
    dropped = list(filtered.reasons)
    texts = texts_before.take(pa.array(dropped, pa.int64()))
    sizes = _lengths(texts), count_words(texts)
    removed = count_removed(list(filtered.reasons.values()), texts, *sizes)
    words, edited_bytes, edited_words = int(count_words(kept).sum()), 0, 0
    if filtered.observed.get("edited"):
        before = texts_before.take(pa.array(np.delete(np.arange(len(texts_before)), dropped)))
        is_edited = pc.not_equal(before, kept)
        before, after = before.filter(is_edited), kept.filter(is_edited)
        edited_bytes = int(_lengths(before).sum() - _lengths(after).sum())
        edited_words = int(count_words(before).sum() - count_words(after).sum())
    return CorpusStatistics(
        documents_read=filtered.read,
        source_bytes=filtered.documents.source_bytes,
        dropped=filtered.dropped,
        observed=total_observed((filtered.documents.observed, filtered.observed)),
        funnel=Funnel(
            documents=len(texts_before),
            text_bytes=int(_lengths(texts_before).sum()),
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
            for row in own[differs(*halves[own].T)][:SAMPLES].tolist()
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
        _lengths(texts),
        batch["words"].to_numpy()[rows],
        dropped_N[rows],
        details,
    )
    return CorpusStatistics(
        dropped=total_counts({reason: int(dropped_N.sum())}), funnel=Funnel(removed=removed)
    )


def _lengths(text: pa.LargeStringArray) -> np.ndarray:
    return pc.binary_length(text).to_numpy().astype(np.int64)


def encode_documents(batch: pa.RecordBatch, schema: CorpusSchema) -> bytes:
    """The file of a partition."""
    columns = {"id": hex_ids(digests_of(batch)), **{n: batch[n] for n in schema.columns[1:]}}
    return _ENCODERS[schema.file_format](pa.table(columns))


def write_documents(batch: pa.RecordBatch, number: int, job: CorpusJob) -> CorpusReport:
    """Stages the file of the partition `number`, and counts its documents."""
    name = job.schema.names()[number]
    content = encode_documents(batch, job.schema)
    words = batch["words"].to_numpy()
    kept = [role.name for role in job.source.roles[1:]]
    filled = {name: int(np.count_nonzero(_lengths(batch[name]))) for name in kept}
    counts = FileStatistics(
        documents=len(batch),
        text_bytes=int(_lengths(batch["text"]).sum()),
        words=int(words.sum()),
    )
    return CorpusReport(
        files=(stage_file(job.staging, name, DOCUMENTS, content, len(batch)),),
        statistics=CorpusStatistics(
            observed={FILLED: filled} if kept else {},
            files={name: counts},
            lengths=bins_of(words),
        ),
    )


def remove_near_duplicates(
    batch: pa.RecordBatch, streams: list[bytes], number: int, job: CorpusJob
) -> tuple[pa.RecordBatch, CorpusReport]:
    """Removes near-duplicates, the REMOVED rows of `streams`, and stages the file that lists them.

    Returns the kept rows and the report.
    """
    removed = distinct(take_rows(streams, REMOVED))
    rows = removed["row"].astype(np.int64)
    representatives = np.ascontiguousarray(removed["representative"]).view(np.uint8)
    gone = batch.take(pa.array(rows))
    columns = {
        "id": hex_ids(digests_of(gone)),
        "representative": hex_ids(representatives.reshape(-1, 16)),
        "similarity": pa.array(np.ascontiguousarray(removed["similarity"])),
        "text": gone["text"],
    }
    if not job.filters.keep_rejects:
        del columns["text"]
    file = stage_file(
        job.staging,
        job.schema.removed_names()[number],
        "near_duplicates",
        _parquet(pa.table(columns)),
        len(rows),
    )
    is_removed = np.zeros(len(batch), bool)
    is_removed[rows] = True
    names = columns["representative"].to_pylist()
    details = list(map(describe_near, removed["similarity"].tolist(), names))
    statistics = replace(
        drop_rows(batch, "near_duplicates", is_removed.astype(np.int64), details),
        files={job.schema.names()[number]: FileStatistics(near_duplicates=len(rows))},
    )
    kept = batch.filter(pa.array(~is_removed))
    return kept, CorpusReport(files=(file,), statistics=statistics)


def describe_near(similarity: float, representative: str) -> str:
    """The detail of a sample of near-duplicates."""
    return f"similarity {similarity:.3f} to {representative}"


def edit_paragraphs(
    batch: pa.RecordBatch, streams: list[bytes], rule: Paragraphs
) -> tuple[pa.RecordBatch, pa.RecordBatch | None, CorpusReport]:
    """Removes repeated paragraphs, the PARAGRAPH rows of `streams`, from a partition.

    Returns:
      The unchanged rows; the edited rows, which may belong to other partitions; the report.
    """
    edited = remove_paragraphs(batch, streams, rule)
    emptied = np.ones(len(edited.emptied), np.int64)
    parts = [drop_rows(edited.emptied, PARAGRAPHS, emptied)]
    if edited.changed:
        lost = edited.bytes_lost
        observed = {"edited": {PARAGRAPHS: edited.documents}, "edited_bytes": {PARAGRAPHS: lost}}
        funnel = Funnel(edited_bytes=lost, edited_words=edited.words_lost)
        parts.append(CorpusStatistics(observed=observed, funnel=funnel))
    report = CorpusReport(statistics=CorpusStatistics.sum(parts))
    return edited.unchanged, edited.changed, report


def hex_ids(digests: np.ndarray) -> pa.LargeStringArray:
    """Hashes as 32 hexadecimal digits, which sort as the hashes do: uint8 [n, 16] -> [n]."""
    nibbles = np.stack([digests >> 4, digests & 15], axis=2).reshape(-1)
    text = np.frombuffer(b"0123456789abcdef", np.uint8)[nibbles]
    bounds = np.arange(len(digests) + 1, dtype=np.int64) * 32
    return pa.LargeStringArray.from_buffers(
        len(digests), pa.py_buffer(bounds), pa.py_buffer(np.ascontiguousarray(text))
    )


def _parquet(table: pa.Table) -> bytes:
    rows = max(1, table.num_rows * _GROUP_BYTES // max(_GROUP_BYTES, table.nbytes))
    sink = io.BytesIO()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        compression_level=_ZSTD_LEVEL,
        row_group_size=rows,
        use_dictionary=[n for n in table.schema.names if n not in ("id", "text")],  # pyright: ignore
        write_statistics=["id"],  # pyright: ignore
        store_schema=False,
        write_page_checksum=True,
    )
    return sink.getvalue()


def _json_lines(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as file:
        for batch in table.to_batches(max_chunksize=10_000):
            lines = json_of(batch.to_struct_array(), in_ascii=False)
            file.write("".join(f"{line}\n" for line in lines.to_pylist()).encode())
    return sink.getvalue().to_pybytes()


_ENCODERS = {"parquet": _parquet, "jsonl": _json_lines}


def stage_file(staging: str, name: str, split: str, content: bytes, rows: int) -> ManifestFile:
    """Writes a file into the staging folder, from which it is published."""
    file = ManifestFile(name, len(content), hashlib.sha256(content).hexdigest(), split, rows)
    store.write_file(os.path.join(staging, shard_files.staged_name(file)), content)
    return file
