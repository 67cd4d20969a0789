"""Adds up the counts of bundles, and writes the histogram with its reports.

Keys from 0 to BUCKETS - 1 are buckets of words; reports and samples have keys of their own.
"""

import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from textmill.pipelines.readers.sources import read_blocks
from textmill.pipelines.runners.block_run import ALL
from textmill.pipelines.runners.shuffle import (
    DeliveryReport,
    add_tallies,
    check_deliveries,
    count_and_hash,
)
from textmill.pipelines.tokenizer import histogram
from textmill.pipelines.tokenizer.fertility import add_samples
from textmill.pipelines.tokenizer.output import (
    READ,
    SAMPLE,
    CountJob,
    Read,
    check_read,
    text_of,
)
from textmill.pipelines.tokenizer.word_counter import BUCKETS, add_counts, sort_by_word
from textmill.pipelines.writers.rejects import rejects_file
from textmill.pipelines.writers.staging import check_turn
from textmill.schemas.files.store import write_file
from textmill.schemas.format.manifest import HISTOGRAM
from textmill.schemas.typed_json import to_json

READ_KEY, SAMPLE_KEY = -1, BUCKETS


def add_up(keyed: tuple[int, Iterable[Any]]) -> tuple[int, tuple[int, Read, bytes]]:
    """Adds up the values of a key: reports, samples or tables; counts what was received."""
    key, parts = keyed
    if key == READ_KEY:
        return ALL, (key, Read.sum(parts), b"")
    received: list[np.ndarray] = []

    def tallied() -> Iterator[bytes]:
        for part in parts:
            received.append(count_and_hash([(key, part)]))
            yield part

    if key == SAMPLE_KEY:
        total = add_samples(tallied())
    else:
        total = histogram.to_bytes(add_counts(map(histogram.from_bytes, tallied())))
    return ALL, (key, Read(deliveries=DeliveryReport(received=add_tallies(received))), total)


def write_files(parts: Iterable[tuple[int, Read, bytes]], job: CountJob) -> Iterator[str]:
    """Writes the files of the staging directory from all counts and reports; yields their paths.

    Raises:
      DataError: data was lost, no document is left, or too many were rejected.
    """
    keys, reads, totals = zip(*parts, strict=True)
    read, tables = Read.sum(reads), dict(zip(keys, totals, strict=True))
    sample = tables.pop(SAMPLE_KEY, b"")
    check_deliveries(
        read.deliveries,
        lambda: read_blocks(job.staging),
        job.blocks,
        lambda key: "the sample" if key == SAMPLE_KEY else f"bucket {key} of the words",
    )
    check_read(read, job.max_rejects)
    check_turn(job.staging, job.run, publishes=True)
    counts = pa.concat_tables(histogram.from_bytes(table) for table in tables.values() if table)
    origin = histogram.Origin(job.cutting, read.documents, read.bytes, read.normalized_bytes)
    sorted_counts = histogram.Histogram(sort_by_word(counts), origin)
    files = {
        HISTOGRAM: histogram.to_parquet(sorted_counts),
        SAMPLE: sample,
        **rejects_file(read.rejects),
        READ: to_json(text_of(read)),  # last, since it marks that all are there
    }
    for name, content in files.items():
        path = os.path.join(job.staging, name)
        write_file(path, content)
        yield path
