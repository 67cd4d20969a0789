"""Signatures beside a corpus, so that a later delta need not read its texts.

`signatures/documents-00000-of-00016.npy` has a row of `signed_type` for each document of the file
of that number that has shingles, in the order of documents: 152 bytes with 14 bands.
"""

import io

import numpy as np
import pyarrow as pa

from textmill.pipelines.corpus.ancestors import OlderFile, read_documents
from textmill.pipelines.corpus.job import CorpusJob, CorpusReport
from textmill.pipelines.corpus.near_duplicates.flags import NearDuplicateRule
from textmill.pipelines.corpus.near_duplicates.rows import of_batch, signed_type, to_batch
from textmill.pipelines.corpus.near_duplicates.steps import sign
from textmill.pipelines.corpus.partition import (
    digests_of,
    find_rows,
    read_partition,
    stage_partition,
)
from textmill.pipelines.corpus.partition_files import stage_file
from textmill.schemas.errors import DataError
from textmill.schemas.files import store
from textmill.schemas.format.corpus_metadata import SIGNATURES

_SIGNED = "-signed"  # stage of a partition


def stage_signed(signed: list[np.ndarray], number: int, job: CorpusJob, kind: np.dtype) -> None:
    """Stages the signed documents of the partition `number` for `write_signatures`."""
    rows = np.concatenate([np.empty(0, kind), *signed])
    stage_partition(job.scratch, number, to_batch(rows), _SIGNED)


def write_signatures(
    batch: pa.RecordBatch, number: int, job: CorpusJob, rule: NearDuplicateRule
) -> CorpusReport:
    """Stages the signatures of the documents that are written; signs them if they were edited."""
    kind = signed_type(rule.bands.bands)
    if job.paragraphs:
        signed = np.concatenate([np.empty(0, kind), *sign(batch["text"], rule)])
    else:
        all_signed = of_batch(read_partition(job.scratch, number, _SIGNED), kind)
        staged = read_partition(job.scratch, number)
        row_of = np.full(len(staged), -1)  # in the file
        row_of[find_rows(staged, digests_of(batch))] = np.arange(len(batch))
        signed = all_signed.take(np.flatnonzero(row_of[all_signed["row"]] >= 0))
        signed["row"] = row_of[signed["row"]]
    sink = io.BytesIO()
    np.save(sink, signed, allow_pickle=False)
    name = job.schema.signature_names()[number]
    return CorpusReport(
        files=(stage_file(job.staging, name, SIGNATURES, sink.getvalue(), len(signed)),)
    )


def read_signed(file: OlderFile, rule: NearDuplicateRule) -> np.ndarray:
    """The signed documents of a file of an older corpus; signs them if it has no signatures.

    Raises:
      DataError: the file of signatures or of documents is damaged.
    """
    kind = signed_type(rule.bands.bands)
    if not file.signatures:
        text = read_documents(file, np.arange(file.rows))["text"]
        return np.concatenate([np.empty(0, kind), *sign(text, rule)])
    try:
        signed = np.load(io.BytesIO(store.read(file.signatures)), allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f"{file.signatures} cannot be read ({error}): copy it again") from error
    if signed.dtype != kind or signed.ndim != 1 or (signed["row"] >= file.rows).any():
        raise DataError(f"{file.signatures} has other rows than its corpus: copy it again")
    return signed
