"""The report.html of a dataset, made of the reports of its shards and of some of its rows."""

from textmill.pipelines.inspection.read_rows import sample_rows
from textmill.pipelines.inspection.report.content import SetContent
from textmill.pipelines.inspection.report.page import report_file
from textmill.pipelines.inspection.report.sections import report_html
from textmill.pipelines.shards.job import DatasetReport, Job
from textmill.pipelines.writers import shard_files
from textmill.schemas.files import store
from textmill.schemas.format.metadata import Inputs


def report_page(report: DatasetReport, job: Job, inputs: Inputs) -> dict[str, bytes]:
    """Name and content of report.html; {} if it cannot be rendered."""
    return report_file(lambda: report_html(_content(report, job, inputs)))


def _content(report: DatasetReport, job: Job, inputs: Inputs) -> SetContent:
    """Collects the content of report.html."""
    with store.workspace(job.staging) as folder:
        listed = {file.path: file for file in report.files}
        samples = sample_rows(
            job.schema,
            report.files,
            lambda path: store.local_copy(shard_files.find(job.output, listed[path]), folder),
        )
    return SetContent(
        schema=job.schema,
        statistics=report.statistics,
        inputs=inputs,
        files=report.files,
        rejects=report.rejects,
        token_counts=report.token_counts,
        samples=samples,
        tokenizer=job.tokenizer(),
        config=job.config,
    )
