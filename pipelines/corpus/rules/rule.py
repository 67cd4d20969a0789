"""The interface of rules: rule groups (`RuleGroup`), rules, and verdicts on many documents at once.

A rule group is a frozen dataclass of flags, a `RuleGroup`, in a file of this folder, and one field
of `pipelines.corpus.filters.Filters`. Its docstring and those of its fields are the help text. It
checks its values when it is created, and makes the rules that they turn on; a rule loads its model
or table then, once a process. The reason of a dropped document is `group:rule`, with the name of
the field: `gopher:min_words`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from textmill.pipelines.corpus.decontamination.matches import Hit
from textmill.schemas.commands.values import text_of
from textmill.schemas.errors import FieldError
from textmill.schemas.format.drops import Observed

MOST = 1 << 63  # compiled loops take int64, and readers of schema.json reject larger numbers


@dataclass(frozen=True)
class RuleResult:
    """The verdicts of a rule on n documents.

    Attributes:
      reason: bool or integer [n]; 0 keeps a document, i drops it for the i-th reason of the rule,
        counted from 1.
      text: large_string [n], the edited texts; None if the rule does not edit.
      observed: further counts, section -> key -> number: {"language": {"nb": 3}}.
      hits: (number of the document, overlap with an evaluation text).
      measured: [n], the number or word by which each document was judged.
      limit: [n], what the measured values are compared to, if it differs between documents.
      added: further columns of the documents, by name; see `RuleGroup.added`.
      known: [n], facts by name that are not columns of the corpus: {"language": ["en", "nb"]}.
      scores: float32 [n], scores of a model, which the report shows.
    """

    reason: np.ndarray
    text: pa.LargeStringArray | None = None
    observed: Observed = field(default_factory=dict)
    hits: tuple[tuple[int, Hit], ...] = ()
    measured: np.ndarray | None = None
    limit: np.ndarray | None = None
    added: Mapping[str, pa.Array] = field(default_factory=dict)
    known: Mapping[str, list[str]] = field(default_factory=dict)
    scores: np.ndarray | None = None


@dataclass(frozen=True)
class Rule:
    """A rule with the values of its flags.

    Attributes:
      reasons: reasons for which it drops documents. A document left empty by an edit is dropped
        for the first.
      judge: called with the texts of documents and a column for each of `roles`; returns verdicts.
      edits: name under which edited documents are counted, {"edited": {"c4": 30}}; "" if the rule
        does not edit.
      limits: the limit of each reason, to which measured values are compared; () without limits,
        or if verdicts carry them.
      roles: fields besides the text that it judges by, such as url.
      searches: whether it is called with the finder of evaluation texts, which a run prepares, too.
    """

    reasons: tuple[str, ...]
    judge: Callable[..., RuleResult]
    edits: str = ""
    limits: tuple[float | str, ...] = ()
    roles: tuple[str, ...] = ()
    searches: bool = False


class RuleGroup(ABC):
    """The flags of a rule group.

    Attributes:
      CAUSES: reason -> likely cause and remedy, if it drops more than half of all documents; the
        key "" is for edits that remove more than half of the text.
      REASONS: its reasons that do not begin with the name of the group.
    """

    CAUSES: ClassVar[dict[str, str]] = {}
    REASONS: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def make_rules(self) -> Iterator[Rule]:
        """The rules that the flags turn on.

        Raises:
          UsageError: a model or list that a rule needs is not available on this machine.
        """

    def roles(self) -> dict[str, str]:
        """Fields that the rules need besides the text -> the flag that needs each."""
        return {}

    def added(self) -> tuple[str, ...]:
        """Names of the columns of numbers, float32, that the rules add to the documents."""
        return ()

    def settings(self) -> dict[str, Any]:
        """Values of the flags that are not None, by name."""
        values = ((flag.name, getattr(self, flag.name)) for flag in fields(self))  # pyright: ignore
        return {name: value for name, value in values if value is not None}

    def parameters(self) -> dict[str, Any]:
        """Settings as their texts, for fingerprints."""
        hints = {flag.name: flag.type for flag in fields(self)}  # pyright: ignore
        return {name: text_of(hints[name], value) for name, value in self.settings().items()}

    def with_paper_defaults(self) -> Self:
        """A copy with the numbers of the paper for flags that are not set."""
        return replace(self, **{**papers_numbers(type(self)), **self.settings()})  # pyright: ignore


def paper(value: Any, text: str = "") -> Any:
    """A flag that is None by default, and has this value in the paper of its group.

    Args:
      value: the value.
      text: how the command line writes it, if not by `str`.
    """
    shown = f"{text or value} with --quality"
    return field(default=None, metadata={"paper": value, "default": shown})


def papers_numbers(group: type) -> dict[str, Any]:
    """The flags of a rule group with the numbers of its paper; {} without a paper."""
    return {f.name: f.metadata["paper"] for f in fields(group) if "paper" in f.metadata}


def check_numbers(flags: Any) -> None:
    """Checks that numbers are not negative and have 63 bits.

    Raises:
      FieldError: a number is too small or too large.
    """
    for name, value in vars(flags).items():
        if isinstance(value, int | float) and not 0 <= value < MOST:
            raise FieldError(name, value, "give a number of at least 0 and below 2**63")
