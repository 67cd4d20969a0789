"""The flags of trace."""

import re
from dataclasses import dataclass
from typing import Optional, Tuple

import tyro
from typing_extensions import Annotated

from textmill.schemas.commands.help import Help
from textmill.schemas.commands.terminal import command_name
from textmill.schemas.errors import FieldError, UsageError, flag

HELP = Help(
    module="trainers.trace",
    about="Shows which documents a step of a run trained on, or which steps trained on a document.",
    usage="RUN",
    example="run --step=500 --corpus=corpus",
    page="docs/tracing.md",
)


@dataclass(frozen=True)
class TraceFlags:
    """Runs, and the steps or the document to trace."""

    run: Annotated[Tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Directories of one or more runs."""
    step: Optional[int] = None
    """Show the rows and documents of this step, counted from 1 as in metrics.jsonl."""
    steps: Optional[str] = None
    """Show the documents of the steps from A to B, both included, as A:B."""
    above: Optional[float] = None
    """Show the documents of those --steps whose loss is above X, beside their share of the other
    steps."""
    document: Annotated[Optional[str], tyro.conf.arg(metavar="DIGEST")] = None
    """Show when the document with this hash was seen: 32 hexadecimal digits, its id in a corpus."""
    text: Annotated[Optional[str], tyro.conf.arg(metavar="FILE")] = None
    """Show when the document with the text of this file was seen."""
    forgotten: Annotated[Optional[str], tyro.conf.arg(metavar="FILE")] = None
    """Show which of the documents whose digests this file lists were seen, in which steps, and the
    checkpoints around the first; one of 32 hexadecimal digits in each line, # begins a comment."""
    corpus: Annotated[Optional[str], tyro.conf.arg(metavar="DIR")] = None
    """Corpus from which the dataset was built: adds text, url and source of documents."""
    shards: Optional[str] = None
    """Where the dataset of the runs is now, if it was moved; as the trainer's flag."""
    most: int = 20
    """Largest number of documents and steps to print; --json has all."""
    json: bool = False
    """Print a line of JSON for each run."""

    def __post_init__(self) -> None:
        """Refuses flags that do not go together."""
        if not self.run:
            raise UsageError(
                f"RUN comes first: {command_name(HELP.module)} RUN {flag('step', 'N')}"
            )
        names = ("step", "steps", "document", "text", "forgotten")
        asked = {name: getattr(self, name) for name in names}
        given = [flag(name, value) for name, value in asked.items() if value is not None]
        if len(given) > 1:
            raise UsageError(f"{' '.join(given)}: give one of them")
        if not given:
            raise UsageError(
                f"nothing to trace: give {flag('step', 'N')}, {flag('steps', 'A:B')}, "
                f"{flag('document', 'DIGEST')}, {flag('text', 'FILE')} or "
                f"{flag('forgotten', 'FILE')}"
            )
        if self.above is not None and self.steps is None:
            raise UsageError(f"{flag('above', self.above)} needs {flag('steps', 'A:B')}")
        if self.steps is not None:
            self.range_of_steps()
        if self.most < 1:
            raise FieldError("most", self.most, "must be at least 1")

    def range_of_steps(self) -> Tuple[int, int]:
        """The first and the last step of --steps.

        Raises:
          FieldError: it has a different form.
        """
        found = re.fullmatch(r"([0-9]{1,10}):([0-9]{1,10})", self.steps or "")
        first, last = (int(found[1]), int(found[2])) if found else (1, 0)
        if last < first:
            raise FieldError("steps", self.steps, "give the first and the last step, as 480:520")
        return first, last
