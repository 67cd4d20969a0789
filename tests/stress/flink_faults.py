"""Faults of a Flink cluster during runs, and their outcomes, as a table.

    python -m tests.stress.flink_faults --help

Each cell starts a command on two hosts, waits until its map or its write phase is under way, as the
journal in the staging folder tells, and breaks something. A killed process is started again after
some seconds, as any supervisor would (Kubernetes, compose, systemd). The command completes with the
bytes of a local run, or fails with a clear error and leaves no manifest; then it completes when
run again.
"""

import contextlib
import json
import os
import pydoc_data.topics
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import tyro

from tests.tools.flink_cluster import CannotRun, Cluster, flink_cluster
from tests.tools.model_files import model_bytes
from tests.tools.places import CHAT_TEMPLATE, ROOT
from textmill.schemas.files import finished
from textmill.schemas.format.manifest import MANIFEST

PHASES = ("map", "write")
COMMANDS = ("train_tokenizer", "build_shards")
CORPORA = ("build_corpus", "delta")  # the second is built against the first
SETS = ("chat", "tokens", *CORPORA)  # of other flags; faults are those of build_shards
_ROWS = ["--max_length=64"]
_OWN = {
    "train_tokenizer": ["--vocab_size=3000"],
    "build_shards": ["--num_shards=200", "--task=mlm", *_ROWS],
    "chat": ["--num_shards=8", "--task=chat", f"--chat_template={CHAT_TEMPLATE}", *_ROWS],
    "tokens": ["--num_shards=8", "--task=tokens", "--file_format=megatron,npy"],
    "build_corpus": ["--num_files=8", "--keep_best=0.3"],
    "delta": ["--num_files=3", "--near_duplicates=jaccard:0.7"],
}
_FILES = 6
_REVIVED_AFTER = 3.0  # seconds
_CUT_SECONDS = 20.0
_MOST_SECONDS = 240.0  # a run that takes longer hangs
# The user's own, beside the job: slow while a file exists.
_FILTER = """
import os, time
def slowly(document):
    if os.path.exists({switch!r}):
        time.sleep({seconds})
"""


def _cut(cluster: Cluster) -> None:
    threading.Thread(target=cluster.cut, args=(1, _CUT_SECONDS)).start()


FAULTS: dict[str, Callable[[Cluster], object]] = {
    "TaskManager": lambda cluster: cluster.kill("task_manager_1"),
    # With its workers, as when a container ends.
    "pool": lambda cluster: os.killpg(cluster.processes["pool_1"].pid, signal.SIGKILL),
    "worker": lambda cluster: os.kill(cluster.workers()[0], signal.SIGKILL),
    "job_server": lambda cluster: cluster.kill("job_server"),
    "network": _cut,
    "both_TaskManagers": lambda cluster: cluster.kill("task_manager_1", "task_manager_2"),
    "JobManager": lambda cluster: cluster.kill("job_manager"),
    # Its workers live on.
    "pool_alone": lambda cluster: cluster.kill("pool_1"),
}
_USUAL = ("TaskManager", "pool", "worker", "job_server", "network")


@dataclass(frozen=True)
class Work:
    """Text, a filter that can be slow, and the same commands run locally.

    Attributes:
      folder: of all of it.
      seconds: that a slow filter takes for a document.
    """

    folder: Path
    seconds: float = 0.003

    @property
    def switch(self) -> Path:
        """The filter is slow while this is there."""
        return self.folder / "slow"

    def prepare(self) -> None:
        """Writes text and filter, makes the tokenizer and the set that all others must equal."""
        text = self.folder / "text"
        text.mkdir(parents=True)
        topics = [p for t in pydoc_data.topics.topics.values() for p in t.split("\n\n") if p]
        (self.folder / "chats").mkdir()
        for number in range(_FILES):
            with open(self.folder / "chats" / f"{number}.jsonl", "w") as file:
                for topic in topics[number::_FILES]:
                    said = {"user": topic[:20], "assistant": topic}
                    messages = [{"role": r, "content": c} for r, c in said.items()]
                    file.write(json.dumps({"messages": messages}) + "\n")
            # In each file words of its own, so that no document is a duplicate.
            lines = (f"{number}{i} {' '.join(p.split())}\n" for i, p in enumerate(topics))
            (text / f"{number}.txt").write_text("".join(lines))
        filter_ = _FILTER.format(switch=str(self.switch), seconds=self.seconds)
        (self.folder / "slow_filter.py").write_text(filter_)
        (self.folder / "quality.bin").write_bytes(model_bytes(3))
        for name in (*COMMANDS, *SETS):
            self.run(name, self.folder / f"local_{name}", [])

    def command(self, name: str, output: Path, flags: Sequence[str]) -> list[str]:
        """A command line; of the name of a task the one that builds its set."""
        of_corpus = "build_corpus" if name in CORPORA else "build_shards"
        module = name if name in COMMANDS else of_corpus
        inputs = [f"--input={self.folder / 'text'}", "--document=line"]
        if name == "chat":
            inputs = [f"--input={self.folder / 'chats'}"]
        if module == "build_shards":
            inputs.append(f"--tokenizer={self.folder / 'local_train_tokenizer'}")
        if module == "build_corpus":
            inputs.append(f"--quality_model={self.folder / 'quality.bin'}")
        if name == "delta":
            inputs.append(f"--against={self.folder / 'local_build_corpus'}")
        flags = [f"--output={output}", *inputs, *_OWN[name], "--filter=slow_filter:slowly", *flags]
        return [sys.executable, "-m", f"pipelines.{module}", *flags]

    def start(self, name: str, output: Path, flags: Sequence[str], log: Path) -> subprocess.Popen:
        """A run of its own, whose words go to a file."""
        environment = dict(os.environ)
        folders = [str(ROOT), str(self.folder), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
        with open(log, "wb") as said:
            return subprocess.Popen(
                self.command(name, output, flags),
                stdout=said,
                stderr=said,
                env=environment,
                cwd=self.folder,
            )

    def run(self, name: str, output: Path, flags: Sequence[str]) -> None:
        """A run that must succeed.

        Raises:
          AssertionError: it did not; with what it said.
        """
        log = self.folder / "run.log"
        try:
            code = self.start(name, output, flags, log).wait(_MOST_SECONDS)
        except subprocess.TimeoutExpired:
            code = "none: it hangs"
        assert code == 0, f"exit code {code}: {log.read_text()}"

    def differences(self, name: str, output: Path) -> list[str]:
        """Files that are not those of the local run, byte for byte."""
        ours, theirs = (hashes(name, f) for f in (output, self.folder / f"local_{name}"))
        return sorted(path for path in ours | theirs if ours.get(path) != theirs.get(path))


def hashes(name: str, output: Path) -> dict[str, str]:
    """sha256 of the files that must not depend on the runner."""
    if name != "train_tokenizer":
        kind = finished.Corpus if name in CORPORA else finished.DatasetInfo
        made = finished.open_finished(kind, str(output))
        return {file.path: file.sha256 for file in made.manifest.files}
    return {
        file: sha256((output / file).read_bytes()).hexdigest()
        for file in ("tokenizer.json", "histogram.parquet", "report.json")
    }


@dataclass(frozen=True)
class Cell:
    """A fault, and what came of it.

    Attributes:
      state: how far the run was when it was hit.
      outcome: completed, or how it failed.
      restarts: how often Flink began again.
      seconds: of the run.
      again_seconds: of the same command once more; 0 if it was not needed.
      right: it completed with the bytes of the local run, at the latest when run again.
    """

    fault: str
    phase: str
    name: str
    state: str
    outcome: str
    restarts: int
    seconds: float
    again_seconds: float
    right: bool

    def row(self) -> str:
        """A line of the table."""
        again = f"{self.again_seconds:.0f} s" if self.again_seconds else ""
        return (
            f"| {self.fault} | {self.name} | {self.phase} ({self.state}) | {self.outcome} | "
            f"{self.restarts} | {self.seconds:.0f} s | {again} | {'yes' if self.right else 'NO'} |"
        )


HEAD = (
    "| killed or cut | command | phase | what happened | restarts | took | run again | same sha256 "
    "|\n|---|---|---|---|---|---|---|---|"
)


def run_cell(cluster: Cluster, work: Work, fault: str, phase: str, name: str) -> Cell:
    """Breaks something while a command runs, and lets it, or the same command again, complete."""
    output, flags = work.folder / f"{fault}_{phase}_{name}", cluster.flags()
    log = output.with_suffix(".log")
    work.switch.touch()
    began = time.monotonic()
    process = work.start(name, output, flags, log)
    try:
        state = _reached(cluster, work, output, phase, name, process)
        jobs = cluster.running()
        FAULTS[fault](cluster)
        work.switch.unlink(missing_ok=True)
        time.sleep(_REVIVED_AFTER)
        cluster.revive()
        try:
            code = process.wait(_MOST_SECONDS)
            said = [line for line in log.read_text(errors="replace").splitlines() if line]
            outcome = "completed" if code == 0 else f"exit {code}: {_short(said)}"
        except subprocess.TimeoutExpired:
            outcome = "HANGS"
    finally:
        work.switch.unlink(missing_ok=True)
        process.kill()
        process.wait()
    seconds = time.monotonic() - began
    finished = output / (MANIFEST if name == "build_shards" else "tokenizer.json")
    if outcome != "completed" and finished.exists():
        outcome += "; BUT IT IS PUBLISHED"
    restarts = sum(_restarts(cluster, job) for job in jobs)
    again_seconds = 0.0
    if outcome != "completed":
        began = time.monotonic()
        cluster.wait()
        try:
            work.run(name, output, flags)
        except AssertionError as error:
            outcome += f"; AGAIN: {_short(str(error).splitlines())}"
        again_seconds = time.monotonic() - began
    right = finished.exists() and not work.differences(name, output)
    return Cell(fault, phase, name, state, outcome, restarts, seconds, again_seconds, right)


def _reached(
    cluster: Cluster, work: Work, output: Path, phase: str, name: str, process: subprocess.Popen
) -> str:
    """Waits until a run is in a phase; how far it is."""
    total = sum(file.stat().st_size for file in (work.folder / "text").iterdir())
    until = time.monotonic() + _MOST_SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, f"it ended before its {phase} phase"
        read, rows = _journal(output)
        if phase == "map" and read >= total / 4:
            return f"{read / total:.0%} read"
        if phase == "write" and name == "build_shards" and rows:
            return f"{rows:,} rows written"
        if phase == "write" and name == "train_tokenizer" and read >= total:
            return "all read"
        if phase == "write" and read:
            work.switch.unlink(missing_ok=True)  # no need to wait long for it
        time.sleep(0.01)
    raise AssertionError(f"it did not reach its {phase} phase")


def _journal(output: Path) -> tuple[int, int]:
    """Bytes read and rows written."""
    read = rows = 0
    for journal in output.glob(".staging*/**/progress"):
        with contextlib.suppress(OSError):
            for line in journal.read_text().splitlines():
                first, second, *_ = line.split()
                if first.isdigit():  # other lines are about phases
                    read, rows = read + int(first), rows + int(second)
    return read, rows


def _restarts(cluster: Cluster, job: str) -> int:
    """How often a job failed for a moment."""
    with contextlib.suppress(OSError):
        return len(cluster.rest(f"jobs/{job}/exceptions")["exceptionHistory"]["entries"])
    return 0


def _short(lines: list[str]) -> str:
    """The line that a user would take for the reason."""
    errors = [line for line in lines if line.startswith("error: ")]
    if any(line.startswith("Traceback") for line in lines):
        return f"TRACEBACK {lines[-1][:200]}"
    return (errors or lines or ["no message"])[-1][:300].replace("|", "/")


@dataclass(frozen=True)
class Options:
    """Which faults, phases and commands."""

    cells: tuple[str, ...] = ()
    """FAULT, FAULT/PHASE or FAULT/PHASE/COMMAND; the usual 20 if none is named."""


def chosen(cells: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """(fault, phase, command) of each requested cell."""
    wanted = [cell.split("/") for cell in cells or _USUAL]
    for fault in FAULTS:
        for phase in PHASES:
            for name in COMMANDS:
                cell = [fault, phase, name]
                if any(cell[: len(parts)] == parts for parts in wanted):
                    yield fault, phase, name


def main(argv: list[str]) -> int:
    """Runs the cells and prints the table; 1 if one is not as it should be."""
    options = tyro.cli(Options, args=argv, use_underscores=True)
    print(HEAD, flush=True)
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="textmill-faults-") as folder:
        work = Work(Path(folder) / "work")
        work.prepare()
        with contextlib.ExitStack() as clusters:
            cluster = None
            for fault, phase, name in chosen(options.cells):
                cell = None
                try:
                    cluster = cluster or clusters.enter_context(
                        flink_cluster(python_path=str(work.folder))
                    )
                    cell = run_cell(cluster, work, fault, phase, name)
                    cluster.cancel_all()
                    cluster.wait()
                except (AssertionError, CannotRun, TimeoutError, OSError) as error:
                    clusters.close()  # no cell may suffer from what another left
                    cluster = None
                    not_done = f"| {fault} | {name} | {phase} | NOT DONE: {error} | | | | |"
                wrong += not (cell and cell.right)
                print(cell.row() if cell else not_done, flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
