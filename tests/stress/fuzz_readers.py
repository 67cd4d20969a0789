"""Damages small shard sets at random and has them read: `python -m tests.stress.fuzz_readers`.

Sets of six tasks, in both encodings and both formats, and of whole documents in each format and in
all of them, are damaged in the ways and at the levels of `set_damage`, and read to their end by
ShardSet, `verify`, `inspect_shards` and `export`, each in a process of its own with limits on time
and memory. What counts as a finding: a traceback, a hang, a process that dies, memory beyond the
set's, control characters of a file on the terminal;
rows other than were published, where nothing was made right to hide it; and what `verify` accepts,
although an equation, a checksum or the codec could tell. A table shows what was tried and what came
of it. Exit code 1 if there was a finding; each is kept in --findings, with how to repeat it.
"""

import contextlib
import hashlib
import json
import os
import pydoc_data.topics
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from pipelines import export, inspect_shards, verify
from pipelines.inspection import export_set, row_text, set_tables
from pipelines.inspection.checks import set_check
from pipelines.writers.document_formats.document_format import document_format
from pipelines.writers.highway_hash import highway_hash
from schemas.commands.entry import run_entry
from schemas.errors import DataError, TextmillError
from schemas.metadata import Schema
from schemas.records import DOCUMENT_FORMATS, open_rows
from tests.tools.places import CHAT_TEMPLATE, ROOT
from tests.tools.set_damage import (
    LEVELS,
    Damage,
    choose,
    damage,
    documents_of,
    format_of,
    manifest_of,
    schema_of,
)
from trainers.reader import ShardSet

CPU_SECONDS, SECONDS = 10, 120  # of one reader: at work; in all, on a machine with others on it
MORE_BYTES = 100_000_000  # of memory, beyond the set
_DATA_BYTES = 2_000_000_000  # no reader gets more, whatever it asks for
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
IMPORTED_BEFORE_FORKS = (export_set, row_text, set_check, set_tables)
TASKS = {
    "mlm": ["--max_length=64", "--static_masking"],
    "clm": ["--max_length=64"],
    "classification": ["--max_length=32"],
    "qa": ["--max_length=128"],
    "span_corruption": ["--max_length=64"],
    "chat": [f"--chat_template={CHAT_TEMPLATE}", "--max_length=64"],
}
_FAILED = ("traceback", "hang", "died", "memory", "control characters")


@dataclass(frozen=True)
class Options:
    """How long, and where to."""

    findings: Path
    """Folder of findings; made here."""
    minutes: float = 60.0
    """No new set is damaged after that."""
    seed: int = 1
    """Of all choices."""
    trials: int = 1_000_000_000
    """Sets to damage, at most."""
    trial: int | None = None
    """This one only, to repeat it; what the readers say is printed."""
    only: str = ""
    """Sets whose names begin so, such as chat or tokens-npy."""
    small: bool = False
    """Only two sets, which are made without Beam."""


@dataclass
class Outcome:
    """What a reader made of a set: refused, accepted or one of _FAILED; `rows` is what it gave."""

    kind: str
    said: str = ""
    rows: Any = ""
    more_bytes: int = 0


# Readers: each gives a digest of the rows that it read


def read_shard_set(directory: str, output: str) -> str:
    """An epoch of every split."""
    digest = hashlib.sha256()
    shards = ShardSet(directory)
    for split in shards.splits:
        for batch in shards.in_order(split, batch_size=16):
            for name in sorted(batch):
                digest.update(name.encode() + batch[name].tobytes())
    return digest.hexdigest()


def read_by_verify(directory: str, output: str) -> str:
    """The command; it gives no rows."""
    verify.main([directory])
    return ""


def read_by_inspect(directory: str, output: str) -> str:
    """The first row of the first split that has one, and the statistics."""
    inspect_shards.main([directory])
    inspect_shards.main([directory, "--stats"])
    sys.stdout.flush()
    shown = os.pread(1, 1 << 24, 0).split(b"\n", 2)[-1]
    return hashlib.sha256(shown).hexdigest()


def read_by_export(directory: str, output: str) -> str:
    """All rows, as JSON Lines."""
    export.main([directory, "--to=jsonl", f"--output={output}"])
    digest = hashlib.sha256()
    for path in sorted(Path(output).rglob("*.jsonl")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


READERS = {
    "ShardSet": read_shard_set,
    "verify": read_by_verify,
    "inspect": read_by_inspect,
    "export": read_by_export,
}


# One reader in a process


def read_apart(reader: Callable[[str, str], str], directory: Path, work: Path) -> Outcome:
    """Has a reader read a set, and looks at what it took and said."""
    output = work / "output"
    shutil.rmtree(output, ignore_errors=True)
    outcome = do_apart(lambda: reader(str(directory), str(output)), work)
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    words = (work / "said").read_text(errors="backslashreplace")
    if outcome.more_bytes > MORE_BYTES + size and outcome.kind != "traceback":
        outcome.kind = "memory"
    elif outcome.kind in ("refused", "accepted") and _CONTROL.search(words + outcome.said):
        outcome.kind, outcome.said = "control characters", repr(words + outcome.said)
    outcome.said += words if outcome.kind in _FAILED else ""
    return outcome


def do_apart(work_to_do: Callable[[], Any], work: Path) -> Outcome:
    """Forks, does it there within limits, and tells what came of it.

    The process that forks opens no set: libraries of formats start threads, and a process that is
    forked beside those dies.
    """
    said, told = work / "said", work / "told"
    told.write_bytes(b"")
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            _be_the_child(work_to_do, said, told)
        os._exit(99)
    status = _wait(child)
    if status is None or os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        return Outcome("hang")
    if not told.stat().st_size:
        return Outcome("died", f"status {status}")
    return Outcome(**json.loads(told.read_bytes()))


def _be_the_child(work_to_do: Callable[[], Any], said: Path, told: Path) -> None:
    out = os.open(said, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (_DATA_BYTES, _DATA_BYTES))
    before = _most_bytes()
    outcome = Outcome("accepted")
    try:
        outcome.rows = work_to_do()
    except TextmillError as error:
        outcome = Outcome("refused", str(error))
    except SystemExit as error:
        outcome = Outcome("refused" if error.code else "accepted", f"exit code {error.code}")
    except BaseException:
        outcome = Outcome("traceback", traceback.format_exc()[-4000:])
    outcome.more_bytes = _most_bytes() - before
    sys.stdout.flush()
    sys.stderr.flush()
    told.write_text(json.dumps(vars(outcome)))
    os._exit(0)


def _most_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _wait(child: int) -> int | None:
    """The status of a process; None if it had to be killed."""
    deadline, pause = time.monotonic() + SECONDS, 0.001
    while time.monotonic() < deadline:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


# What a damaged set says of itself


def tallies(directory: Path, schema: Schema) -> list[dict[str, object] | None]:
    """Of each shard what stats.json states of it; None for one that cannot be read whole."""
    found: list[dict[str, object] | None] = []
    for file in manifest_of(directory).files:
        if file.split is None:
            continue
        if schema.holds_documents:
            found.append(_document_tally(directory, file.path, schema))
            continue
        try:
            columns = _columns(directory / file.path, schema)
        except (DataError, OSError):
            found.append(None)
            continue
        segments = columns["segment_ids"].astype(int)
        labels = columns.get("label", np.zeros(0, int))
        found.append(
            {
                "path": file.path,
                "rows": len(segments),
                "tokens_in_rows": int((segments > 0).sum()),
                "segments": int(segments.max(axis=1, initial=0).sum()),
                "masked": int(columns.get("masked_weights", np.zeros(0, int)).sum()),
                "labels": np.unique(labels, return_counts=True)[1].tolist(),
            }
        )
    return found


def _document_tally(directory: Path, name: str, schema: Schema) -> dict[str, object] | None:
    """Of whole documents: their tokens, and their number where the format tells it."""
    if name.endswith(".idx"):  # is read with its other file
        return {"path": name}
    try:
        values, offsets = documents_of(directory, name, schema)
    except (DataError, OSError):
        return None
    exact = document_format(format_of(name)).TELLS_DOCUMENTS
    rows = len(offsets) - 1 if exact else None
    return {"path": name, "rows": rows, "tokens_in_rows": len(values)}


def _columns(path: Path, schema: Schema) -> dict[str, np.ndarray]:
    """All rows of a shard, checked as far as the format can tell."""
    if not path.is_file():  # a pipe would be waited for
        raise DataError(f"{path} is no file")
    codec = schema.codec()
    reader = open_rows(str(path), codec.stride)
    try:
        return codec.decode(np.array(reader.read_range(0, len(reader))))
    finally:
        reader.close()


@dataclass
class Pristine:
    """A set as it was made, and what each reader gives for it."""

    name: str
    directory: Path
    rows: dict[str, str]
    tallies: Any


def judge(
    damaged: Damage,
    directory: Path,
    pristine: Pristine,
    outcomes: dict[str, Outcome],
    told: Any,
) -> Iterator[tuple[str, str]]:
    """(reader, outcome) of each, where what was accepted is `same` or `other`, or a finding.

    Args:
      damaged: what was done.
      directory: of the damaged set.
      pristine: the set as it was.
      outcomes: by reader.
      told: the damaged set's tallies.
    """
    for reader, outcome in outcomes.items():
        kind = outcome.kind
        if kind == "accepted" and reader != "verify":
            kind = "same" if outcome.rows == pristine.rows.get(reader) else "other"
            if kind == "other" and damaged.level == "as is":
                kind = "OTHER ROWS"
        elif kind == "accepted":
            kind = "same"
            if told != pristine.tallies:
                kind = "TELLS NOTHING"
            elif damaged.level == "as is" and _rows_differ(directory, pristine.directory):
                kind = "TELLS NOTHING"
        yield reader, kind


def _rows_differ(directory: Path, pristine: Path) -> bool:
    """Whether a shard holds other bytes than were published."""
    files = [file.path for file in manifest_of(pristine).files if file.split is not None]
    return any((directory / f).read_bytes() != (pristine / f).read_bytes() for f in files)


def is_finding(kind: str) -> bool:
    """Whether an outcome is a defect."""
    return kind in _FAILED or kind.isupper()


# Sets


def make_sets(folder: Path, small: bool) -> dict[str, Path]:
    """Name to directory, in a process of its own: nothing of Beam is in the one that forks."""
    make = "make_two" if small else "make_all"
    words = [sys.executable, "-c", f"import tests.stress.fuzz_readers as f; f.{make}()"]
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        raise DataError(f"the sets could not be made: {done.stdout}")
    return {path.name: path for path in sorted((folder / "sets").iterdir())}


def make_two() -> None:
    """Sets of random rows in ./sets."""
    from tests.tools.clm_factory import write_clm_set
    from tests.tools.shard_factory import write_mlm_set

    two, both = {"train": 2, "validation": 1}, ("array_record", "tfrecord")
    Path("sets").mkdir()
    write_mlm_set(Path("sets/mlm"), file_formats=both, shards=two)
    write_clm_set(Path("sets/clm"), encoding="int64_list", shards=two)


def make_all() -> None:
    """Sets of real text in ./sets, alike each time."""
    from tokenizers import Tokenizer

    from pipelines.train_tokenizer import main as train_tokenizer

    texts = [t for t in pydoc_data.topics.topics.values() if t]
    parts = [part for text in texts[:40] for part in text.split("\n\n") if len(part) > 40]
    with open("text.jsonl", "w") as lines:
        for number, text in enumerate(parts[:150]):
            words = text.split()
            asked = {"text": words[3 % len(words)], "answer_start": 0}
            asked["answer_start"] = text.index(asked["text"])
            answers = {"text": [asked["text"]], "answer_start": [asked["answer_start"]]}
            row = {"text": text, "label": number % 3, "question": " ".join(words[:4])}
            row["messages"] = [
                {"role": role, "content": said}
                for role, said in (("user", row["question"]), ("assistant", text))
            ]
            lines.write(json.dumps({**row, "context": text, "answers": answers}) + "\n")
    train_tokenizer(["--input=text.jsonl", "--output=bpe", "--vocab_size=600"])
    tokenizer = Tokenizer.from_file("bpe/tokenizer.json")
    tokenizer.add_special_tokens([f"<extra_id_{number}>" for number in range(20)])
    tokenizer.save("tokenizer.json")
    for number, (task, flags) in enumerate(TASKS.items()):
        for encoding in ("bytes", "int64_list"):
            formats = ("array_record", "tfrecord", "both")[(number + (encoding == "bytes")) % 3]
            name = f"{task}-{encoding}-{formats}"
            _build(
                name, f"--task={task}", f"--file_format={formats}", f"--encoding={encoding}", *flags
            )
    for formats in (*DOCUMENT_FORMATS, ",".join(DOCUMENT_FORMATS)):
        _build(f"tokens-{formats}", "--task=tokens", f"--file_format={formats}", "--max_length=64")


def _build(name: str, *flags: str) -> None:
    from pipelines.build_shards import main as build_shards

    given = ["--input=text.jsonl", "--tokenizer=tokenizer.json", f"--output=sets/{name}"]
    build_shards([*given, "--num_shards=2", "--splits=train:0.8,validation:0.2", *flags])


# All of it


@dataclass
class Fuzz:
    """What was tried, and what came of it."""

    options: Options
    sets: list[Pristine]
    coverage: dict[tuple[str, str, str], Counter[tuple[str, str]]]
    findings: Counter[tuple[str, ...]]

    def trial(self, number: int, work: Path) -> None:
        """Damages a set, has it read and judges; all of it follows from the seed and the number."""
        draw = random.Random(f"{self.options.seed}/{number}")
        pristine, directory = draw.choice(self.sets), work / "set"
        for old in (directory, work / "set.outside"):
            shutil.rmtree(old, ignore_errors=True)
            old.unlink(missing_ok=True)
        damaged = choose(pristine.directory, draw)
        made = do_apart(lambda: damage(pristine.directory, directory, damaged, draw), work)
        if made.kind != "accepted":
            raise DataError(f"trial {number}, {damaged}: {made}")
        if not made.rows:
            return
        outcomes = {name: read_apart(reader, directory, work) for name, reader in READERS.items()}
        told = None
        if outcomes["verify"].kind == "accepted":
            told = do_apart(lambda: tallies(directory, schema_of(pristine.directory)), work).rows
        counts = self.coverage.setdefault((damaged.kind, damaged.way, damaged.level), Counter())
        for reader, kind in judge(damaged, directory, pristine, outcomes, told):
            counts[reader, kind] += 1
            if self.options.trial is not None:
                print(f"{damaged}: {reader}: {kind}: {outcomes[reader].said}")
            if is_finding(kind):
                self.keep(number, pristine, damaged, directory, reader, kind, outcomes[reader])

    def keep(
        self,
        number: int,
        pristine: Pristine,
        damaged: Damage,
        directory: Path,
        reader: str,
        kind: str,
        outcome: Outcome,
    ) -> None:
        """Keeps the first of each finding in a folder, and says so."""
        last = [line for line in outcome.said.splitlines() if line.startswith("  File ")][-1:]
        what = (reader, kind, *(last if kind == "traceback" else (damaged.way, damaged.level)))
        self.findings[what] += 1
        if self.findings[what] > 1:
            return
        folder = self.options.findings / f"{len(self.findings):03}-{reader}-{kind}".replace(
            " ", "_"
        )
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", "--sparse=always", directory, folder / "set"], check=True)
        small = f" --only={self.options.only}" + " --small" * self.options.small
        line = (
            f"python -m tests.stress.fuzz_readers --findings=again --seed={self.options.seed} "
            f"--trial={number}{small}"
        )
        words = f"{reader}: {kind}\n{pristine.name}: {damaged}\n{line}\n\n{outcome.said}\n"
        (folder / "finding.txt").write_text(words, errors="backslashreplace")
        print(f"finding {len(self.findings)}: {reader}: {kind}: {damaged}; {folder}", flush=True)

    def table(self) -> Iterator[str]:
        """Markdown: a line for each damage of a kind of file at a level."""
        yield f"| file | damage | level | {' | '.join(READERS)} |"
        yield "|---" * (3 + len(READERS)) + "|"
        for (file, way, level), counts in sorted(
            self.coverage.items(), key=lambda item: (*item[0][:2], LEVELS.index(item[0][2]))
        ):
            cells = (
                ", ".join(f"{n} {k}" for (r, k), n in sorted(counts.items()) if r == reader)
                for reader in READERS
            )
            yield f"| {file} | {way} | {level} | {' | '.join(cells)} |"
        total = sum(self.coverage.values(), Counter[tuple[str, str]]())
        for reader in READERS:
            kinds = ", ".join(f"{n:,} {k}" for (r, k), n in sorted(total.items()) if r == reader)
            yield f"{reader}: {kinds}"


def pristine_of(name: str, directory: Path, work: Path) -> Pristine:
    """Has every reader read a set that nobody damaged.

    Raises:
      DataError: one does not take it.
    """
    shutil.copytree(directory, work / "set")
    outcomes = {n: read_apart(reader, work / "set", work) for n, reader in READERS.items()}
    shutil.rmtree(work / "set")
    schema = schema_of(directory)
    refusing = {"ShardSet", "export"} if schema.holds_documents else set()
    for reader, outcome in outcomes.items():
        if outcome.kind != ("refused" if reader in refusing else "accepted"):
            raise DataError(f"{reader} of {directory}: {outcome.kind}: {outcome.said}")
    rows = {reader: each.rows for reader, each in outcomes.items() if reader not in refusing}
    told = do_apart(lambda: tallies(directory, schema), work).rows
    return Pristine(name, directory, rows, told)


def main(argv: list[str]) -> None:
    """Damages and reads until the time is over, and prints the table."""
    options = tyro.cli(
        Options, prog="python -m tests.stress.fuzz_readers", args=argv, use_underscores=True
    )
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    highway_hash(np.zeros((1, 32), np.uint8))  # what compiles it takes memory, which is no set's
    with tempfile.TemporaryDirectory(prefix="textmill-fuzz-") as name:
        folder, work = Path(name), Path(name) / "work"
        work.mkdir()
        made = make_sets(folder, options.small)
        chosen = [name for name in made if name.startswith(options.only)]
        sets = [pristine_of(name, made[name], work) for name in chosen]
        fuzz = Fuzz(options, sets, {}, Counter())
        deadline = time.monotonic() + 60 * options.minutes
        one = options.trial
        for number in range(options.trials) if one is None else (one,):
            if time.monotonic() > deadline:
                break
            fuzz.trial(number, work)
    print("\n".join(fuzz.table()))
    if fuzz.findings:
        raise DataError(f"{len(fuzz.findings)} kinds of findings: see {options.findings}")


if __name__ == "__main__":
    run_entry(main)
