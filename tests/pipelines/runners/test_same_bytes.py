"""Every task by every runner, from any partition of the documents into files: the same bytes."""

import gzip
import json
import random
from pathlib import Path

import pytest

from tests.tools.file_sums import file_sums
from tests.tools.places import CHAT_TEMPLATE
from textmill.pipelines import build_shards, train_tokenizer
from textmill.pipelines.inspection.checks.set_check import verify_dataset
from textmill.pipelines.runners import shuffle
from textmill.pipelines.runners.launch import IN_PROCESS
from textmill.schemas.files.finished import read_dataset
from textmill.schemas.format.records import DOCUMENT_FORMATS

LOCAL = f"--runner={IN_PROCESS}"
THREADS = f"{LOCAL} --direct_running_mode=multi_threading"
PROCESSES = f"{LOCAL} --direct_running_mode=multi_processing"
THROUGH_RUNNER = "--shuffle_by=runner"
WAYS = {
    "in this process": LOCAL,
    "through the runner": f"{LOCAL} {THROUGH_RUNNER}",
    "bundles repeated": f"{LOCAL} --direct_runner_bundle_repeat=3",
    "bundles repeated, by the runner": f"{LOCAL} {THROUGH_RUNNER} --direct_runner_bundle_repeat=2",
    "threads": f"{THREADS} --direct_num_workers=2",
    "one worker process": f"{PROCESSES} --direct_num_workers=1",
    "two worker processes": f"{PROCESSES} --direct_num_workers=2",
    "two processes, by the runner": f"{PROCESSES} {THROUGH_RUNNER} --direct_num_workers=2",
    "DirectRunner by name": "--runner=DirectRunner",
    "Prism": "",  # and the flags of a running one
    "Prism, through the runner": THROUGH_RUNNER,
}
SPLITS = ["--input={d}", "--splits=train:0.8,validation:0.2"]
GIVEN = ["--train_input={d}/train-*", "--validation_input={d}/validation-*"]
CLASSES = ["--task=classification", "--max_length=48"]
DATASETS = {
    "mlm": [*SPLITS, "--max_length=64"],
    "mlm of words": [*SPLITS, "--mask_unit=word", "--max_length=64"],
    "mlm of spans": [*SPLITS, "--mask_unit=span", "--max_length=64"],
    "clm": [*SPLITS, "--task=clm", "--packing=concat", "--max_length=64"],
    "chat": [*SPLITS, "--task=chat", f"--chat_template={CHAT_TEMPLATE}", "--max_length=64"],
    "classification": [*SPLITS, *CLASSES, "--truncation=head_tail"],
    "pairs": [*SPLITS, *CLASSES, "--text_pair_field=title"],
    "qa": [*SPLITS, "--task=qa", "--qa_form=prefix", "--max_length=160"],
    "span_corruption": [*SPLITS, "--task=span_corruption", "--max_length=128"],
    "tokens": [*SPLITS, "--task=tokens", f"--file_format={','.join(DOCUMENT_FORMATS)}"],
    "given splits": [*GIVEN, "--max_length=64"],
}
TASKS = [*DATASETS, "tokenizer"]
OF_PRISM = ["mlm", "clm", "chat", "classification", "qa", "span_corruption", "tokens", "tokenizer"]
# These name the inputs or the machine.
OWN = {".lock", "MANIFEST.json", "config.yaml", "inputs.json", "rejects.jsonl"}
OWN |= {"report.html", "report.json"}


@pytest.fixture(scope="module")
def documents(topics) -> dict[str, list[str]]:
    """JSON Lines by split, with all fields that any task reads.

    40 of the 640 documents repeat another one under another id, 16 of them across the splits.
    """
    texts = [text for text in dict.fromkeys(topics) if 80 < len(text) < 3000][:600]
    lines = []
    for number in [*range(600), *range(1, 41)]:
        text = texts[number]
        start = number * 7919 % (len(text) - 20)
        question = f"What is at {start}?"
        record = {
            "text": text,
            "title": text[::-1][:30],
            "label": len(text) % 3,
            "id": f"help-{len(lines)}",
            "question": question,
            "context": text,
            "answers": [{"text": text[start : start + 1 + number % 19], "answer_start": start}],
            "messages": [
                {"role": "user", "content": question},
                {"role": "assistant", "content": text},
            ],
        }
        lines.append(json.dumps(record) + "\n")
    train = [line for number, line in enumerate(lines) if number % 5 != 2]
    return {"train": train, "validation": lines[2::5]}


@pytest.fixture(scope="module")
def two_files(documents, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("two files")
    for split, lines in documents.items():
        (folder / f"{split}-0.jsonl").write_text("".join(lines))
    return folder


def make(task: str, folder: Path, tokenizer: str, output: Path, flags: str) -> dict[str, str]:
    """Runs the command of a task; the sha256 of its files by name."""
    always = [f"--output={output}", *flags.split()]
    if task == "tokenizer":
        train_tokenizer.main([f"--input={folder}", "--vocab_size=1000", *always])
    else:
        own = [flag.replace("{d}", str(folder)) for flag in DATASETS[task]]
        build_shards.main([*own, f"--tokenizer={tokenizer}", "--num_shards=5", *always])
    return file_sums(output, without=OWN)


@pytest.fixture(scope="module")
def made(two_files, sentinels, tmp_path_factory):
    """A task's output from two files in this process, made once: its folder, and the sha256s."""
    folder, found = tmp_path_factory.mktemp("made"), {}

    def make_once(task: str) -> tuple[Path, dict[str, str]]:
        if task not in found:
            output = folder / task
            found[task] = output, make(task, two_files, sentinels, output, LOCAL)
        return found[task]

    return make_once


@pytest.fixture
def many_files(documents, tmp_path) -> Path:
    """The same documents in a different order, in 14 files; every second file is compressed."""
    folder = tmp_path / "many files"
    folder.mkdir()
    for split, lines in documents.items():
        lines = random.Random(0).sample(lines, len(lines))
        for number in range(7):
            content, path = "".join(lines[number::7]).encode(), folder / f"{split}-{number}.jsonl"
            if number % 2:
                content, path = gzip.compress(content), folder / f"{split}-{number}.jsonl.gz"
            path.write_bytes(content)
    return folder


SLOW = {"one worker process", "bundles repeated, by the runner", "two processes, by the runner"}
MATRIX = [
    *(("mlm", way) for way in WAYS if "Prism" not in way and way not in SLOW),
    *(pytest.param("mlm", way, marks=pytest.mark.slow) for way in sorted(SLOW)),
    *((task, "in this process") for task in TASKS if task != "mlm"),
    *((task, "Prism") for task in OF_PRISM),
    ("mlm", "Prism, through the runner"),
    ("tokenizer", "bundles repeated"),
    *(pytest.param(task, "two worker processes", marks=pytest.mark.slow) for task in OF_PRISM[1:]),
]


@pytest.mark.parametrize(("task", "way"), MATRIX)
def test_the_same_bytes(task, way, made, many_files, sentinels, tmp_path, small_blocks, request):
    of_prism = request.getfixturevalue("prism") if "Prism" in way else []
    expected, flags = made(task)[1], " ".join([WAYS[way], *of_prism])
    assert make(task, many_files, sentinels, tmp_path / "made", flags) == expected


def test_small_buffers_give_the_same_bytes(made, two_files, sentinels, tmp_path, monkeypatch):
    """A worker may send what it holds for the runner at any time."""
    monkeypatch.setattr(shuffle, "BUFFER_BYTES", 20_000)
    found = make("mlm", two_files, sentinels, tmp_path / "made", WAYS["through the runner"])
    assert found == made("mlm")[1]


@pytest.mark.parametrize("task", DATASETS)
def test_verify_finds_no_problem(made, task):
    directory, _ = made(task)
    report = verify_dataset(str(directory))
    assert report.problems == [] and report.rows > 100
    stats = read_dataset(str(directory)).stats
    expected = {"given splits": (24, 16), "qa": (0, 0)}  # two ids are two questions
    dropped = stats.total().dropped
    found = (dropped.get("duplicates", 0), dropped.get("held_out", 0))
    assert found == expected.get(task, (40, 0))
    assert stats.total().tokens > 10_000 and stats.broken_equations() == []
