"""Checks an output directory: it may contain the requested dataset, or files to protect."""

import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from textmill.pipelines.readers.sources import Block, hash_inputs
from textmill.pipelines.writers.shard_files import OF_SET
from textmill.pipelines.writers.staging import LOCK, Staging, stage
from textmill.schemas.commands.flag_file import CONFIG
from textmill.schemas.errors import UsageError, flag
from textmill.schemas.files import store
from textmill.schemas.files.finished import Corpus, SetInfo, kind_of, open_finished
from textmill.schemas.format.corpus_metadata import CORPUS
from textmill.schemas.format.manifest import MANIFEST, REJECTED, REJECTS
from textmill.schemas.format.metadata import Inputs, Schema
from textmill.schemas.tokenizers.tokenizer_json import TOKENIZER_CONFIG

F = TypeVar("F")
TOKENIZER_REPORT, EXPORT_RECORD = "report.json", "export.json"
# The files that identify the content of a directory; the first that exists decides.
_KINDS = {
    MANIFEST: "a dataset",  # or a corpus: see `kind_of`
    TOKENIZER_REPORT: "a tokenizer",
    TOKENIZER_CONFIG: "a tokenizer",
    "config.json": "a model or a run of a trainer",
    EXPORT_RECORD: "an export",
}
# Files of a tokenizer, which the next run replaces; tokenizer.json is written after them.
TOKENIZER_FILES = ("histogram.parquet", REJECTS, TOKENIZER_REPORT, TOKENIZER_CONFIG, CONFIG)


def find_or_make(
    output: str,
    own: str,
    find: Callable[[], F | None],
    make: Callable[[Staging], Any],
    *,
    overwrite: bool,
    resume: Callable[[str, str], None] | None = None,
) -> F | None:
    """Returns the result of `find`; if that is None, runs `make`, which publishes one.

    Both checks run again once this run holds the lock: another run may have published meanwhile.

    Args:
      output: the directory, which `refuse_others` has checked before inputs were planned.
      own: see `refuse_others`.
      find: returns the requested content of the directory; raises UsageError for other content.
      make: fills the staging folder and publishes it.
      overwrite: whether to make it without looking for it.
      resume: see `stage`.
    """
    found = None if overwrite else find()
    if found is None:
        with stage(output, resume=resume) as staging:
            refuse_others(output, own)
            found = None if overwrite else find()
            if found is None:
                make(staging)
    return found


def refuse_others(output: str, own: str) -> None:
    """Protects the output of other commands, whose files may have the same names.

    Args:
      output: the directory.
      own: CORPUS, or the file of _KINDS that the command itself writes, or any other name.

    Raises:
      UsageError: `output` holds something else, or a user's file of a name that a run replaces.
    """
    there = _kind_file(output)
    name = there or own
    kinds = {**_KINDS, CORPUS: "a corpus"}
    found = CORPUS if name == MANIFEST and kind_of(output) is Corpus else name
    if found != own and kinds[found] != kinds.get(own):
        raise UsageError(
            f"{flag('output', output)} already contains {kinds[found]} ({name}): use another "
            "directory"
        )
    if there is None and os.path.isdir(output):
        with store.disk_errors(output):
            names = sorted(os.listdir(output))
        names += [name for name in REJECTED if os.path.exists(os.path.join(output, name))]
        taken = [name for name in names if name in TOKENIZER_FILES and own == TOKENIZER_REPORT]
        if own in (MANIFEST, CORPUS):
            taken = [*filter(OF_SET.fullmatch, names)]
        if taken and LOCK not in names:  # no run has written here
            raise UsageError(
                f"{flag('output', output)} already has a file {taken[0]}, which the run would "
                "replace: use another directory, such as a new one below it"
            )


def _kind_file(output: str) -> str | None:
    """The file that identifies the content of a directory."""
    for name in _KINDS:
        if store.exists(os.path.join(output, name)):
            # A dataset whose publication was interrupted has this file, too.
            if name != TOKENIZER_CONFIG or not store.exists(os.path.join(output, "schema.json")):
                return name
    return None


def refuse_own_inputs(output: str, paths: Iterable[str]) -> None:
    """Keeps the output apart from the inputs, so that the next run does not read it.

    Args:
      output: the directory.
      paths: of the inputs.

    Raises:
      UsageError: an input is in the directory.
    """

    def real(folder: str) -> str:
        return os.path.join(folder if store.is_url(folder) else os.path.realpath(folder), "")

    first_path: dict[str, str] = {}  # in each folder
    for path in paths:
        first_path.setdefault(os.path.dirname(path), path)
    for folder, path in first_path.items():
        if real(folder).startswith(real(output)):
            raise UsageError(
                f"{flag('output', output)} contains the input {path}: use another directory, such "
                "as a new one below it"
            )


def refuse_another(output: str, what: str, differing: list[str], hint: str = "") -> None:
    """Protects the output of a run with other settings or inputs.

    Args:
      output: the directory.
      what: its content.
      differing: phrases about each difference from the requested output; [] if there is none.
      hint: another remedy, as "; ..."; "" for none.

    Raises:
      UsageError: something differs.
    """
    if differing:
        raise UsageError(
            f"{output} contains {what} ({'; '.join(differing)}). Use another {flag('output')}, or "
            f"{flag('overwrite', True)} to replace it{hint}"
        )


def find_finished_set(output: str, schema: Schema, blocks: list[Block]) -> SetInfo | None:
    """The finished dataset in `output`, if these settings and inputs made it.

    Args:
      output: the directory.
      schema: of the requested dataset.
      blocks: all inputs.

    Returns:
      The dataset; None if the directory has none.

    Raises:
      UsageError: the directory has a different dataset; names the differences.
      DataError: the dataset is damaged.
    """
    if not store.exists(os.path.join(output, MANIFEST)):
        return None
    found = open_finished(SetInfo, output)
    differing = found.schema.differences(schema) or other_inputs(found.inputs, blocks)
    refuse_another(output, "a different dataset", differing)
    return found


def other_inputs(inputs: Inputs, blocks: list[Block]) -> list[str]:
    """Phrases about differences between recorded inputs and `blocks`; [] if there are none.

    Reads all inputs if their sizes are the same.
    """
    other = other_sizes(inputs, blocks)
    if not other and hash_inputs(blocks).content() != inputs.content():
        other = ["inputs: files of the same sizes but other content, labels, splits or names"]
    return other


def other_sizes(inputs: Inputs, blocks: list[Block]) -> list[str]:
    """Phrases about differences in number and size, without reading the inputs."""
    sizes = sorted(part.size for block in blocks for part in block.parts if not part.start)
    if sizes == sorted(file.bytes for file in inputs.files):
        return []
    there = len(inputs.files)
    return [f"files of the input: {there} there, {len(sizes)} here, of other sizes"]
