"""The end of build_corpus: checks the workers' reports and publishes; and checks a whole corpus.

`pipelines.verify` calls `check_corpus`, which reads all files of a finished corpus again.
"""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipelines import store
from pipelines.corpus.decontamination.matches import hits_file
from pipelines.corpus.decontamination.report import count_targets
from pipelines.corpus.filters import warn_of
from pipelines.corpus.job import CorpusJob, CorpusReport, hex_ids, name_shuffle
from pipelines.corpus.metadata import (
    BINS,
    CARD,
    FILLED,
    Corpus,
    CorpusStatistics,
    FileStatistics,
    bins_of,
    read_corpus,
)
from pipelines.corpus.partition import SOURCE, partition_of
from pipelines.corpus.report import SAMPLED, WRITER, CorpusContent, dataset_card, render_report
from pipelines.host.imports import pc
from pipelines.inspection.checks.set_check import Findings
from pipelines.inspection.report.page import report_file
from pipelines.readers.documents import Documents, Role
from pipelines.readers.sources import (
    MOST_DOCUMENT_BYTES,
    Source,
    file_digests,
    plan_blocks,
    read_block,
    read_blocks,
)
from pipelines.rows.routing import content_digests
from pipelines.rows.text_bytes import count_words
from pipelines.runners.shuffle import AGAIN, Placed, and_more, check_deliveries
from pipelines.writers import shard_files
from pipelines.writers.rejects import collect, rejects_file
from schemas.commands.flag_file import CONFIG
from schemas.errors import DataError, TextmillError
from schemas.manifest import DECONTAMINATION, MANIFEST, Manifest, ManifestFile
from schemas.metadata import Inputs
from schemas.typed_json import to_json


def publish_corpus(report: CorpusReport, job: CorpusJob) -> Manifest:
    """Checks that all counts add up, writes the metadata files, and publishes all files.

    Raises:
      DataError: data was lost, too many documents were rejected, or none is left.
    """
    _check_complete(report, job)
    staged = [*report.files, *collect(report.stashed, job.staging)]
    if job.filters.decontamination.decontaminate:
        content = store.read(f"{job.staging}/{DECONTAMINATION}")
        staged.append(shard_files.describe_file(DECONTAMINATION, content))
        counts = CorpusStatistics(observed=count_targets(content))
        report = replace(report, statistics=CorpusStatistics.sum([report.statistics, counts]))
    inputs = file_digests(report.digests)
    contents = {
        "schema.json": to_json(job.schema),
        "stats.json": to_json(report.statistics),
        "inputs.json": to_json(inputs),
        **_card(report, job),
        CONFIG: job.config,
        **rejects_file(report.rejects),
        **hits_file(report.hits),
        **report_file(lambda: render_report(_content(report, inputs, job))),
    }
    return shard_files.publish(job.output, job.run, job.schema.fingerprint, staged, contents)


def _card(report: CorpusReport, job: CorpusJob) -> dict[str, bytes]:
    """README.md, unless the directory has one that Textmill did not write."""
    path = os.path.join(job.output, CARD)
    is_own = not store.exists(path) or WRITER.encode() in store.read(path)
    return {CARD: dataset_card(job.schema, report.statistics)} if is_own else {}


def _content(report: CorpusReport, inputs: Inputs, job: CorpusJob) -> CorpusContent:
    """The content of report.html."""
    columns = job.schema.columns
    batches, of_name = [], {file.path: file for file in report.files}
    with store.workspace(job.staging) as folder:
        files = map(of_name.__getitem__, job.schema.names())
        local = (
            (store.local_copy(shard_files.find(job.output, file), folder), file.rows or 0)
            for file in files
        )
        for documents in (piece for own in local for piece in read_rows(*own, columns)):
            batches.append(documents.columns)
            if sum(map(len, batches)) >= SAMPLED:
                break
    return CorpusContent(
        schema=job.schema,
        statistics=report.statistics,
        inputs=inputs,
        files=report.files,
        rejects=report.rejects,
        sample=pa.Table.from_batches(batches).slice(0, SAMPLED),
        clusters=report.clusters,
        config=job.config,
    )


class _Partition(NamedTuple):
    place: str


def _places(job: CorpusJob) -> list[Placed]:
    """Blocks and partitions, in the order of their numbers in reports."""
    partitions = [_Partition(f"partition {number}") for number in range(job.partitions)]
    return [*read_blocks(job.staging), *partitions, *partitions]


def _check_complete(report: CorpusReport, job: CorpusJob) -> None:
    """Checks that no block, batch, file or document was lost, and that some are left."""
    statistics = report.statistics
    # The search for near-duplicates reports each partition twice: signed, and sets sent.
    parts = 2 * job.partitions if job.near else 0
    check_deliveries(report.deliveries, lambda: _places(job), job.blocks + parts, name_shuffle)
    files = {file.path for file in report.files}
    lost = sorted({*job.schema.names(), *job.schema.removed_names()} - files)
    if lost:
        raise DataError(
            f"the runner lost the report on {lost[0]}{and_more(lost, 'files')}: {AGAIN}"
        )
    report.rejects.refuse_too_many(job.max_rejects)
    if broken := statistics.broken_equations():
        raise DataError("documents were lost, which is a bug in Textmill: " + "; ".join(broken))
    if not statistics.total().documents:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in statistics.dropped.items())
        raise DataError(
            f"no document is left to write; {statistics.documents_read:,} were read "
            f"({reasons or 'only blank lines'}){report.rejects.describe_first()}"
            + "".join(f"; {cause}" for cause in warn_of(statistics.funnel, statistics.observed))
        )


def check_corpus(directory: str) -> Findings:
    """Checks the sha256 of every file, and the id, file and counts of every document.

    Raises:
      DataError: the directory is no corpus, or its metadata files contradict each other.
    """
    corpus, findings = read_corpus(directory), Findings()
    for file in corpus.manifest.files:
        if store.sha256(os.path.join(directory, file.path)) != file.sha256:
            findings.problems.append(f"{file.path}: its sha256 is not the one in {MANIFEST}")
    if not findings.problems:
        findings.problems += list(_check_documents(corpus, findings))
        for file in corpus.manifest.files:
            if file.split not in (None, "documents") and not findings.problems:
                findings.problems += list(_check_removed(corpus, file))
    return findings


def _check_documents(corpus: Corpus, findings: Findings) -> Iterator[str]:
    last, lengths = "", np.zeros(BINS, np.int64)
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


def _check_order(ids: pa.LargeStringArray, digests: np.ndarray, last: str) -> str:
    """Checks that ids are the hashes of the texts and ascend from `last`; returns the last one."""
    if not ids.equals(hex_ids(digests)):
        raise DataError("an id is not the hash of its text")
    ordered = pa.concat_arrays([pa.array([last], ids.type), ids])
    if not pc.all(pc.less(ordered[:-1], ordered[1:]), min_count=0).as_py():  # true of none
        raise DataError("ids are not in strictly ascending order")
    return ordered[-1].as_py()


def _check_removed(corpus: Corpus, file: ManifestFile) -> Iterator[str]:
    """Checks that no near-duplicate listed as removed is in the corpus."""
    number = corpus.schema.removed_names().index(file.path)
    documents = corpus.documents[number]
    try:
        removed, kept = _ids(corpus, file), _ids(corpus, documents)
    except TextmillError as error:
        yield f"{file.path}: {error}"
        return
    # Without repeated paragraphs, a kept document may have the text of a removed one.
    is_edited = "duplicate_paragraphs" in corpus.schema.parameters
    if not is_edited and pc.any(pc.is_in(removed, value_set=kept)).as_py():
        yield f"{file.path}: a removed document is in {documents.path}"
    if len(removed) != file.rows or len(pc.unique(removed)) != len(removed):
        yield f"{file.path}: it does not list {file.rows:,} different documents"


def _ids(corpus: Corpus, file: ManifestFile) -> pa.LargeStringArray:
    pieces = [piece.columns["id"] for piece in _read(corpus, file, ("id",))]
    return pa.concat_arrays([pa.array([], pa.large_string()), *pieces])


def _read(corpus: Corpus, file: ManifestFile, columns: tuple[str, ...]) -> Iterator[Documents]:
    return read_rows(os.path.join(corpus.directory, file.path), file.rows or 0, columns)


def read_rows(path: str, rows: int, columns: tuple[str, ...]) -> Iterator[Documents]:
    """Yields the rows of one file of a corpus, in pieces; the first column has no empty value.

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
