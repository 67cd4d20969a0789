"""The result of checking a finished directory. Pure."""

from dataclasses import dataclass, field

from textmill.schemas.commands.terminal import number_of

SHOWN = 20  # problems of a dataset that are printed


@dataclass
class Findings:
    """The result of checking a finished directory.

    Attributes:
      problems: sentences, each of which names the file.
      notes: oddities that harm no reader.
      rows: rows read; a dataset in two formats counts once.
      tokens: tokens in these rows, without padding.
      documents: documents of a corpus.
    """

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    rows: int = 0
    tokens: int = 0
    documents: int = 0

    def failure(self, directory: str, is_bad: str = "differs from what was published") -> str:
        """Describes the problems of this directory in a few lines."""
        more = len(self.problems) - SHOWN
        shown = self.problems[:SHOWN] + ([f"and {more:,} more"] if more > 0 else [])
        what = number_of(len(self.problems), "problem")
        return "\n  ".join([f"{directory} {is_bad}, {what}:", *shown])
