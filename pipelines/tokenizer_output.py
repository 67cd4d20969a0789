"""The directory of a tokenizer: found finished, kept to one run, published whole or not at all."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict

from filelock import FileLock, Timeout

from pipelines import sinks
from pipelines.rejects import REJECTS
from pipelines.sources import is_remote
from pipelines.tokenizer_report import FORMAT_VERSION, Parameters, Report
from schemas.errors import DataError, UsageError
from schemas.sidecar import MANIFEST, file_sha256
from schemas.typed_json import from_json, load_json

TOKENIZER, HISTOGRAM, REPORT = "tokenizer.json", "histogram.parquet", "report.json"
CONFIG = "tokenizer_config.json"
READ = "read.json"  # in the staging folder only


def finished_tokenizer(
    output: str, parameters: Parameters, digest: Callable[[], str]
) -> Report | None:
    """The report of the tokenizer in `output`, if it is the one that is asked for.

    Args:
      output: the directory; it need not be there.
      parameters: asked for.
      digest: of the inputs; called only if nothing else differs, for it reads them all.

    Returns:
      None if the directory holds no tokenizer.

    Raises:
      UsageError: it holds another one; names what differs and how to go on.
    """
    if not os.path.exists(os.path.join(output, TOKENIZER)):
        return None
    differing = _differences(output, parameters, digest)
    if differing:
        raise UsageError(
            f"{output} holds another tokenizer ({'; '.join(differing)}). Give another --output, or "
            f"--overwrite to replace it; for the same text, --from_histogram="
            f"{os.path.join(output, HISTOGRAM)} saves counting it again"
        )
    return _report(output)


def _differences(output: str, parameters: Parameters, digest: Callable[[], str]) -> list[str]:
    try:
        report = _report(output)
        if report.format_version != FORMAT_VERSION:
            return [f"format_version {report.format_version}, not {FORMAT_VERSION}"]
        for name, sha256 in (
            (TOKENIZER, report.tokenizer_sha256),
            (HISTOGRAM, report.histogram_sha256),
        ):
            if file_sha256(os.path.join(output, name)) != sha256:
                return [f"its {name} is not the one that {REPORT} tells of"]
    except (DataError, OSError):
        return [f"without a whole {REPORT} and {HISTOGRAM} of this program"]
    there, here = asdict(report.parameters), asdict(parameters)
    differing = [f"{k} {there[k]!r}, not {here[k]!r}" for k in here if there[k] != here[k]]
    if bool(report.parameters.document) != bool(parameters.document):
        differing = ["trained from text and not from a histogram, or the reverse"]
    return differing or ([] if report.text.digest == digest() else ["made from other text"])


def _report(output: str) -> Report:
    path = os.path.join(output, REPORT)
    return from_json(Report, load_json(path), path)


def refuse_shard_set(output: str) -> None:
    """Never writes a tokenizer over the one that a shard set carries.

    Raises:
      UsageError: `output` is a shard set.
    """
    if os.path.exists(os.path.join(output, MANIFEST)):
        raise UsageError(
            f"{output} is a shard set, whose tokenizer.json must stay as it is: give another "
            "--output"
        )


@contextmanager
def staged(output: str) -> Iterator[str]:
    """Makes the directory and an empty staging folder in it, which is removed at the end.

    Raises:
      UsageError: another run is at work there, or the path is not a local one.
      DataError: it cannot be written.
    """
    if is_remote(output):
        raise UsageError(
            f"--output={output}: a tokenizer is written to a file system that workers share; give "
            "a mounted path, and copy the finished directory to the store"
        )
    staging = os.path.join(output, sinks.STAGING)
    with sinks.disk_errors(staging):
        try:
            os.makedirs(output, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise UsageError(
                f"--output={output}: it is a file or lies below one; give a directory"
            ) from error
        lock = FileLock(os.path.join(output, ".lock"), timeout=0)
        try:
            lock.acquire()
        except Timeout as error:
            raise UsageError(
                f"another run writes into {output}: wait for it, or give another --output"
            ) from error
    try:
        with sinks.disk_errors(staging):
            shutil.rmtree(staging, ignore_errors=True)  # of a run that was killed
            os.mkdir(staging)
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        lock.release()


def publish(output: str) -> None:
    """Moves the staged files into place, tokenizer.json last; an older tokenizer goes first."""
    staging = os.path.join(output, sinks.STAGING)
    with sinks.disk_errors(output):
        for name in (TOKENIZER, REJECTS):
            if os.path.exists(os.path.join(output, name)):
                os.remove(os.path.join(output, name))
        for name in (HISTOGRAM, REJECTS, REPORT, CONFIG, TOKENIZER):
            if os.path.exists(os.path.join(staging, name)):
                os.makedirs(os.path.dirname(os.path.join(output, name)), exist_ok=True)
                os.replace(os.path.join(staging, name), os.path.join(output, name))
