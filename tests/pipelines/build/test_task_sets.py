"""Sets of every task as a user makes them: verified, and the same bytes any way they are made."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.build_shards import main
from pipelines.inspection.checks.set_check import verify_set
from schemas.errors import UsageError
from schemas.metadata import read_set
from schemas.records import DOCUMENT_FORMATS
from tests.tools.places import CHAT_TEMPLATE
from tests.tools.shard_factory import replace_file

TASKS = {
    "mlm of words": ["--mask_unit=word", "--max_length=64"],
    "mlm of spans": ["--mask_unit=span", "--max_length=64"],
    "clm": ["--task=clm", "--packing=concat", "--max_length=64"],
    "chat": ["--task=chat", f"--chat_template={CHAT_TEMPLATE}", "--max_length=64"],
    "classification": ["--task=classification", "--max_length=48", "--truncation=head_tail"],
    "pairs": ["--task=classification", "--max_length=48", "--text_pair_field=title"],
    "span_corruption": ["--task=span_corruption", "--max_length=128"],
    "tokens": ["--task=tokens", f"--file_format={','.join(DOCUMENT_FORMATS)}", "--max_length=64"],
}
SPLITS = "--splits=train:0.8,validation:0.2"


@pytest.fixture(scope="module")
def lines(topics):
    """Documents with labels and ids, some of them twice with another id."""
    documents = [text for text in topics[:900] if text]
    return [
        json.dumps(
            {
                "text": text,
                "title": text[::-1][:30],
                "label": len(text) % 3,
                "id": number,
                "messages": [
                    {"role": "user", "content": text[:30]},
                    {"role": "assistant", "content": text[30:] or text},
                ],
            }
        )
        for number, text in enumerate(documents + documents[:40])
    ]


@pytest.fixture(scope="module")
def made(lines, sentinels, tmp_path_factory):
    """Makes sets; that of a task from one file is made once."""
    folder, sets = tmp_path_factory.mktemp("sets"), {}

    def make(task, *more, files=1):
        key = (task, more, files)
        if key not in sets:
            inputs = folder / f"{files}"
            inputs.mkdir(exist_ok=True)
            for number in range(files):
                own = lines[number::files]
                (inputs / f"{number}.jsonl").write_text("".join(f"{line}\n" for line in own))
            output = str(folder / f"set{len(sets)}")
            flags = [f"--input={inputs}", f"--tokenizer={sentinels}", f"--output={output}"]
            main([*flags, "--num_shards=3", SPLITS, *TASKS[task], *more])
            sets[key] = output
        return sets[key]

    return make


@pytest.mark.parametrize("task", TASKS)
def test_sets_are_as_verify_wants_them(made, task):
    report = verify_set(made(task))
    assert report.problems == [] and report.rows > 100
    stats = read_set(made(task)).stats
    assert stats.total().dropped["duplicates"] >= 40 and stats.total().tokens > 10_000


def content(directory):
    """Every file of a set with its hash, but for what names the inputs and the machine."""
    own = {"inputs.json", "config.yaml", "report.html"}
    files = read_set(directory).manifest.files
    return {file.path: file.sha256 for file in files if file.path not in own}


@pytest.mark.parametrize("task", TASKS)
def test_seven_files_give_the_same_bytes(made, task):
    assert content(made(task, files=7)) == content(made(task))


_SLOW = ("chat", "clm", "tokens", "span_corruption")
SLOW = [pytest.param(task, marks=pytest.mark.slow) for task in _SLOW]


@pytest.mark.parametrize("task", ["classification", *SLOW])
def test_two_workers_give_the_same_bytes(made, task):
    flags = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    assert content(made(task, *flags, files=7)) == content(made(task))


def test_classes_of_folders_and_their_report(topics, sentinels, tmp_path, capsys):
    for number, text in enumerate(topics[:60]):
        folder = tmp_path / "in" / ["neg", "pos"][number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.txt").write_text(text or "empty")
    flags = [f"--tokenizer={sentinels}", f"--output={tmp_path / 'set'}", SPLITS]
    main(["--task=classification", f"--input={tmp_path / 'in'}", *flags])
    said = capsys.readouterr().out
    assert "2 classes: neg, pos" in said
    info = read_set(str(tmp_path / "set"))
    assert info.schema.parameters["classes"] == ["neg", "pos"]
    labels = info.stats.total().labels
    assert set(labels) == {"neg", "pos"} and f"{labels['pos']:,} (" in said
    assert verify_set(str(tmp_path / "set")).problems == []


def test_the_classes_of_a_dataset_keep_their_numbers(topics, sentinels, tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        text=datasets.Value("string"), label=datasets.ClassLabel(names=["pos", "neg"])
    )
    texts = [text for text in topics[:40] if text]
    rows = {"text": texts, "label": [n % 2 for n in range(len(texts))]}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(tmp_path / "data"))
    main(
        [
            "--task=classification",
            f"--input=hf:{tmp_path / 'data'}",
            f"--tokenizer={sentinels}",
            f"--output={tmp_path / 'set'}",
        ]
    )
    assert read_set(str(tmp_path / "set")).schema.parameters["classes"] == ["pos", "neg"]


def test_a_text_is_no_label(made, lines, sentinels, tmp_path):
    path = tmp_path / "many.jsonl"
    path.write_text("".join(json.dumps({"text": "a", "label": f"{n}"}) + "\n" for n in range(1001)))
    flags = [f"--input={path}", f"--tokenizer={sentinels}", f"--output={tmp_path / 'set'}"]
    with pytest.raises(UsageError, match="is probably no label"):
        main(["--task=classification", *flags])
    assert not (tmp_path / "set").exists()


def test_a_changed_label_is_found(made):
    """A set whose stats tell of other classes than its rows."""
    directory = made("classification", "--seed=5")
    stats = json.loads((Path(directory) / "stats.json").read_text())
    for part in (*stats["shards"].values(), *stats["splits"].values(), stats["total"]):
        labels = part["labels"]
        labels["0"], labels["1"] = labels["1"], labels["0"]
    replace_file(Path(directory), "stats.json", json.dumps(stats).encode())
    assert any("documents with label '0'" in p for p in verify_set(directory).problems)


def test_the_command_line_of_a_task_is_told(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "pipelines.build_shards", "--task=span_corruption", "--help=task"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--noise_density" in done.stdout and "--mask_rate" not in done.stdout
