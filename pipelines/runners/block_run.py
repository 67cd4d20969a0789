"""What every Beam command does around its own transforms: from the plan to the last step."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from rich.filesize import decimal

from pipelines.readers.documents import Documents, Reject
from pipelines.readers.sources import (
    CLUSTER_WORKERS,
    Block,
    Source,
    uneven,
    write_blocks,
)
from pipelines.runners.beam_flags import RunnerFlags, runner_flags
from pipelines.runners.launch import with_beam
from pipelines.runners.shuffle import AGAIN, Deliveries
from pipelines.storage.store import is_url
from pipelines.writers.rejects import Rejects
from pipelines.writers.staging import Staging
from schemas.commands.terminal import number_of
from schemas.drops import total_counts
from schemas.errors import DataError

if TYPE_CHECKING:
    import apache_beam as beam

J = TypeVar("J", bound="BlockJob")
ALL = 0  # the key of every report


@dataclass(frozen=True, kw_only=True)
class BlockJob:
    """What every worker needs to know; a command adds fields of its own.

    Attributes:
      source: how inputs are read.
      staging: the folder where files wait to be published.
      local: a folder of the machine that launched the run, for those who watch it.
      scratch: the folder for what workers hand on to each other.
      run: names the run that waits for this job.
      shuffle_by: what carries batches from worker to worker: files or runner.
      blocks: how many the plan has, each of which must be reported.
    """

    source: Source
    staging: str
    local: str
    scratch: str
    run: str
    shuffle_by: str
    blocks: int


@dataclass(frozen=True, kw_only=True)
class BlockReport:
    """What a bundle reports of the blocks that it read; a command adds fields of its own.

    Reports add up field by field: numbers; tuples, one after another; counts by name; and what has
    a `sum` itself. `ADDED` names functions for fields that add up otherwise.

    Attributes:
      rejects: refused documents.
      digests: of the stored ranges, see `Documents`.
      deliveries: which blocks were read, and what was sent and received.
    """

    ADDED: ClassVar[dict[str, Callable[[Iterable[Any]], Any]]] = {}

    rejects: Rejects = field(default_factory=Rejects)
    digests: tuple[tuple[str, int, int, str], ...] = ()
    deliveries: Deliveries = field(default_factory=Deliveries)

    @classmethod
    def of(cls, documents: Documents, /, *, refused: Iterable[Reject] = (), **others: Any) -> Self:
        """The report of a piece of a block; `refused` are documents that its task refused."""
        rejects = Rejects.of((*documents.rejects, *refused))
        return cls(rejects=rejects, digests=documents.digests, **others)

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


@dataclass(frozen=True)
class BlockRun:
    """A command's plan, and what runs it.

    Attributes:
      command: its name.
      beam_arguments: the command's other flags, with a runner.
      how: the choice of the runner, in words.
      asked_shuffle_by: auto, files or runner.
      filter: the user's function, which workers must be able to import; "" for none.
    """

    command: str
    source: Source
    blocks: list[Block]
    beam_arguments: list[str]
    how: str = ""
    asked_shuffle_by: str = "auto"
    filter: str = ""

    @property
    def flags(self) -> RunnerFlags:
        """What Beam's flags say of runner and workers."""
        return runner_flags(self.beam_arguments)

    @property
    def is_local(self) -> bool:
        """Whether all workers are on this machine."""
        return self.flags.is_local

    @property
    def shuffle_by(self) -> str:
        """What carries batches from worker to worker: files or runner."""
        if self.asked_shuffle_by != "auto":
            return self.asked_shuffle_by
        return "files" if self.is_local else "runner"

    @property
    def total_bytes(self) -> int:
        """Of all inputs, as stored."""
        return sum(block.bytes for block in self.blocks)

    @property
    def facts(self) -> str:
        """Size and runner, in words."""
        blocks = number_of(len(self.blocks), "block")
        return f"{decimal(self.total_bytes)} in {blocks}, {self.how}"

    def job(self, kind: Callable[..., J], staging: Staging, **own: Any) -> J:
        """What workers need to know: what every command's do, and a command's `own`."""
        shared = {
            "source": self.source,
            "staging": staging.folder,
            "local": staging.local,
            "scratch": staging.scratch(local=self.is_local),
            "run": staging.run,
            "shuffle_by": self.shuffle_by,
            "blocks": len(self.blocks),
        }
        return kind(**shared | own)

    def prepare(self, staging: Staging, say: Callable[[str], None]) -> None:
        """Leaves the blocks in the staging folder, and says what will hold workers up."""
        workers = self.flags.number if self.is_local else CLUSTER_WORKERS
        if waiting := uneven(self.blocks, workers):
            say(f"warning: {waiting}")
        scratch = staging.scratch(local=self.is_local)
        if not is_url(scratch):
            os.mkdir(scratch)
        write_blocks(staging.folder, self.blocks)

    def execute(
        self,
        build: "Callable[[beam.Pipeline], Any]",
        staging: Staging,
        *,
        is_done: Callable[[], bool],
        count_finished: Callable[[], int] | None = None,
    ) -> None:
        """Runs the pipeline to its end, and checks that its last step has run.

        Args:
          build: adds the transforms to a pipeline.
          staging: of the run.
          is_done: whether the last step has run.
          count_finished: counts finished shards, where workers keep no journal that is seen here.

        Raises:
          DataError: a worker refused the data, or the run failed; in words.
        """
        with_beam().run_pipeline(
            build,
            self.beam_arguments,
            local=staging.local,
            total_bytes=self.total_bytes,
            label=self.command,
            filter_name=self.filter,
            count_finished=count_finished,
            is_published=is_done,
        )
        if not is_done():
            raise DataError(
                "the runner ended the job before its last step had run (of a template it runs "
                f"none): {AGAIN}"
            )
