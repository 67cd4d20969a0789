"""Checks an output directory: it may contain the requested dataset, or files to protect."""

import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from textmill.pipelines.readers.sources import Block, hash_inputs
from textmill.pipelines.writers.shard_files import OWNED
from textmill.pipelines.writers.staging import Staging, stage
from textmill.schemas.errors import UsageError, flag
from textmill.schemas.files import store
from textmill.schemas.files.finished import FinishedDirectory, kind_of, open_finished
from textmill.schemas.files.lock import LOCK
from textmill.schemas.format.agreement import REPORT
from textmill.schemas.format.manifest import MANIFEST, REJECTED
from textmill.schemas.format.metadata import Inputs
from textmill.schemas.tokenizers.tokenizer_json import TOKENIZER_CONFIG

EXPORT_RECORD = "export.json"
D = TypeVar("D", bound=FinishedDirectory)
F = TypeVar("F")
# Without a manifest, the first of these files that exists identifies the content of a directory.
_CONTENTS = {
    REPORT: "a tokenizer",
    TOKENIZER_CONFIG: "a tokenizer",
    "config.json": "a model or a run of a trainer",
    EXPORT_RECORD: "an export",
}


def find_or_make(
    output: str,
    own: type[FinishedDirectory] | None,
    find: Callable[[], F | None],
    make: Callable[[Staging], Any],
    *,
    overwrite: bool,
    resume: Callable[[str, str], None] | None = None,
    hands_over: bool = False,
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
      hands_over: see `stage`.
    """
    found = None if overwrite else find()
    if found is None:
        with stage(output, resume=resume, hands_over=hands_over) as staging:
            refuse_others(output, own)
            found = None if overwrite else find()
            if found is None:
                make(staging)
    return found


def handed_over(output: str) -> str:
    """The last line of a command that leaves its job in a template."""
    return f"the job is in the template; its last step publishes {output}"


def refuse_others(output: str, own: type[FinishedDirectory] | None) -> None:
    """Protects the output of other commands, whose files may have the same names.

    Args:
      output: the directory.
      own: the kind that the command writes; None for an export.

    Raises:
      UsageError: `output` holds something else, or a user's file of a name that a run replaces.
    """
    due = f"a {own.noun}" if own else _CONTENTS[EXPORT_RECORD]
    name, content = _content(output) or ("", due)
    if content != due:
        raise UsageError(
            f"{flag('output', output)} already contains {content} ({name}): use another directory"
        )
    if name != MANIFEST and own is not None and os.path.isdir(output):
        with store.disk_errors(output):
            names = sorted(os.listdir(output))
        names += [name for name in REJECTED if os.path.exists(os.path.join(output, name))]
        taken = [*filter(OWNED[own].fullmatch, names)]
        if taken and LOCK not in names:  # no run has written here
            raise UsageError(
                f"{flag('output', output)} already has a file {taken[0]}, which the run would "
                "replace: use another directory, such as a new one below it"
            )


def _content(output: str) -> tuple[str, str] | None:
    """The file that identifies the content of a directory, and the content."""
    if kind := kind_of(output):
        return MANIFEST, f"a {kind.noun}"
    for name, content in _CONTENTS.items():
        if store.exists(os.path.join(output, name)):
            # A dataset whose publication was interrupted has this file, too.
            if name != TOKENIZER_CONFIG or not store.exists(os.path.join(output, "schema.json")):
                return name, content
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


def find_finished(
    kind: type[D],
    output: str,
    differ: Callable[[D], list[str]],
    hint: str = "",
) -> D | None:
    """The finished directory in `output`, if it is the requested one.

    Args:
      kind: the kind that the command writes.
      output: the directory; it need not exist.
      differ: returns phrases about differences from the requested one, in settings or inputs.
      hint: see `refuse_another`.

    Returns:
      None if the run has to make it.

    Raises:
      UsageError: the directory holds a different one; names the differences.
      DataError: it is damaged.
    """
    if not store.exists(os.path.join(output, MANIFEST)):
        return None
    found = open_finished(kind, output)
    refuse_another(output, f"a different {kind.noun}", differ(found), hint)
    return found


def differ_from(schema: Any, blocks: list[Block]) -> Callable[[Any], list[str]]:
    """Returns the `differ` of `find_finished` for a dataset or corpus.

    Args:
      schema: of the requested one.
      blocks: all inputs.
    """
    return lambda found: found.schema.differences(schema) or other_inputs(found.inputs, blocks)


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
