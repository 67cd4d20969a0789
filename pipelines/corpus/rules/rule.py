"""What a family of rules is, what a rule is, and what it makes of many documents at once.

A family is one file here and one row of the table, `pipelines.corpus.filters.Filters`. The file has
a frozen dataclass of flags, a `Family`: its docstring and those of its fields are the help; it
checks values when it is made, and makes the rules that they ask for. What a rule needs beside its
flags (a model, a table of n-grams) it loads when it is made, once a process. The reason of a
dropped document is `family:rule`, with the name of the row: `gopher:min_words`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from pipelines.corpus.decontamination.hits import Hit
from schemas.drops import Observed
from schemas.errors import UsageError


@dataclass(frozen=True)
class Judged:
    """What a rule says of n documents.

    Attributes:
      reason: bool or integer [n]: 0 for a document that is kept, i for one that is dropped for the
        rule's reason i, the first of which is 1.
      text: the documents as the rules after this one see them, and as they are kept; None where
        they stay as they are.
      observed: what is counted besides, section to key to number: {"language": {"nb": 3}}.
      hits: numbers of documents with what they have in common with evaluation texts.
      measured: [n], the number or word by which each document was judged.
    """

    reason: np.ndarray
    text: pa.LargeStringArray | None = None
    observed: Observed = field(default_factory=dict)
    hits: tuple[tuple[int, Hit], ...] = ()
    measured: np.ndarray | None = None


@dataclass(frozen=True)
class Rule:
    """A rule as flags ask for it.

    Attributes:
      reasons: for which it drops documents.
      judge: judges documents: given their texts, and then a column for each of `roles`.
      edits: what edited documents are counted under, {"edited": {"c4": 30}}, where it edits texts;
        "" if it does not. The reason of those that an edit leaves without text is the first.
      limits: of each reason, what the measured value is compared with; none where there is none.
      roles: of a document that it judges by besides its text, such as url.
    """

    reasons: tuple[str, ...]
    judge: Callable[..., Judged]
    edits: str = ""
    limits: tuple[float | str, ...] = ()
    roles: tuple[str, ...] = ()


class Family:
    """Flags of a family of rules.

    Attributes:
      CAUSES: why a reason may take more than half of all documents, in words that say what to do;
        of "", why edits may take more than half of the text.
      REASONS: for which it drops documents, where these do not begin with the family's name.
    """

    CAUSES: ClassVar[dict[str, str]] = {}
    REASONS: ClassVar[tuple[str, ...]] = ()

    def make_rules(self) -> Iterator[Rule]:
        """The rules that the flags ask for.

        Raises:
          UsageError: what a rule needs is missing here.
        """
        raise NotImplementedError

    def roles(self) -> dict[str, str]:
        """The roles of documents that the rules need besides the text, and the flags that do."""
        return {}

    def parameters(self) -> dict[str, Any]:
        """What decides, by flag, for the fingerprint; without flags that are None."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def of_paper(self) -> Self:
        """The same, with the numbers of the family's paper where a flag is not given."""
        given = self.parameters()
        return replace(self, **{**papers_numbers(type(self)), **given})  # pyright: ignore


def paper(value: Any) -> Any:
    """A flag that is None if it is not given, and has this value in the family's paper."""
    return field(default=None, metadata={"paper": value, "default": f"{value} with --quality"})


def papers_numbers(family: type) -> dict[str, Any]:
    """The flags of a family with the numbers of its paper; {} where there is none."""
    return {f.name: f.metadata["paper"] for f in fields(family) if "paper" in f.metadata}


def check_numbers(flags: Any) -> None:
    """Refuses numbers below 0, and what is no number.

    Raises:
      UsageError: names the flag.
    """
    for name, value in vars(flags).items():
        if isinstance(value, int | float) and not 0 <= value < float("inf"):
            raise UsageError(f"--{name}={value}: a number from 0 on")
