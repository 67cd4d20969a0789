"""The directory of a tokenizer: found finished, kept to one run, published whole or not at all."""

import os
from collections.abc import Callable
from typing import Any

from pipelines.storage import store
from pipelines.storage.store import disk_errors, is_url
from pipelines.train.report import FORMAT_VERSION, Report
from pipelines.writers.refusals import TOKENIZER_REPORT
from pipelines.writers.rejects import FILTERED, REJECTS
from pipelines.writers.staging import STAGING
from schemas.errors import DataError, UsageError
from schemas.typed_json import from_json

TOKENIZER, HISTOGRAM, REPORT = "tokenizer.json", "histogram.parquet", TOKENIZER_REPORT
CONFIG = "tokenizer_config.json"
RUN = "config.yaml"  # the flags, to run it again
READ, SAMPLE = "read.json", "sample.arrow"  # in the staging folder only
_OLD = (TOKENIZER, REJECTS, FILTERED, RUN)
_NEW = (HISTOGRAM, REJECTS, FILTERED, REPORT, CONFIG, RUN, TOKENIZER)  # in the order of publishing


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
    found = store.load_json(path)
    if isinstance(found, dict):
        found.setdefault("fertility", [])  # reports of 2026-11 and before have none
    return from_json(Report, found, path)


def publish(output: str) -> None:
    """Moves the staged files into place, tokenizer.json last; an older tokenizer goes first."""
    staging = os.path.join(output, STAGING)
    if is_url(output):
        staged = store.sizes(staging)
        store.delete(os.path.join(output, name) for name in _OLD)
        for names in (_NEW[:-1], _NEW[-1:]):
            due = [name for name in names if name in staged]
            store.copy_all(
                {f"{staging}/{name}": f"{output}/{name}" for name in due},
                {f"{output}/{name}": staged[name] for name in due},
            )
        return
    with disk_errors(output):
        for name in _OLD:
            if os.path.exists(os.path.join(output, name)):
                os.remove(os.path.join(output, name))
        for name in _NEW:
            if os.path.exists(os.path.join(staging, name)):
                os.makedirs(os.path.dirname(os.path.join(output, name)), exist_ok=True)
                os.replace(os.path.join(staging, name), os.path.join(output, name))
