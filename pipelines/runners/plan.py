"""Plans the disk, memory, time and shuffles of a run; `--dry_run` of every builder prints them.

A builder estimates `Needs` from a sample of its inputs, with the functions of the run. A run on
this machine is compared with the machine; one on a cluster is not.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache

from rich.filesize import decimal

from textmill.pipelines.readers.compression import is_compressed
from textmill.pipelines.readers.sources import CLUSTER_WORKERS, uneven
from textmill.pipelines.runners.block_run import BlockRun
from textmill.pipelines.runners.console import cpu_hours, duration
from textmill.pipelines.runners.forked_workers import can_fork
from textmill.pipelines.runners.shuffle import ELEMENT_BYTES, ELEMENT_SECONDS
from textmill.pipelines.runtime.imports import psutil
from textmill.schemas.commands.terminal import number_of
from textmill.schemas.errors import Caution, flag
from textmill.schemas.files import store

# Measured: Beam in memory, and a worker with its programs and a loaded tokenizer.
_BEAM_BYTES, WORKER_BYTES = 100_000_000, 500_000_000
_FORKED_BYTES = 200_000_000  # of a forked worker, not shared: fitted to PSS of 3 runs, 1.3 GB
_BEGIN_SECONDS = 1.0  # measured: a run of 50 kB; assumed once more for new interpreters
_SHUFFLE_SECONDS = 0.2  # of Beam's local runner, for a shuffle with its steps
_GAIN = 0.8  # of each worker: they share memory and disk, and threads the interpreter
_EXPANSION = 4  # bytes of text for a byte of a compressed file
_PRIME_PROCESSES = 2  # of a worker: Dataflow starts one for each vCPU
_BUSY = 0.5  # load of a core above which a plan mentions it


def hinted_memory(run: BlockRun, times: float, keys: int) -> int:
    """Bytes of a worker of Dataflow Prime for a key of a shuffle; 0 for other runners.

    Args:
      run: the inputs, of whose text each key gets an equal part.
      times: memory for a key in multiples of its bytes of text.
      keys: number of keys.
    """
    if not run.flags.is_prime:
        return 0
    text = sum(
        part.bytes * (_EXPANSION if is_compressed(part.path) or part.format == "parquet" else 1)
        for block in run.blocks
        for part in block.parts
    )
    return int(_PRIME_PROCESSES * (WORKER_BYTES + times * text / keys))


@dataclass
class Clock:
    """CPU seconds of the parts of a work, of all threads of this process, and seconds that passed.

    with clock.part("rules"):
        ...
    """

    cpu: dict[str, float] = field(default_factory=dict)
    passed: float = 0.0

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Times a block as a part of the work."""
        began, cpu_began = time.perf_counter(), time.process_time()
        yield
        self.add(name, time.process_time() - cpu_began, time.perf_counter() - began)

    def add(self, name: str, cpu: float, passed: float) -> None:
        """Adds CPU seconds of a part, and the seconds that passed meanwhile."""
        self.cpu[name] = self.cpu.get(name, 0.0) + cpu
        self.passed += passed

    @property
    def slowdown(self) -> float:
        """Seconds for a CPU second, at least 1: above 1 while other processes need the cores."""
        return max(1.0, self.passed / max(sum(self.cpu.values()), 1e-9))


@dataclass(frozen=True, kw_only=True)
class Needs:
    """Estimates of the resources that a run needs.

    Attributes:
      whole: whether the inputs were read whole.
      sampled_bytes: stored bytes that were read.
      text_bytes: of the inputs, after decompression.
      cpu_seconds: of one core by part of the work, without loading and compiling.
      serial_seconds: the same of work that one process does after all others.
      slowdown: see `Clock`.
      output_bytes: of the output's files.
      shuffled_bytes: that workers send each other.
      scratch_bytes: of the scratch files of --shuffle_by=files.
      block_bytes: memory of a worker that reads, beside its programs.
      key_bytes: memory of a worker that handles a key of a shuffle.
      serial_bytes: memory of the work after all others.
      shuffles: number of shuffles.
      elements: of all shuffles, on a cluster.
      blocks: number of blocks.
      keys: number of keys of a shuffle: shards or files.
    """

    whole: bool
    sampled_bytes: int
    text_bytes: float
    cpu_seconds: Mapping[str, float]
    serial_seconds: Mapping[str, float] = field(default_factory=dict)
    slowdown: float = 1.0
    output_bytes: float
    shuffled_bytes: float
    scratch_bytes: float = 0.0
    block_bytes: float
    key_bytes: float = 0.0
    serial_bytes: float = 0.0
    shuffles: int
    elements: float = 0.0
    blocks: int
    keys: int


@dataclass(frozen=True)
class RunPlan:
    """A run and what it needs.

    Attributes:
      on: the inputs and the runner.
      output: the directory or URL of the output.
      holds: what the output's files are: shards, documents.
      needs: of the run.
      times: how much larger the inputs are assumed to be.
    """

    on: BlockRun
    output: str
    holds: str
    needs: Needs
    times: float = 1.0

    @property
    def workers(self) -> int:
        """--direct_num_workers; 1 if the run is in this process, 0 on a cluster (unknown)."""
        return self.on.flags.number if self.on.is_local else 0

    def disk_bytes(self) -> int:
        """The most bytes needed on this machine's disk: output and scratch files."""
        output = 0 if store.is_url(self.output) else self.needs.output_bytes
        return int(output + self.needs.scratch_bytes * (self.on.shuffle_by == "files"))

    def free_bytes(self) -> int:
        """Free bytes on the disk of the output, or of temporary files for an object store."""
        remote = store.is_url(self.output)
        path = tempfile.gettempdir() if remote else os.path.abspath(self.output)
        while not os.path.exists(path):
            path = os.path.dirname(path)
        return shutil.disk_usage(path).free

    def seconds(self) -> float:
        """Expected seconds of a run on this machine from the command to the finished output."""
        needs, gain = self.needs, max(1.0, self.workers * _GAIN)
        begin = _BEGIN_SECONDS * (1 + (self.on.flags.in_processes and not can_fork()))
        begin += (needs.shuffles - 1) * _SHUFFLE_SECONDS
        work = sum(needs.cpu_seconds.values()) / gain + sum(needs.serial_seconds.values())
        return begin + work * needs.slowdown

    def memory_bytes(self) -> int:
        """The most bytes that a run on this machine needs: of all its workers."""
        base = psutil.Process().memory_info().rss + _BEAM_BYTES
        workers = max(self.workers, 1)
        in_processes = workers * self.on.flags.in_processes
        own = in_processes * (_FORKED_BYTES if can_fork() else base)
        needs = self.needs
        readers = min(workers, len(self.on.blocks) if self.times == 1 else needs.blocks)
        writers = min(workers, needs.keys)
        held = max(readers * needs.block_bytes, writers * needs.key_bytes, self.needs.serial_bytes)
        return int(base + own + held)

    def warnings(self) -> Iterator[Caution]:
        """Reasons why the run may fail or be slow, a line each."""
        if self.on.is_local:
            need, free = self.disk_bytes(), self.free_bytes()
            if need > free:
                yield Caution(
                    f"the disk of {self.output} is too small: about {decimal(need)} are needed and "
                    f"{decimal(free)} are free; use another {flag('output')}"
                )
            need, available = self.memory_bytes(), psutil.virtual_memory().available
            if need > available:
                yield Caution(
                    f"memory may be too small: about {decimal(need)} are needed and "
                    f"{decimal(available)} are available; use fewer {flag('direct_num_workers')} "
                    "or more and smaller files"
                )
        if waiting := uneven(self.on.blocks, self.workers or CLUSTER_WORKERS):
            yield waiting

    def inputs(self) -> str:
        """`3 files, 12.0 MB, 1 block; read whole`."""
        files = {part.path: part.size for block in self.on.blocks for part in block.parts}
        sample = "read whole"
        if not self.needs.whole:
            sample = f"estimated from a sample of {decimal(self.needs.sampled_bytes)}"
        assumed = ""
        if self.times != 1:
            assumed = f"a sample of {decimal(int(self.on.total_bytes * self.times))}; "
        return (
            f"{number_of(len(files), 'file')}, {decimal(sum(files.values()))}, "
            f"{number_of(len(self.on.blocks), 'block')}; {assumed}{sample}"
        )

    def facts(self) -> dict[str, str]:
        """The lines of disk, memory, time and shuffles, by their titles."""
        needs = self.needs
        output = f"about {decimal(int(needs.output_bytes))} of {self.holds}"
        shuffled = decimal(int(needs.shuffled_bytes + needs.elements * ELEMENT_BYTES))
        parts = {**needs.cpu_seconds, **needs.serial_seconds}
        total = sum(parts.values())
        shares = ", ".join(
            f"{name} {seconds / max(total, 1e-9):.0%}"
            for name, seconds in sorted(parts.items(), key=lambda item: -item[1])
        )
        measured = f"measured on {describe_machine()}"
        facts = {}
        if self.on.is_local:
            scratch = f" and {decimal(int(needs.scratch_bytes))} of scratch"
            facts |= {
                "disk": output
                + scratch * (self.on.shuffle_by == "files" and needs.scratch_bytes > 0)
                + f"; {decimal(self.free_bytes())} free",
                "memory": f"about {decimal(self.memory_bytes())}; "
                f"{decimal(psutil.virtual_memory().available)} available",
                "time": f"about {duration(self.seconds())}, {self.on.how}",
                "work": f"{shares}; {measured}",
            }
        facts["shuffles"] = f"{needs.shuffles:,}, about {shuffled}"
        if not self.on.is_local or self.times != 1:
            seconds = total + needs.elements * ELEMENT_SECONDS
            facts["on a cluster"] = (
                f"{cpu_hours(seconds, max(needs.blocks, needs.keys))}; {measured}"
            )
            worker = WORKER_BYTES + max(needs.block_bytes, needs.key_bytes)
            facts["memory of a worker"] = f"about {decimal(int(worker))}, its programs included"
        if not self.on.is_local:
            facts |= {"disk": f"{output} in {self.output}", "work": shares, "runs": self.on.how}
        return facts


@cache
def describe_machine() -> str:
    """`this machine (Intel Xeon 2.8 GHz, 2 cores)`, with its load if other processes are busy."""
    name = "an unknown processor"
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
        name = names[0] if names else name
    except OSError:
        pass
    cores, load = os.cpu_count() or 1, os.getloadavg()[0]
    busy = f", at a load of {load:.1f}" if load > _BUSY * cores else ", nearly idle"
    return f"this machine ({name}, {number_of(cores, 'core')}{busy})"
