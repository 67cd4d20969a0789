"""Checks the reports of build_corpus' workers, before anything is published."""

from typing import NamedTuple

from textmill.pipelines.corpus.ancestors import count_known, load_older
from textmill.pipelines.corpus.job import CorpusJob, CorpusReport
from textmill.pipelines.corpus.rule_warnings import warn_of
from textmill.pipelines.corpus.shuffles import name_shuffle
from textmill.pipelines.readers.forget import REASON
from textmill.pipelines.readers.sources import read_blocks
from textmill.pipelines.runners.shuffle import AGAIN, NamedBlock, check_deliveries, format_remaining
from textmill.schemas.errors import DataError


class _Partition(NamedTuple):
    place: str


def _places(job: CorpusJob) -> list[NamedBlock]:
    """Blocks and partitions, in the order of their numbers in reports."""
    partitions = [_Partition(f"partition {number}") for number in range(job.partitions)]
    older = [_Partition(file.path) for file in load_older(job.against).files]
    return [*read_blocks(job.staging), *partitions, *partitions, *older]


def refuse_lost(report: CorpusReport, job: CorpusJob) -> None:
    """Checks that no block, batch, file or document was lost, and that some are left.

    Raises:
      DataError: something was lost, too many documents were rejected, or none is left that older
        corpora lack.
    """
    statistics = report.statistics
    # The search for near-duplicates reports each partition twice, signed and sets sent, and each
    # file of older corpora.
    parts = 2 * job.partitions + len(load_older(job.against).files) if job.near else 0
    check_deliveries(report.deliveries, lambda: _places(job), job.blocks + parts, name_shuffle)
    files = {file.path for file in report.files}
    schema = job.schema
    due = {*schema.names(), *schema.removed_names(), *schema.older_names()}
    lost = sorted({*due, *schema.signature_names()} - files)
    if lost:
        raise DataError(
            f"the runner lost the report on {lost[0]}{format_remaining(lost, 'files')}: {AGAIN}"
        )
    report.rejects.refuse_too_many(job.max_rejects)
    hosts = report.hosts.broken_equations(statistics.observed)
    scored = report.scored.broken_equations(statistics.observed)
    if broken := [*statistics.broken_equations(job.schema.keep_best), *hosts, *scored]:
        raise DataError("documents were lost, which is a bug in Textmill: " + "; ".join(broken))
    known = sum(count_known(statistics)) + statistics.dropped.get(REASON, 0)
    # A delta is empty if nothing is new; otherwise a flag is probably wrong.
    if not statistics.total().documents and not (schema.ancestors and known):
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in statistics.dropped.items())
        raise DataError(
            f"no document is left to write; {statistics.documents_read:,} were read "
            f"({reasons or 'only blank lines'}){report.rejects.describe_first()}"
            + "".join(f"; {cause}" for cause in warn_of(statistics.funnel, statistics.observed))
        )
