"""The frame of every Beam command around its own transforms: plan, job, reports, execution."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from rich.filesize import decimal

from textmill.pipelines.readers.documents import Documents, Reject
from textmill.pipelines.readers.sources import (
    CLUSTER_WORKERS,
    Block,
    Source,
    uneven,
    write_blocks,
)
from textmill.pipelines.runners.launch import with_beam
from textmill.pipelines.runners.result import Say
from textmill.pipelines.runners.runner_flags import RunnerFlags, runner_flags
from textmill.pipelines.runners.shuffle import AGAIN, DeliveryReport
from textmill.pipelines.writers.rejects import Rejects
from textmill.pipelines.writers.staging import Staging
from textmill.schemas.commands.terminal import number_of
from textmill.schemas.errors import DataError
from textmill.schemas.files.store import is_url
from textmill.schemas.format.drops import total_counts

if TYPE_CHECKING:
    import apache_beam as beam

J = TypeVar("J", bound="BlockJob")
ALL = 0  # the key of every report


@dataclass(frozen=True, kw_only=True)
class BlockJob:
    """The settings that every worker needs; commands add fields.

    Attributes:
      source: how inputs are read.
      staging: the directory of files that are not yet published.
      local: a directory of the machine that launched the run, for the progress display.
      scratch: the directory of files that workers send each other.
      run: the id of the run that waits for this job.
      shuffle_by: how batches travel between workers: files or runner.
      blocks: number of blocks of the plan, each of which must be reported.
      forget: path of the digests of documents to forget; "" for none.
      memory: bytes that a worker needs for a key of a shuffle, if the runner chooses machines by
        them; else 0.
    """

    source: Source
    staging: str
    local: str
    scratch: str
    run: str
    shuffle_by: str
    blocks: int
    forget: str = ""
    memory: int = 0

    @property
    def keys(self) -> int:
        """Number of keys of its shuffles."""
        return 1


@dataclass(frozen=True, kw_only=True)
class BlockReport:
    """The report of a bundle about the blocks that it read; commands add fields.

    Reports add up field by field: numbers, tuples (joined), counts by name, and values with a
    method `sum`. `ADDED` has functions for fields that add up in a different way.

    Attributes:
      rejects: rejected documents.
      digests: digests of the stored ranges, see `Documents`.
      forgotten: digest to number of documents that --forget removed.
      deliveries: the blocks that were read, and the tallies of sent and received values.
    """

    ADDED: ClassVar[dict[str, Callable[[Iterable[Any]], Any]]] = {}

    rejects: Rejects = field(default_factory=Rejects)
    digests: tuple[tuple[str, int, int, str], ...] = ()
    forgotten: Mapping[str, int] = field(default_factory=dict)
    deliveries: DeliveryReport = field(default_factory=DeliveryReport)

    @classmethod
    def of(cls, documents: Documents, /, *, refused: Iterable[Reject] = (), **others: Any) -> Self:
        """The report of a piece of a block; `refused` are documents that the task rejected."""
        rejects = Rejects.of((*documents.rejects, *refused))
        return cls(rejects=rejects, digests=documents.digests, **others)

    @classmethod
    def sum(cls, reports: Iterable[Self]) -> Self:
        """Adds up reports, in linear time."""
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
    """The plan of a command and its runner.

    Attributes:
      command: the name of the command.
      source: how inputs are read.
      blocks: the blocks of the inputs.
      beam_arguments: Beam's flags, with a runner.
      how: a description of the runner.
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
        """Beam's flags of runner and workers."""
        return runner_flags(self.beam_arguments)

    @property
    def is_local(self) -> bool:
        """Whether all workers are on this machine."""
        return self.flags.is_local

    @property
    def shuffle_by(self) -> str:
        """How batches travel between workers: files or runner."""
        if self.asked_shuffle_by != "auto":
            return self.asked_shuffle_by
        return "files" if self.is_local else "runner"

    @property
    def shuffle(self) -> str:
        """`shuffle_by` as a run prints it."""
        return "scratch files" if self.shuffle_by == "files" else "the runner's"

    @property
    def total_bytes(self) -> int:
        """The stored bytes of all inputs."""
        return sum(block.bytes for block in self.blocks)

    @property
    def facts(self) -> str:
        """A description of the size and the runner."""
        blocks = number_of(len(self.blocks), "block")
        return f"{decimal(self.total_bytes)} in {blocks}, {self.how}"

    def job(self, kind: Callable[..., J], staging: Staging, **own: Any) -> J:
        """The job for workers: the settings of every command, and a command's `own`."""
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

    def prepare(self, staging: Staging, say: Say) -> None:
        """Writes the blocks to the staging directory; warns if workers will wait for each other."""
        workers = self.flags.number if self.is_local else CLUSTER_WORKERS
        if warning := uneven(self.blocks, workers):
            say(warning.line)
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
          staging: the staging directory of the run.
          is_done: whether the last step has run.
          count_finished: counts finished shards, for workers whose journal is not visible here.

        Raises:
          DataError: a worker rejected the data, or the run failed.
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
                "the runner ended the job before its last step (a Dataflow template runs no job): "
                f"{AGAIN}"
            )
