"""The dataset of all reports: counts that agree, metadata files, and every file in its place.

`publish_dataset` is the last step of a run.
"""

from textmill.pipelines.readers.forget import forgotten_file
from textmill.pipelines.readers.sources import file_digests, read_blocks
from textmill.pipelines.rows.evaluation import evaluation_file
from textmill.pipelines.runners.shuffle import AGAIN, check_deliveries, format_remaining
from textmill.pipelines.shards.job import DatasetReport, Job
from textmill.pipelines.shards.report_page import report_page
from textmill.pipelines.writers import shard_files
from textmill.pipelines.writers.rejects import rejects_file
from textmill.pipelines.writers.tfds_info import tfds_files
from textmill.pipelines.writers.token_counts import TOKEN_COUNTS, counts_bytes
from textmill.schemas.commands.flag_file import CONFIG
from textmill.schemas.errors import DataError
from textmill.schemas.files import store
from textmill.schemas.files.finished import DatasetInfo
from textmill.schemas.format.manifest import Manifest
from textmill.schemas.tokenizers.tokenizer_json import TOKENIZER_CONFIG
from textmill.schemas.typed_json import to_json


def publish_dataset(report: DatasetReport, job: Job) -> Manifest:
    """Checks the counts, writes the metadata files and moves all files into place.

    Raises:
      DataError: data was lost on the way, too many documents were rejected, or none is left.
    """
    _check_complete(report, job)
    _check_report(report, job)
    tokenizer = store.read(job.locate("tokenizer.json"))
    return shard_files.publish(
        DatasetInfo,
        job.output,
        job.run,
        job.schema.fingerprint,
        [*report.files, shard_files.describe_file("tokenizer.json", tokenizer)],
        _metadata(report, job),
    )


def _metadata(report: DatasetReport, job: Job) -> dict[str, bytes]:
    """Name -> content of the metadata files, except tokenizer.json."""
    schema, inputs = job.schema, file_digests(report.digests)
    return {
        "schema.json": to_json(schema),
        "stats.json": to_json(report.statistics.to_dict(schema.row_tokens)),
        "inputs.json": to_json(inputs),
        **tfds_files(schema, report.files, report.statistics),
        **evaluation_file(report.evaluation, ids_differ=job.task.ids_differ),
        **rejects_file(report.rejects),
        **forgotten_file(job.forget, report.forgotten),
        TOKEN_COUNTS: counts_bytes(report.token_counts),
        **report_page(report, job, inputs),
        CONFIG: job.config,
        TOKENIZER_CONFIG: job.tokenizer_config,
    }


def _check_complete(report: DatasetReport, job: Job) -> None:
    """Raises DataError if the runner lost a block or a shard."""
    names = job.routes.names()
    check_deliveries(
        report.deliveries,
        lambda: read_blocks(job.staging),
        job.blocks,
        lambda key: f"the shard {names[key]}",
    )
    lost = sorted({*names} - {*report.statistics.shards})
    if lost:
        raise DataError(
            f"the runner lost its workers' report on the shard {lost[0]}"
            f"{format_remaining(lost, 'shards')}: {AGAIN}"
        )


def _check_report(report: DatasetReport, job: Job) -> None:
    """Raises DataError if documents were lost, none was kept, or too many were rejected."""
    statistics = report.statistics
    report.rejects.refuse_too_many(job.max_rejects)
    broken = statistics.broken_equations(job.schema.copies_of)
    if broken:
        raise DataError(
            "tokens or documents were lost, which is a bug in Textmill: " + "; ".join(broken)
        )
    if not statistics.total().documents:
        reasons = ", ".join(f"{n:,} {r}" for r, n in statistics.all_dropped().items())
        raise DataError(
            f"no document is left to write of the {statistics.documents_read:,} read "
            f"({reasons or 'only blank lines'}){report.rejects.describe_first()}"
        )
