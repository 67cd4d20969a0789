"""A finished corpus -> report.html."""

from pipelines.corpus.job import CorpusJob, CorpusReport
from schemas.sidecar import Inputs


def report_file(report: CorpusReport, inputs: Inputs, job: CorpusJob) -> dict[str, bytes]:
    """The file's name and content."""
    return {"report.html": b"<!doctype html>"}
