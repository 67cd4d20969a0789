"""The directory of a tokenizer: found finished, kept to one run, published whole or not at all."""

import os
from collections.abc import Callable
from typing import Any

from pipelines.storage import store
from pipelines.train.report import FORMAT_VERSION, Report
from pipelines.writers.publish import publish_files
from pipelines.writers.refusals import TOKENIZER_REPORT
from pipelines.writers.rejects import FILTERED, REJECTS
from pipelines.writers.staging import STAGING
from schemas.errors import DataError, UsageError
from schemas.typed_json import from_json

TOKENIZER, HISTOGRAM, REPORT = "tokenizer.json", "histogram.parquet", TOKENIZER_REPORT
CONFIG = "tokenizer_config.json"
RUN = "config.yaml"  # the flags, to run it again
READ, SAMPLE = "read.json", "sample.arrow"  # in the staging folder only
_FILES = (HISTOGRAM, REJECTS, FILTERED, REPORT, CONFIG, RUN)  # beside tokenizer.json, the seal


def finished_tokenizer(
    output: str, parameters: dict[str, Any], digest: Callable[[], str]
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
    if not store.exists(os.path.join(output, TOKENIZER)):
        return None
    differing = _differences(output, parameters, digest)
    if differing:
        raise UsageError(
            f"{output} holds another tokenizer ({'; '.join(differing)}). Give another --output, or "
            f"--overwrite to replace it; for the same text, --from_histogram="
            f"{os.path.join(output, HISTOGRAM)} saves counting it again"
        )
    return _report(output)


def _differences(output: str, parameters: dict[str, Any], digest: Callable[[], str]) -> list[str]:
    try:
        report = _report(output)
        if report.format_version != FORMAT_VERSION:
            return [f"format_version {report.format_version}, not {FORMAT_VERSION}"]
        for name, sha256 in (
            (TOKENIZER, report.tokenizer_sha256),
            (HISTOGRAM, report.histogram_sha256),
        ):
            if store.sha256(os.path.join(output, name)) != sha256:
                return [f"its {name} is not the one that {REPORT} tells of"]
    except (DataError, OSError):
        return [f"without a whole {REPORT} and {HISTOGRAM} of this program"]
    there, here = report.parameters, parameters
    differing = [
        f"{name} {there.get(name)!r}, not {here.get(name)!r}"
        for name in {**here, **there}
        if there.get(name) != here.get(name)
    ]
    if bool(there.get("document")) != bool(here["document"]):
        differing = ["trained from text and not from a histogram, or the reverse"]
    return differing or ([] if report.text.digest == digest() else ["made from other text"])


def _report(output: str) -> Report:
    path = os.path.join(output, REPORT)
    return from_json(Report, store.load_json(path), path)


def publish(output: str) -> None:
    """Publishes a tokenizer, whose files wait in OUTPUT/.staging."""
    staging = os.path.join(output, STAGING)
    sizes = {name: store.size(os.path.join(staging, name)) for name in _FILES}
    files = {name: (name, size) for name, size in sizes.items() if size is not None}
    content = store.read(os.path.join(staging, TOKENIZER))
    publish_files(output, TOKENIZER, content, files, _FILES)
