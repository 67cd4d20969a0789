"""The output directory of a tokenizer: finds a finished one, and publishes a trained one."""

import os
from collections.abc import Callable
from typing import Any

from textmill.pipelines.writers import shard_files
from textmill.pipelines.writers.output_directory import find_finished
from textmill.pipelines.writers.staging import STAGING
from textmill.schemas.errors import flag
from textmill.schemas.files import store
from textmill.schemas.files.finished import TokenizerInfo
from textmill.schemas.format.agreement import TOKENIZER_FILES
from textmill.schemas.format.manifest import HISTOGRAM, REJECTS, ManifestFile
from textmill.schemas.format.tokenizer_report import TokenizerReport


def find_tokenizer(
    output: str, parameters: dict[str, Any], digest: Callable[[], str]
) -> TokenizerInfo | None:
    """The tokenizer in `output`, if it has the same parameters and inputs.

    Args:
      output: the directory; it need not exist.
      parameters: the parameters of this run.
      digest: returns the digest of the inputs; called only if all else is equal, since it reads
        all inputs.

    Raises:
      UsageError, DataError: see `find_finished`.
    """

    def differ(found: TokenizerInfo) -> list[str]:
        found.check_sums()
        differing = found.report.differences(parameters)
        if not differing and found.report.text.digest != digest():
            differing = ["it is made from other text"]
        return differing

    histogram = os.path.join(output, HISTOGRAM)
    hint = (
        f"; for the same text, {flag('from_histogram', histogram)} avoids counting its words again"
    )
    return find_finished(TokenizerInfo, output, differ, hint)


def publish(output: str, run: str, report: TokenizerReport) -> None:
    """Publishes the files of a tokenizer from OUTPUT/.staging."""
    staged = []
    for name in (*TOKENIZER_FILES, REJECTS):
        path = os.path.join(output, STAGING, name)
        if (size := store.size(path)) is not None:
            staged.append(ManifestFile(name, size, store.sha256(path)))
    shard_files.publish(TokenizerInfo, output, run, report.fingerprint, staged, {})
