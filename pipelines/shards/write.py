"""Writes a shard into the staging folder, or reuses the one that an earlier run finished."""

from dataclasses import dataclass, field, replace

import numpy as np

from textmill.pipelines.rows.example_batch import KeptExamples
from textmill.pipelines.rows.ragged import Ragged
from textmill.pipelines.shards.job import Job
from textmill.pipelines.shards.steps import RowMaker, Shard
from textmill.pipelines.writers import shard_files, staged_shards
from textmill.pipelines.writers.token_counts import NO_COUNTS, count_tokens
from textmill.schemas.format.digests import DIGEST_BYTES
from textmill.schemas.format.features import token_dtype
from textmill.schemas.format.manifest import ManifestFile
from textmill.schemas.format.metadata import Schema
from textmill.schemas.format.row_documents import encode_row_documents
from textmill.schemas.format.statistics import ShardStatistics


@dataclass(frozen=True)
class Written:
    """A shard in the staging folder.

    Attributes:
      statistics: its counts.
      files: its files in each format of the dataset, and that of its rows' documents.
      token_counts: occurrences of each id.
      is_kept: whether an earlier run wrote it.
    """

    statistics: ShardStatistics
    files: tuple[ManifestFile, ...]
    token_counts: np.ndarray = field(compare=False)
    is_kept: bool = False


def write_shard(
    job: Job, maker: RowMaker, name: str, split: str, kept: KeptExamples | None
) -> Written:
    """Reuses the shard that an earlier run finished, or makes it.

    Args:
      job: of the run.
      maker: of rows.
      name: of the shard.
      split: of the shard.
      kept: its examples; None for a shard without documents.
    """
    staging, schema = job.staging, job.schema
    made_of = ""
    if job.resume:
        made_of = staged_shards.examples_hash(schema, name, kept.examples if kept else None)
        if found := staged_shards.find_finished(staging, name, made_of):
            finished, token_counts = found
            statistics = finished.statistics
            if kept:  # this run may read more copies of the same documents
                statistics = replace(statistics, dropped=kept.dropped)
            return Written(statistics, finished.files, token_counts, is_kept=True)
    shard = maker.make(kept, split) if kept else None
    files = stage_shard(shard, schema, staging, name)
    statistics, token_counts = ShardStatistics(), NO_COUNTS
    if shard:
        statistics = shard.statistics
        token_counts = count_tokens(shard.streams(), schema.vocab_size)
    if job.resume:
        staged_shards.note_finished(staging, name, made_of, statistics, files, token_counts)
    return Written(statistics, files, token_counts)


def stage_shard(
    shard: Shard | None, schema: Schema, staging: str, name: str
) -> tuple[ManifestFile, ...]:
    """Writes a shard in each format of the dataset, and a file of its rows' documents.

    None stands for a shard without documents.

    Raises:
      DataError: the disk is full, or an object store has other bytes than were sent.
    """
    if schema.holds_documents:
        none = Ragged.of(np.zeros(0, token_dtype(schema.vocab_size)), [])
        documents = shard.documents() if shard else none
        files = shard_files.write_documents(documents, staging, name, schema)
    else:
        stride = schema.codec().stride
        chunks = shard.chunks(shard_files.head_of(schema.file_formats, stride)) if shard else ()
        files = shard_files.write_shard(chunks, staging, name, schema.file_formats, stride)
    content = shard.row_documents() if shard else _documents_of_no_rows()
    return *files, shard_files.write_row_documents(content, staging, name, files[0].rows or 0)


def _documents_of_no_rows() -> bytes:
    no_digests, no_segments = np.zeros((0, DIGEST_BYTES), np.uint8), np.zeros((2, 0), np.int64)
    return encode_row_documents(no_digests, np.zeros(1, np.int64), *no_segments)
