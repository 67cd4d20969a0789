"""Damages small datasets and runs their readers: `python -m tests.stress.fuzz_sets`.

    --damage=bytes    bytes, files, links, rows and documents, at random
    --damage=fields   every field of every metadata file: each kind of change of each field once,
                      before any comes again

`set_damage` has the ways and the levels. The datasets are of seven tasks, in all encodings and
both formats, and tokenized documents in each format and in all of them. ShardSet, `verify`,
`inspect_shards`, `export` and the start of the trainers read each damaged dataset, each in a
process of its own with limits on time and memory. A finding is a traceback, a hang, a process that
dies, memory beyond the dataset's, control characters of a file on the terminal, content other than
what was published where nothing excuses it (OTHER), and damage that `verify` accepts although an
equation, a checksum or the codec shows it (MISSED). A table shows what was tried and how it ended.
Exit code 1 if there was a finding; the first of each kind is printed with the line that repeats it.
"""

import hashlib
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

from tests.stress.limited_child import FAILED, Limits, Outcome, run_apart
from tests.tools.field_damage import field_changes
from tests.tools.places import CHAT_TEMPLATE, ROOT
from tests.tools.set_damage import (
    LEVELS,
    Damage,
    choose,
    damage,
    documents_of,
    format_of,
    read_rows,
)
from textmill.pipelines import export, inspect_shards, verify
from textmill.pipelines.inspection import export_set, row_text, set_tables
from textmill.pipelines.inspection.checks import set_check
from textmill.pipelines.writers.document_formats import document_codec
from textmill.pipelines.writers.highway_hash import highway_hash
from textmill.schemas.commands.entry import run_entry
from textmill.schemas.errors import DataError
from textmill.schemas.files.finished import read_dataset
from textmill.schemas.format.codec import ENCODINGS
from textmill.schemas.format.metadata import Schema
from textmill.schemas.format.records import DOCUMENT_FORMATS
from textmill.trainers import flax_clm, flax_mlm, poptorch_classifier, tf_classifier, tf_qa
from textmill.trainers.data.shards_value import open_shards
from textmill.trainers.flags.command_line import make_flags
from textmill.trainers.models.plan_model import plan_model
from textmill.trainers.reader import ShardSet

IMPORTED_BEFORE_FORKS = (export_set, row_text, set_check, set_tables)
MORE_BYTES = 100_000_000  # of memory, beyond the dataset
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
TASKS = {
    "mlm": ["--task=mlm", "--mask_copies=2"],
    "mlm_dynamic": ["--task=mlm", "--no_static_masking"],
    "clm": ["--task=clm"],
    "classification": ["--task=classification"],
    "qa": ["--task=qa", "--max_question_length=12", "--max_answer_length=8"],
    "span_corruption": ["--task=span_corruption"],
    "chat": ["--task=chat", f"--chat_template={CHAT_TEMPLATE}"],
}
# Fields that nothing else in a dataset states: with all sums right it is another dataset, as good
# as the first. No reader of rows uses them. By the beginning of "file: field".
STATED_ONCE = {
    "inputs.json": "where the text was; the files that it names are not part of the dataset",
    "schema.json: mask_rate": "rows hold the masks; max_masked follows from it",
    "schema.json: mask_unit": "rows hold the masks",
    "schema.json: packing": "rows hold the segments; packing=none is checked",
    "schema.json: parameters": "rows hold what they made; those that readers use have kinds",
    "schema.json: seed": "of choices that rows hold",
    "stats.json: source_bytes": "of the inputs, which are not there to be measured",
    "stats.json: shards.*.text_bytes": "of the documents; rows hold their tokens",
    "stats.json: shards.*.words": "of the documents; rows hold their tokens",
}
# Fields that only schema.json gives a reader of rows: what else has them is read by verify alone.
BY_VERIFY = {
    "schema.json: all_special_ids": "tokenizer.json",
    "schema.json: code_version": "dataset_info.json",
    "schema.json: features.*.meaning": "features.json",
    "schema.json: golden": "tokenizer.json",
    "schema.json: special_ids": "tokenizer.json",
}


@dataclass(frozen=True)
class Options:
    """Kind of damage, and duration."""

    damage: Literal["bytes", "fields"] = "bytes"
    """Bytes, files and rows at random, or every field of the metadata files in turn."""
    minutes: float = 60.0
    """No new dataset is damaged after that."""
    seed: int = 1
    """All choices follow from it."""
    trials: int = 1_000_000_000
    """Datasets to damage, at most."""
    trial: int | None = None
    """This one only, to repeat it; what the readers say is printed."""
    only: str = ""
    """Datasets whose names begin so, such as chat or tokens-npy."""
    sets: tuple[Path, ...] = ()
    """Finished datasets, in place of those that are built here."""


# Readers: each returns what it read, as text


def read_shard_set(directory: str, output: str) -> str:
    """The metadata, and an epoch of every split."""
    shards, rows = ShardSet(directory), hashlib.sha256()
    for split in shards.splits:
        for batch in shards.sequential_batches(split, batch_size=16):
            for name in sorted(batch):
                rows.update(name.encode() + batch[name].tobytes())
    metadata = f"{shards.schema} {shards.stats} {shards.splits}"
    return metadata.replace(shards.fingerprint, "") + rows.hexdigest()  # any field changes that


def read_by_verify(directory: str, output: str) -> str:
    """How many rows and tokens the command counts."""
    verify.main([directory])
    return "".join(re.findall(r"[\d,]+ (?:rows?|tokens?)", _printed()))


def read_by_inspect(directory: str, output: str) -> str:
    """The first row of the first split that has one, and the statistics."""
    inspect_shards.main([directory])
    inspect_shards.main([directory, "--stats"])
    words = " ".join(_printed().split())
    words = re.sub(r"[\d.,]+ ([kM]?B|bytes)", "", words)  # of the metadata files themselves
    return words.replace(read_dataset(directory).schema.fingerprint, "")


def _printed() -> str:
    """Everything that this process has printed; its output is a file."""
    sys.stdout.flush()
    return os.pread(1, 1 << 24, 0).decode()


def read_by_export(directory: str, output: str) -> str:
    """All rows, as JSON Lines."""
    with redirect_stdout(io.StringIO()):
        export.main([directory, "--to=jsonl", f"--output={output}"])
    digest = hashlib.sha256()
    for path in sorted(Path(output).rglob("*.jsonl")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def plan_trainings(directory: str, output: str) -> str:
    """The plans that the trainers of such rows would compile."""
    shards = open_shards(directory)
    schema, plans = shards.schema, []
    for entry in (flax_mlm, flax_clm, tf_classifier, tf_qa, poptorch_classifier):
        flags = make_flags(entry.TRAINER.flags, shards=directory, output=output, steps=1)
        if schema.task.replace("chat", "clm") == flags.task.rows:
            steps = flags.plan_steps(shards)
            entry.TRAINER.make_task(flags, schema, shards).prepare_training(shards)
            plans.append((plan_model(flags, schema).config, steps))
    return f"{plans} {schema}".replace(shards.fingerprint, "")


READERS = {
    "ShardSet": read_shard_set,
    "verify": read_by_verify,
    "inspect": read_by_inspect,
    "export": read_by_export,
    "trainers": plan_trainings,
}
OF_DOCUMENTS = {"verify", "inspect"}  # the others refuse tokenized documents


def read_apart(reader: str, directory: Path, work: Path) -> Outcome:
    """Runs a reader in a process of its own, and checks what it printed."""
    output = work / "output"
    shutil.rmtree(output, ignore_errors=True)
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    limits = Limits(more_bytes=MORE_BYTES + size)
    outcome = run_apart(lambda: READERS[reader](str(directory), str(output)), work, limits)
    printed = (work / "printed").read_text(errors="backslashreplace")
    if outcome.kind not in FAILED and _CONTROL.search(printed + outcome.said):
        return Outcome("control characters", repr(printed + outcome.said))
    outcome.said += printed if outcome.kind in FAILED else ""
    return outcome


# Counts of the shards of a damaged dataset


def tallies(directory: Path, schema: Schema) -> list[dict[str, object] | None]:
    """Counts of each shard, as in stats.json; None for a shard that cannot be read."""
    found: list[dict[str, object] | None] = []
    for file in read_dataset(str(directory)).manifest.files:
        if not file.is_shard:
            continue
        count = _count_documents if schema.holds_documents else _count_rows
        try:
            found.append({"path": file.path, **count(directory, file.path, schema)})
        except (DataError, OSError):
            found.append(None)
    return found


def _count_documents(directory: Path, name: str, schema: Schema) -> dict[str, object]:
    """Tokens, and documents where the format records their number."""
    if name.endswith(".idx"):  # is read with its other file
        return {}
    values, offsets = documents_of(directory, name, schema)
    exact = document_codec(format_of(name)).holds_ends
    return {"rows": len(offsets) - 1 if exact else None, "tokens": len(values)}


def _count_rows(directory: Path, name: str, schema: Schema) -> dict[str, object]:
    if not (directory / name).is_file():  # a pipe would block
        raise DataError(f"{name} is not a file")
    columns = schema.codec().decode(read_rows(directory / name, schema))
    segments = columns["segment_ids"].astype(int)
    labels = columns.get("label", np.zeros(0, int))
    return {
        "rows": len(segments),
        "tokens": int((segments > 0).sum()),
        "segments": int(segments.max(axis=1, initial=0).sum()),
        "masked": int(columns.get("masked_weights", np.zeros(0, int)).sum()),
        "labels": np.unique(labels, return_counts=True)[1].tolist(),
    }


# Judgement


@dataclass
class Pristine:
    """A dataset as it was made.

    Attributes:
      name: for people.
      directory: where it is.
      values: reader to what it reads.
      tallies: of its shards.
    """

    name: str
    directory: Path
    values: dict[str, Any]
    tallies: Any


def excuse(chosen: Damage, verify: str) -> str:
    """Why a reader may accept other content than was published; OTHER if it may not."""
    if chosen.path and any(chosen.field.startswith(name) for name in STATED_ONCE):
        return "stated once"
    if chosen.path and any(chosen.field.startswith(name) for name in BY_VERIFY):
        return "by verify" if verify == "refused" else "OTHER"
    return "other" if chosen.level != "as is" and not chosen.path else "OTHER"


def is_missed(chosen: Damage, directory: Path, pristine: Pristine, counted: Any) -> bool:
    """Whether a dataset that `verify` accepts has shards that it must refuse."""
    files = [f.path for f in read_dataset(str(pristine.directory)).manifest.files if f.split]
    pairs = [(directory / name, pristine.directory / name) for name in files]
    return counted != pristine.tallies or (
        chosen.level == "as is" and any(one.read_bytes() != two.read_bytes() for one, two in pairs)
    )


def is_finding(kind: str) -> bool:
    """Whether an outcome is a defect."""
    return kind in (*FAILED, "control characters") or kind.isupper()


@cache
def changes_in_turn(directory: Path, seed: str) -> list[Damage]:
    """Shuffled, and every change of every kind of field once before any comes again."""
    changes = [Damage(*change) for change in field_changes(directory)]
    random.Random(seed).shuffle(changes)
    times, turns = Counter(), {}
    for change in changes:
        same = (change.field, change.way, change.level)
        turns[change] = times[same]
        times[same] += 1
    return sorted(changes, key=turns.__getitem__)


# Datasets


def build_sets(folder: Path, only: str) -> list[Path]:
    """Builds them in a process of its own: nothing of Beam is in the one that forks."""
    words = [sys.executable, "-c", f"import {__spec__.name} as fuzz; fuzz.build_here({only!r})"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=folder, env=environment, text=True, capture_output=True)
    if done.returncode:
        raise DataError(f"the datasets could not be built: {done.stderr}")
    return sorted((folder / "sets").iterdir())


def build_here(only: str) -> None:
    """Datasets of text that all tasks can use, in ./sets; alike each time."""
    from tests.tools.tokenizer_factory import TEXT, trained_tokenizer
    from textmill.pipelines.build_shards import main as build_shards

    tokenizer = trained_tokenizer()
    tokenizer.add_special_tokens([f"<extra_id_{number}>" for number in range(20)])
    tokenizer.save("tokenizer.json")
    words, draw = " ".join(TEXT).split(), random.Random(0)
    with open("text.jsonl", "w") as lines:
        for number in range(60):
            chosen = draw.choices(words, k=draw.randint(5, 30))
            text, question = " ".join(chosen), f"What is {number}?"
            answers = {"text": [chosen[2]], "answer_start": [text.index(chosen[2])]}
            turns = (("user", question), ("assistant", text))
            row = {
                **{"id": str(number), "text": text, "label": ["neg", "pos"][number % 2]},
                **{"context": text, "question": question, "answers": answers},
                "messages": [{"role": role, "content": content} for role, content in turns],
            }
            lines.write(json.dumps(row) + "\n")
    flags = ["--input=text.jsonl", "--tokenizer=tokenizer.json", "--max_length=64"]
    flags += ["--splits=train:0.7,validation:0.3", "--num_shards=train:2,validation:1"]
    for name, more in _flags_of_sets():
        if name.startswith(only):
            build_shards([*flags, f"--output=sets/{name}", *more])


def _flags_of_sets() -> Iterator[tuple[str, list[str]]]:
    for number, (task, flags) in enumerate(TASKS.items()):
        for place, encoding in enumerate(ENCODINGS):
            formats = ("array_record", "tfrecord", "both")[(number + place) % 3]
            more = [f"--file_format={formats}", f"--encoding={encoding}"]
            yield f"{task}-{encoding}-{formats}", [*flags, *more]
    for formats in (*DOCUMENT_FORMATS, ",".join(DOCUMENT_FORMATS)):
        yield f"tokens-{formats}", ["--task=tokens", f"--file_format={formats}"]


def read_pristine(directory: Path, work: Path) -> Pristine:
    """Runs every reader on an undamaged dataset.

    Raises:
      DataError: one does not accept it.
    """
    shutil.copytree(directory, work / "set")
    outcomes = {reader: read_apart(reader, work / "set", work) for reader in READERS}
    shutil.rmtree(work / "set")
    schema = read_dataset(str(directory)).schema
    accepting = OF_DOCUMENTS if schema.holds_documents else set(READERS)
    for reader, outcome in outcomes.items():
        if outcome.kind != ("accepted" if reader in accepting else "refused"):
            raise DataError(f"{reader} of {directory}: {outcome.kind}: {outcome.said}")
    values = {reader: outcomes[reader].value for reader in accepting}
    counted = run_apart(lambda: tallies(directory, schema), work, Limits()).value
    return Pristine(directory.name, directory, values, counted)


# All of it


@dataclass
class Fuzz:
    """Trials and how they ended."""

    options: Options
    sets: list[Pristine]
    work: Path
    table: dict[tuple[str, str, str], Counter[tuple[str, str]]] = field(default_factory=dict)
    findings: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def choose(self, number: int) -> tuple[Pristine, Damage, random.Random]:
        """All of a trial follows from the seed and its number."""
        pristine = self.sets[number % len(self.sets)]
        draw = random.Random(f"{self.options.seed}/{number}")
        if self.options.damage == "bytes":
            return pristine, choose(pristine.directory, draw), draw
        turns = changes_in_turn(pristine.directory, f"{self.options.seed}/{pristine.name}")
        return pristine, turns[number // len(self.sets) % len(turns)], draw

    def trial(self, number: int) -> None:
        """Damages a dataset, runs the readers and judges."""
        pristine, chosen, draw = self.choose(number)
        directory, work = self.work / "set", self.work
        for old in (directory, work / "set.outside"):
            shutil.rmtree(old, ignore_errors=True)
            old.unlink(missing_ok=True)
        whole = pristine.directory
        made = run_apart(lambda: damage(whole, directory, chosen, draw), work, Limits())
        if made.kind != "accepted":
            raise DataError(f"trial {number}, {chosen}: {made}")
        if not made.value:
            return
        outcomes = {reader: read_apart(reader, directory, work) for reader in READERS}
        counts = self.table.setdefault((chosen.kind, chosen.way, chosen.level), Counter())
        for reader, outcome in outcomes.items():
            kind = self.judge(reader, outcomes, chosen, pristine)
            counts[reader, kind] += 1
            if self.options.trial is not None:
                print(f"{chosen}: {reader}: {kind}: {outcome.said}")
            if is_finding(kind):
                self.report(number, pristine, chosen, f"{reader}: {kind}", outcome.said)

    def judge(
        self, reader: str, outcomes: dict[str, Outcome], chosen: Damage, pristine: Pristine
    ) -> str:
        """One word for what a reader did."""
        outcome, directory = outcomes[reader], self.work / "set"
        if outcome.kind != "accepted":
            return outcome.kind
        if reader == "verify" and not chosen.path:
            schema = read_dataset(str(pristine.directory)).schema
            counted = run_apart(lambda: tallies(directory, schema), self.work, Limits()).value
            if is_missed(chosen, directory, pristine, counted):
                return "MISSED"
        is_same = outcome.value == pristine.values.get(reader)
        return "same" if is_same else excuse(chosen, outcomes["verify"].kind)

    def report(
        self, number: int, pristine: Pristine, chosen: Damage, outcome: str, said: str
    ) -> None:
        """Prints the first of each finding, and the line that repeats it."""
        last = [line for line in said.splitlines() if line.startswith("  File ")][-1:]
        what = (outcome, *(last or (chosen.field if chosen.path else chosen.way, chosen.level)))
        self.findings[what] += 1
        if self.findings[what] == 1:
            again = f"--damage={self.options.damage} --seed={self.options.seed} --trial={number}"
            again += f" --only={self.options.only}" * bool(self.options.only)
            again += f" --sets {' '.join(map(str, self.options.sets))}" * bool(self.options.sets)
            print(f"{outcome}: {pristine.name}: {chosen}\n{said}")
            print(f"again: python -m tests.stress.fuzz_sets {again}", flush=True)

    def lines(self) -> Iterator[str]:
        """Markdown: a row for each damage of a kind of file at a level; then the sums."""
        yield f"| file | damage | level | {' | '.join(READERS)} |"
        yield "|---" * (3 + len(READERS)) + "|"
        for key in sorted(self.table, key=lambda key: (*key[:2], LEVELS.index(key[2]))):
            cells = (_cell(self.table[key], reader) for reader in READERS)
            yield f"| {' | '.join(key)} | {' | '.join(cells)} |"
        total = sum(self.table.values(), Counter[tuple[str, str]]())
        for reader in READERS:
            yield f"{reader}: {_cell(total, reader)}"


def _cell(counts: Counter[tuple[str, str]], reader: str) -> str:
    of_reader = [(kind, count) for (name, kind), count in counts.items() if name == reader]
    return ", ".join(f"{count:,} {kind}" for kind, count in sorted(of_reader))


def main(argv: list[str]) -> None:
    """Damages and reads until the time is over, and prints the table."""
    program = "python -m tests.stress.fuzz_sets"
    options = tyro.cli(Options, prog=program, args=argv, use_underscores=True)
    os.environ.update(TOKENIZERS_PARALLELISM="false", COLUMNS="1000")  # no path is cut into lines
    highway_hash(np.zeros((1, 32), np.uint8))  # compiling it takes memory, which is not a dataset's
    with tempfile.TemporaryDirectory(prefix="textmill-fuzz-") as name:
        work = Path(name) / "work"
        work.mkdir()
        sets = list(options.sets) or build_sets(Path(name), options.only)
        fuzz = Fuzz(options, [read_pristine(path.absolute(), work) for path in sets], work)
        deadline = time.monotonic() + 60 * options.minutes
        for number in range(options.trials) if options.trial is None else (options.trial,):
            if time.monotonic() > deadline:
                break
            fuzz.trial(number)
    print("\n".join(fuzz.lines()))
    if fuzz.findings:
        raise DataError(f"{len(fuzz.findings)} kinds of findings")


if __name__ == "__main__":
    run_entry(main)
