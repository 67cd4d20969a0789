"""Writes the files of a partition: its documents, and its near-duplicates."""

import io
import os
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from textmill.pipelines.corpus.ancestors import find_known, load_older
from textmill.pipelines.corpus.counting import drop_rows, text_lengths
from textmill.pipelines.corpus.field_counts import count_fields
from textmill.pipelines.corpus.job import CorpusJob, CorpusReport
from textmill.pipelines.corpus.near_duplicates.rows import REMOVED, distinct, take_rows
from textmill.pipelines.corpus.options import PARAGRAPHS, Paragraphs
from textmill.pipelines.corpus.paragraphs import remove_paragraphs
from textmill.pipelines.corpus.partition import digests_of
from textmill.pipelines.rows.routing import json_of
from textmill.pipelines.writers import shard_files
from textmill.schemas.files import store
from textmill.schemas.format.corpus_metadata import (
    DOCUMENTS,
    FILLED,
    OLDER_DUPLICATES,
    CorpusSchema,
    CorpusStatistics,
    FileStatistics,
    bins_of,
)
from textmill.schemas.format.drops import Funnel, total_observed
from textmill.schemas.format.manifest import ManifestFile

_GROUP_BYTES = 16 << 20  # of text in a row group, which becomes a block when it is read
_ZSTD_LEVEL = 3


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
    added = dict.fromkeys(job.filters.added(), len(batch))
    counts = FileStatistics(
        documents=len(batch),
        text_bytes=int(text_lengths(batch["text"]).sum()),
        words=int(words.sum()),
    )
    return CorpusReport(
        files=(stage_file(job.staging, name, DOCUMENTS, content, len(batch)),),
        statistics=CorpusStatistics(
            observed=total_observed((count_fields(batch, kept), {FILLED: added} if added else {})),
            files={name: counts},
            lengths=bins_of(words),
        ),
    )


def remove_known(
    batch: pa.RecordBatch, number: int, job: CorpusJob
) -> tuple[pa.RecordBatch, np.ndarray, CorpusReport]:
    """Removes documents that older corpora have from the partition `number`.

    Returns the others; the hashes of the removed ones, uint8 [n, 16]; the report.
    """
    digests = digests_of(batch)
    known = find_known(digests, number, job.partitions, load_older(job.against))
    statistics = drop_rows(batch, OLDER_DUPLICATES, known.astype(np.int64))
    kept = batch.filter(pa.array(~known))
    return kept, digests[known], CorpusReport(statistics=statistics)


def list_known(digests: np.ndarray, number: int, job: CorpusJob) -> CorpusReport:
    """Stages the file that lists removed documents of older corpora: uint8 [n, 16]."""
    name = job.schema.older_names()[number]
    ids = hex_ids(digests.take(np.argsort(digests.view("S16").reshape(-1)), axis=0))
    columns = {"id": ids, "representative": ids, "similarity": pa.array(np.ones(len(digests)))}
    content = _parquet(pa.table(columns))
    return CorpusReport(
        files=(stage_file(job.staging, name, OLDER_DUPLICATES, content, len(digests)),)
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
    file = replace(shard_files.describe_file(name, content), split=split, rows=rows)
    store.write_file(os.path.join(staging, shard_files.staged_name(file)), content)
    return file
