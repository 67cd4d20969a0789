"""The end of build_corpus: writes the metadata files and publishes."""

from dataclasses import replace

import pyarrow as pa

from textmill.pipelines.corpus.card import card_file
from textmill.pipelines.corpus.decontamination.matches import hits_file
from textmill.pipelines.corpus.decontamination.report import count_targets
from textmill.pipelines.corpus.job import CorpusJob, CorpusReport
from textmill.pipelines.corpus.lost_data import refuse_lost
from textmill.pipelines.corpus.partition import read_rows
from textmill.pipelines.corpus.report import (
    SAMPLED,
    SHOWN,
    URLS,
    CorpusContent,
    render_report,
)
from textmill.pipelines.inspection.report.page import report_file
from textmill.pipelines.readers.forget import forgotten_file
from textmill.pipelines.readers.sources import file_digests
from textmill.pipelines.writers import rejects, shard_files
from textmill.schemas.commands.flag_file import CONFIG
from textmill.schemas.files import store
from textmill.schemas.files.finished import Corpus
from textmill.schemas.format.corpus_metadata import CorpusStatistics
from textmill.schemas.format.manifest import DECONTAMINATION, HOSTS, QUALITY, Manifest
from textmill.schemas.format.metadata import Inputs
from textmill.schemas.typed_json import to_json


def publish_corpus(report: CorpusReport, job: CorpusJob) -> Manifest:
    """Checks that all counts add up, writes the metadata files, and publishes all files.

    Raises:
      DataError: data was lost, too many documents were rejected, or none is left.
    """
    refuse_lost(report, job)
    staged = [*report.files, *rejects.collect(report.stashed, job.staging)]
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
        CONFIG: job.config,
        **rejects.rejects_file(report.rejects),
        **hits_file(report.hits),
        **forgotten_file(job.forget, report.forgotten),
        **({HOSTS: to_json(report.hosts)} if report.hosts.hosts else {}),
        **({QUALITY: to_json(report.scored)} if report.scored.samples else {}),
        **report_file(lambda: render_report(_content(report, inputs, job))),
    }
    return shard_files.publish(
        Corpus,
        job.output,
        job.run,
        job.schema.fingerprint,
        staged,
        contents,
        card_file(job.output, job.schema, report.statistics),
    )


def _content(report: CorpusReport, inputs: Inputs, job: CorpusJob) -> CorpusContent:
    """The content of report.html."""
    columns = job.schema.columns
    urls = tuple(name for name in columns if name in URLS)
    shown = _first_rows(report, job, columns, SHOWN)
    return CorpusContent(
        schema=job.schema,
        statistics=report.statistics,
        inputs=inputs,
        files=report.files,
        rejects=report.rejects,
        shown=shown,
        sampled=_first_rows(report, job, (columns[0], *urls), SAMPLED) if urls else shown,
        clusters=report.clusters,
        hosts=report.hosts,
        scored=report.scored,
        config=job.config,
    )


def _first_rows(
    report: CorpusReport, job: CorpusJob, columns: tuple[str, ...], most: int
) -> pa.Table:
    """The documents with the smallest ids; the first column has no empty values."""
    batches, of_name = [], {file.path: file for file in report.files}
    with store.workspace(job.staging) as folder:
        files = map(of_name.__getitem__, job.schema.names())
        local = (
            (store.local_copy(shard_files.find(job.output, file), folder), file.rows or 0)
            for file in files
        )
        for documents in (piece for own in local for piece in read_rows(*own, columns)):
            batches.append(documents.columns)
            if sum(map(len, batches)) >= most:
                break
    empty = pa.schema([(name, pa.large_string()) for name in columns])
    return pa.Table.from_batches(batches, None if batches else empty).slice(0, most)
