"""What workers say of their part of a run, and how it adds up. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar, Self

from pipelines.filters.filter_documents import Filtered
from pipelines.readers.documents import Reject
from pipelines.runners.deliveries import Deliveries
from pipelines.writers.rejects import Rejects, Stashed
from schemas.drops import total_counts

ALL = 0  # the key of every report


@dataclass(frozen=True, kw_only=True)
class BlockReport:
    """What a bundle says of the blocks that it read; a command adds fields of its own.

    Reports add up field by field: numbers; tuples, one after another; counts by name; and what has
    a `sum` itself. `ADDED` names functions for fields that add up otherwise.

    Attributes:
      rejects: refused documents.
      digests: of the stored ranges, see `Documents`.
      stashed: where documents are that filters dropped, if they are to be kept.
      deliveries: which blocks were read, and what was sent and received.
    """

    ADDED: ClassVar[dict[str, Callable[[Iterable[Any]], Any]]] = {}

    rejects: Rejects = field(default_factory=Rejects)
    digests: tuple[tuple[str, int, int, str], ...] = ()
    stashed: tuple[Stashed, ...] = ()
    deliveries: Deliveries = field(default_factory=Deliveries)

    @classmethod
    def of(
        cls,
        filtered: Filtered,
        stashed: tuple[Stashed, ...],
        *,
        refused: Iterable[Reject] = (),
        **others: Any,
    ) -> Self:
        """The report of a piece of a block; `refused` are documents that its task refused."""
        documents = filtered.documents
        rejects = Rejects.of((*documents.rejects, *refused))
        return cls(rejects=rejects, digests=documents.digests, stashed=stashed, **others)

    @classmethod
    def sum(cls, reports: Iterable[Self]) -> Self:
        """All of them as one, in linear time."""
        reports = list(reports)

        def added(name: str, nothing: Any) -> Any:
            parts = [getattr(report, name) for report in reports]
            if name in cls.ADDED:
                return cls.ADDED[name](parts)
            if isinstance(nothing, tuple):
                return tuple(chain.from_iterable(parts))
            if isinstance(nothing, dict):
                return total_counts(*parts)
            return type(nothing).sum(parts) if hasattr(nothing, "sum") else sum(parts)

        return cls(**{name: added(name, nothing) for name, nothing in vars(cls()).items()})
