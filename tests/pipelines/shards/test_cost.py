"""The cost of build_shards, in counts that no clock and no other process changes.

A loop over documents, tokens or rows in Python shows in calls a document; bytes that go through the
parent process, where only pointers should, show in Beam's buffers. Bounds are what was measured,
and a third more. Corpora of two sizes are compared: what a run or a block costs once cancels out.
"""

import json
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import execution

from textmill.pipelines.build_shards import BUILDER
from textmill.pipelines.build_shards import main as build_shards
from textmill.pipelines.encoding.tokenizer import load_tokenizer
from textmill.pipelines.readers.sources import (
    BLOCKS,
    Block,
    Part,
    read_block,
    read_blocks,
    write_blocks,
)
from textmill.pipelines.rows.example_batch import join, keep, to_stream
from textmill.pipelines.rows.routing import Routes
from textmill.pipelines.runners.launch import IN_PROCESS
from textmill.pipelines.shards.schema import schema_of
from textmill.pipelines.shards.steps import RowMaker, route_examples
from textmill.pipelines.train_tokenizer import main as train_tokenizer
from textmill.schemas.errors import DataError

SMALL, LARGE = 1000, 4000  # documents
SHARDS = ["--splits=train:0.9,validation:0.1", "--num_shards=train:2,validation:1"]


def texts(topics: list[str], count: int) -> list[str]:
    """Documents of some 500 bytes, no two of which are equal."""
    lines = [" ".join(topic.split()) for topic in topics]
    lines = [line for line in lines if len(line) > 200]
    return [f"{i} {lines[i % len(lines)][:1000]}" for i in range(count)]


def as_text(documents: list[str]) -> str:
    return "".join(f"{text}\n" for text in documents)


def as_labelled(documents: list[str]) -> str:
    rows = [{"text": text, "label": i % 2, "id": i} for i, text in enumerate(documents)]
    return "".join(json.dumps(row) + "\n" for row in rows)


def as_table(documents: list[str]) -> str:
    quoted = [text.replace('"', '""') for text in documents]
    return "text,label\n" + "".join(f'"{text}",{i % 2}\n' for i, text in enumerate(quoted))


def as_questions(documents: list[str]) -> str:
    """One of each text, whose answer is its third word."""
    questions = [
        {
            "id": str(i),
            "question": f"What comes after {text.split()[1]}?",
            "context": text,
            "answers": {"text": [text.split()[2]], "answer_start": [text.index(text.split()[2])]},
        }
        for i, text in enumerate(documents)
    ]
    return "".join(json.dumps(question) + "\n" for question in questions)


@dataclass(frozen=True)
class Case:
    """A task, the form of its input, and what it costs.

    Attributes:
      python: calls of Python functions a megabyte of input, as measured.
      c: calls of functions written in C a megabyte, of which there are 2,000 to 2,700 documents:
        each is hashed, its label or question too, and its row is a slice of bytes.
      evaluated: bytes through the parent for each document that is not trained on: its line in
        evaluation.jsonl.
    """

    name: str
    write: Callable[[list[str]], str]
    flags: tuple[str, ...]
    python: int
    c: int
    evaluated: int = 0


CLASSES = ("--task=classification", "--classes=0,1")
QA = ("--task=qa", "--max_length=192")
CASES = {
    "mlm": Case("in.txt", as_text, (), 330, 4000),
    "clm": Case("in.jsonl", as_labelled, ("--task=clm", "--max_length=128"), 290, 3350),
    "span corruption": Case("in.txt", as_text, ("--task=span_corruption",), 300, 3000),
    "classification": Case("in.jsonl", as_labelled, CLASSES, 600, 12_200, 180),
    "classification of a table": Case("in.csv", as_table, CLASSES, 650, 13_200, 180),
    "qa": Case("in.jsonl", as_questions, QA, 590, 14_800, 420),
}
SLACK = 4 / 3


@dataclass
class Calls:
    """How often Python functions were called, and functions written in C."""

    python: int = 0
    c: int = 0

    def count(self, frame: object, event: str, argument: object) -> None:
        """A function for sys.setprofile."""
        self.python += event == "call"
        self.c += event == "c_call"


def make_rows(flags: list[str]) -> Callable[[], None]:
    """All that happens to the input but for the pipeline around it."""
    options, _ = BUILDER.parse(flags)
    tokenizer = load_tokenizer(options.tokenizer)
    tokenizer.load_backend(1 << 30)  # for both sizes, since a call of each costs its own
    schema = schema_of(options, tokenizer, {})
    task, source = options.settings, options.source
    routes = Routes(schema.splits, schema.shards)
    maker = RowMaker(schema, task, task.finish(schema, tokenizer))

    def make() -> None:
        pieces = [
            documents for block in options.blocks() for documents in read_block(block, source)
        ]
        routed = [route_examples(piece, task, tokenizer, schema, "") for piece in pieces]
        for route, split in enumerate(routes.split_names()):
            parts = (to_stream(b.batch) for m in routed for to, b in m.batches if to == route)
            examples = join(parts)
            if examples is not None:
                list(maker.make(keep(examples), split).chunks())

    return make


@dataclass
class Parent:
    """Data in the buffers of Beam's process, which a runner's shuffle would carry."""

    elements: int = 0  # into a GroupByKey
    bytes: int = 0  # into any buffer


def grown(name: str, folder: Path) -> int:
    """Bytes that the large input has more than the small one."""
    small, large = (
        (folder / str(count) / CASES[name].name).stat().st_size for count in (SMALL, LARGE)
    )
    return large - small


@pytest.fixture
def parent(monkeypatch) -> Parent:
    seen = Parent()
    append_to_group, append = execution.GroupingBuffer.append, execution.ListBuffer.append

    def values(buffer):
        return sum(map(len, buffer._table.values()))

    def group(self, data):
        before = values(self)
        append_to_group(self, data)
        seen.elements += values(self) - before
        seen.bytes += len(data)

    def hold(self, data):
        append(self, data)
        seen.bytes += len(data)

    monkeypatch.setattr(execution.GroupingBuffer, "append", group)
    monkeypatch.setattr(execution.ListBuffer, "append", hold)
    return seen


def flags_of(name: str, count: int, topics: list[str], tokenizer: str, folder: Path) -> list[str]:
    """Writes so many documents; the flags of a run over them."""
    path = folder / str(count) / CASES[name].name
    path.parent.mkdir()
    path.write_text(CASES[name].write(texts(topics, count)))
    places = [f"--input={path}", f"--tokenizer={tokenizer}", f"--output={path.parent / 'set'}"]
    lines = ["--document=line"] if path.suffix == ".txt" else []
    return [*places, *lines, *SHARDS, *CASES[name].flags]


@pytest.mark.parametrize("name", CASES)
def test_calls_a_megabyte_and_pointers_through_the_parent(
    name, topics, sentinels, tmp_path, parent
):
    calls, seen, evaluated = [], [], []
    for count in (SMALL, LARGE):
        flags = flags_of(name, count, topics, sentinels, tmp_path)
        make = make_rows(flags)
        make()  # imports, compiles, fills caches
        calls.append(Calls())
        sys.setprofile(calls[-1].count)
        try:
            make()
        finally:
            sys.setprofile(None)
        before = replace(parent)
        build_shards([*flags, f"--runner={IN_PROCESS}"])
        seen.append((parent.elements - before.elements, parent.bytes - before.bytes))
        path = tmp_path / str(count) / "set" / "evaluation.jsonl"
        evaluated.append(len(path.read_bytes().splitlines()) if path.exists() else 0)
    small, large = calls
    megabytes = grown(name, tmp_path) / 1e6
    assert (large.python - small.python) / megabytes < CASES[name].python * SLACK
    assert (large.c - small.c) / megabytes < CASES[name].c * SLACK
    (elements, size), (more_elements, more_size) = seen
    # The block; a pointer and a key for each of three shards; reports of blocks and of shards.
    assert elements == more_elements == 1 + 3 + 3 + 2
    lines = (evaluated[1] - evaluated[0]) * CASES[name].evaluated
    assert more_size - size < lines * SLACK + 200 * megabytes
    assert bool(lines) == ("classification" in name or "qa" in name)
    assert size < 200_000  # a count for each id of the vocabulary, and again in sums


# The size of a job


@pytest.fixture
def jobs(monkeypatch):
    """(steps, bytes) of each pipeline as a runner receives it."""
    found, run = [], beam.Pipeline.run

    def keep(pipeline, *arguments, **named):
        proto = pipeline.to_runner_api()
        found.append((len(proto.components.transforms), len(proto.SerializeToString())))
        return run(pipeline, *arguments, **named)

    monkeypatch.setattr(beam.Pipeline, "run", keep)
    return found


def write_files(folder, count):
    folder.mkdir()
    for i in range(count):
        (folder / f"{i:05d}.txt").write_text(f"Document {i} has a text of its own, like all.\n")
    return folder


@pytest.mark.parametrize("command", [build_shards, train_tokenizer])
def test_neither_files_nor_shards_make_a_job_larger(command, tmp_path, tokenizer_path, jobs):
    for name, count, shards in (("few", 10, 2), ("many", 300, 40)):
        given = write_files(tmp_path / name, count)
        flags = [f"--input={given}", f"--output={tmp_path / name}-out"]
        if command is build_shards:
            flags += [f"--tokenizer={tokenizer_path}", f"--num_shards={shards}", "--max_length=32"]
        else:
            flags += ["--vocab_size=300"]
        command(flags)
    (steps, size), (steps_of_many, size_of_many) = jobs
    assert steps == steps_of_many
    assert abs(size - size_of_many) < 200  # paths and numbers of other lengths
    assert size < 100_000


def test_many_blocks_go_by_a_file(tmp_path):
    blocks = [Block(i, (Part(f"some/where/{i}.txt", 5, 0, 5),)) for i in range(20_000)]
    spans, classes = ((1, 4), (6, 8)), (("b", ("c", "d")),)
    every = Part("a", 9, 1, 8, "arrow", 3, 2, spans, classes, "e", "f", "0a", "a doubt")
    assert all(vars(every)[name] != value for name, value in vars(Part("", 0, 0, 0)).items())
    blocks.append(Block(20_000, (every, every), "train"))
    write_blocks(str(tmp_path), blocks)
    assert read_blocks(str(tmp_path)) == blocks
    with pytest.raises(DataError, match="that all workers share"):
        read_blocks(str(tmp_path / "elsewhere"))
    (tmp_path / BLOCKS).write_bytes(pickle.dumps(blocks))
    with pytest.raises(DataError, match="blocks.json is not JSON"):
        read_blocks(str(tmp_path))
