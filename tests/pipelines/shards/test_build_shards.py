"""Whole runs of build_shards: its rows, what it finds in --output, and how it is ended."""

import gc
import gzip
import json
import os
import pathlib
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tokenizers import Tokenizer

from tests.golden.outputs import HERE, KEPT
from tests.tools.places import CHAT_TEMPLATE
from tests.tools.python_process import run_python
from tests.tools.segments import segments_of
from tests.tools.shard_factory import replace_file
from textmill.pipelines.build_shards import main
from textmill.pipelines.inspection.checks.set_check import verify_dataset
from textmill.pipelines.verify import main as verify
from textmill.pipelines.writers import output_directory
from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.files.finished import read_dataset


def arguments(corpus, tokenizer_path, output, *more):
    return [
        f"--input={corpus}",
        f"--tokenizer={tokenizer_path}",
        f"--output={output}",
        "--num_shards=3",
        *more,
    ]


@pytest.fixture(scope="module")
def made(corpus, tokenizer_path, tmp_path_factory):
    """A set made the plain way; tests compare with it and leave it alone."""
    output = tmp_path_factory.mktemp("made") / "set"
    main(arguments(corpus, tokenizer_path, output))
    return output


def test_every_document_comes_back_from_the_rows(made, topics, tokenizer_path):
    tokenizer = Tokenizer.from_file(tokenizer_path)
    expected = []
    for document in set(filter(None, topics)):
        ids = tokenizer.encode(document, add_special_tokens=False).ids
        expected += [(0, *ids[i : i + 126], 2) for i in range(0, len(ids), 126)]
    assert sorted(segments_of(made)) == sorted(expected)


PROCESSES = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]


def test_the_same_inputs_find_the_set_and_others_are_refused(
    made, corpus, tokenizer_path, tmp_path, capsys
):
    before = os.stat(made / "MANIFEST.json").st_mtime_ns
    main(arguments(corpus, tokenizer_path, made))
    assert "nothing to do" in capsys.readouterr().out
    assert os.stat(made / "MANIFEST.json").st_mtime_ns == before
    changed = tmp_path / "corpus.jsonl"
    with open(corpus, "rb") as file:
        content = file.read()
    changed.write_bytes(content.replace(b"the", b"eht", 1))
    with pytest.raises(UsageError, match="same sizes but other content"):
        main(arguments(changed, tokenizer_path, made))
    changed.write_bytes(content + b'{"text": "more"}\n')
    with pytest.raises(UsageError, match="of other sizes"):
        main(arguments(changed, tokenizer_path, made))


def test_rejected_documents_are_listed_and_filtered_ones_counted_apart(
    tokenizer_path, tmp_path, monkeypatch, capsys
):
    source = tmp_path / "mixed.jsonl"
    source.write_bytes(
        b'{"text": "good one"}\n{"text": "\xff"}\n{"body": 1}\n{"text": "two"}\n{"text": "two"}\n'
        b'{"text": "spam!"}\n'
    )
    chooser, output = tmp_path / "set_chooser.py", tmp_path / "set"
    chooser.write_text("def choose(d):\n    return 'spam' if 'spam' in d['text'] else None\n")
    monkeypatch.syspath_prepend(tmp_path)
    flags = ["--filter=set_chooser:choose", "--max_rejects=2"]
    main(arguments(source, tokenizer_path, output, *flags))
    assert "1 filter:spam" in capsys.readouterr().out
    info = read_dataset(str(output))
    stats = info.stats
    assert stats.dropped == {"filter:spam": 1, "missing_field": 1, "not_utf8": 1}
    assert (stats.documents_read, stats.total().documents) == (6, 2)
    assert stats.total().dropped["duplicates"] == 1 and stats.broken_equations() == []
    assert info.schema.parameters["filter"] == "set_chooser:choose"
    lines = (output / "rejects/rejects.jsonl").read_text().splitlines()
    listed = [(r["offset"], r["reason"]) for r in map(json.loads, lines)]
    assert listed == [(21, "not_utf8"), (35, "missing_field")]
    with pytest.raises(
        DataError,
        match=r"2 documents were rejected, more than --max_rejects=1 "
        r"\(1 missing_field, 1 not_utf8\); the first is in .*mixed.jsonl at byte 21: not_utf8",
    ):
        main(arguments(source, tokenizer_path, tmp_path / "strict", "--max_rejects=1"))
    assert not (tmp_path / "strict" / "MANIFEST.json").exists()
    chooser.write_text("def choose(d):\n    return None\n")
    with pytest.raises(UsageError, match="filter_sha256"):
        main(arguments(source, tokenizer_path, output, *flags))


@pytest.mark.slow
def test_a_worker_process_finds_the_filter_where_the_command_is_run(tokenizer_path, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "short"}\n{"text": "much longer than that"}\n')
    (tmp_path / "chooser.py").write_text(
        "def choose(document):\n    return 'short' if len(document['text']) < 9 else None\n"
    )
    flags = arguments("in.jsonl", tokenizer_path, "set", "--filter=chooser:choose", *PROCESSES)
    done = run_python("-m", "pipelines.build_shards", *flags, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert read_dataset(str(tmp_path / "set")).stats.dropped["filter:short"] == 1


def shards(output):
    """sha256 of every shard, from the manifest."""
    return {f.path: f.sha256 for f in read_dataset(str(output)).manifest.files if f.split}


def test_a_set_is_made_again_with_the_file_it_carries(corpus, tokenizer_path, tmp_path):
    made = tmp_path / "set"
    main(arguments(corpus, tokenizer_path, made, "--max_length=64", "--splits=train:0.5,test:0.5"))
    before = gc.get_freeze_count()
    main([f"--config={made}/config.yaml", f"--output={tmp_path / 'again'}"])
    # A notebook goes on: objects that the garbage collector froze would never be freed.
    assert gc.get_freeze_count() <= before
    assert shards(tmp_path / "again") == shards(made)
    config = [(d / "config.yaml").read_bytes() for d in (made, tmp_path / "again")]
    assert config[0] == config[1]
    main([f"--config={made}/config.yaml", f"--output={tmp_path / 'other'}", "--seed=3"])
    assert shards(tmp_path / "other") != shards(made)


def test_a_document_more_changes_one_file_of_a_split_and_no_other(topics, tokenizer_path, tmp_path):
    """Why there is no --append."""
    texts = [text for text in topics[:900] if text]
    made = []
    for more in (0, 1):
        source = tmp_path / f"{more}.jsonl"
        lines = [json.dumps({"text": text}) for text in texts + ["One more."] * more]
        source.write_text("\n".join(lines))
        main(arguments(source, tokenizer_path, tmp_path / f"set{more}", "--max_length=64"))
        made.append(shards(tmp_path / f"set{more}"))
    assert len(made[0]) == 8  # rows, and their documents
    changed = [path for path in made[0] if made[0][path] != made[1][path]]
    assert len(changed) == 2 and len({path.split(".")[0] for path in changed}) == 1


def test_a_worker_process_that_is_killed_ends_the_run(
    slow_corpus, tokenizer_path, tmp_path, wait_for
):
    """As by a system out of memory: FnApiRunner alone would wait for it for ever."""
    output = tmp_path / "set"
    flags = arguments(slow_corpus, tokenizer_path, output, *PROCESSES)
    process = subprocess.Popen(command(*flags), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    wait_for((output / ".staging" / "progress").exists)
    workers = wait_for(lambda: workers_of(process))
    workers[0].kill()
    said = process.communicate(timeout=60)[1].decode()
    last = said.splitlines()[-1]
    assert process.returncode == 1 and "Traceback" not in said
    assert last.startswith("error: a worker process died (killed, or out of memory)")
    assert os.listdir(output) in ([], [".lock"])
    alive = [worker for worker in workers if worker.is_running()]
    assert not [worker for worker in alive if worker.status() != psutil.STATUS_ZOMBIE]


def workers_of(process):
    children = psutil.Process(process.pid).children(recursive=True)
    return [child for child in children if "python" in child.name()]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_workers_that_are_still_starting_end_with_the_command(
    slow_corpus, tokenizer_path, tmp_path, wait_for, how
):
    """A worker whose runner is gone while it connects waits for it for up to two minutes."""
    flags = arguments(slow_corpus, tokenizer_path, tmp_path / "set", *PROCESSES)
    (tmp_path / "temporary").mkdir()
    process = subprocess.Popen(
        command(*flags),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
    )
    workers = wait_for(lambda: workers_of(process))
    process.send_signal(how)
    gone, alive = psutil.wait_procs(workers, timeout=10)
    assert (len(gone), alive) == (len(workers), [])
    said = process.communicate(timeout=60)[1].decode()
    if how == signal.SIGTERM:
        assert process.returncode == 143 and said.startswith("terminated: ")
    assert not list((tmp_path / "temporary").glob("beam-*"))


@pytest.mark.slow
def test_a_truncated_archive_is_said_in_one_paragraph(tokenizer_path, tmp_path):
    source = tmp_path / "cut.txt.gz"
    source.write_bytes(gzip.compress(os.urandom(1000).hex().encode() * 50)[:-300])
    with pytest.raises(DataError, match=r"^[^\n]*cut\.txt\.gz is truncated or damaged[^\n]*$"):
        main(arguments(source, tokenizer_path, tmp_path / "set", *PROCESSES))
    assert os.listdir(tmp_path / "set") in ([], [".lock"])


def command(*flags):
    return [sys.executable, "-m", "pipelines.build_shards", *flags]


def test_a_tokenizer_without_a_mask_token_is_refused_for_mlm(corpus, tokenizer_path, tmp_path):
    plain = json.loads(pathlib.Path(tokenizer_path).read_text())
    plain["added_tokens"] = [t for t in plain["added_tokens"] if t["content"] != "<mask>"]
    del plain["model"]["vocab"]["<mask>"]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(plain))
    with pytest.raises(UsageError, match="no mask token"):
        main(arguments(corpus, path, tmp_path / "set"))
    main(arguments(corpus, path, tmp_path / "set", "--no_static_masking"))
    assert read_dataset(str(tmp_path / "set")).schema.max_masked == 0


@pytest.fixture
def slow_corpus(topics, tmp_path):
    """Enough text to be in the middle of for a few seconds."""
    path = tmp_path / "slow.jsonl"
    with open(path, "w") as file:
        for copy in range(60):
            for topic in topics:
                file.write(json.dumps({"text": f"{copy} {topic}"}) + "\n")
    return str(path)


@pytest.mark.parametrize("seed", [7, 0])
def test_what_is_published_before_the_lock_is_had_stays(
    corpus, tokenizer_path, tmp_path, monkeypatch, capsys, seed
):
    """Another set is refused, this very one found, as if it had been there from the start."""
    output = tmp_path / "set"
    wait = output_directory.stage

    def let_another_finish(*args, **kwargs):
        monkeypatch.setattr(output_directory, "stage", wait)
        main(arguments(corpus, tokenizer_path, output, f"--seed={seed}"))
        return wait(*args, **kwargs)

    monkeypatch.setattr(output_directory, "stage", let_another_finish)
    flags = arguments(corpus, tokenizer_path, output, "--seed=7")
    if seed == 7:
        main(flags)
        assert "already contains this dataset" in capsys.readouterr().out
    else:
        with pytest.raises(UsageError, match="contains a different dataset .*seed"):
            main(flags)
    assert read_dataset(str(output)).schema.seed == seed


@pytest.mark.parametrize(
    ("how", "mode"),
    [
        (signal.SIGINT, []),
        (signal.SIGTERM, []),
        (signal.SIGKILL, []),
        pytest.param(signal.SIGINT, PROCESSES, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, PROCESSES, marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_run_leaves_nothing_to_open_and_can_be_repeated(
    slow_corpus, corpus, tokenizer_path, tmp_path, how, mode, wait_for
):
    output = tmp_path / "set"
    flags = arguments(slow_corpus, tokenizer_path, output, *mode)
    process = subprocess.Popen(command(*flags), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    wait_for((output / ".staging" / "progress").exists)
    workers = psutil.Process(process.pid).children(recursive=True)
    assert bool(workers) == bool(mode)
    process.send_signal(signal.SIGSTOP)  # else it may end while we import Beam
    with pytest.raises(UsageError, match="another run writes into"):
        main(flags)
    process.send_signal(how)
    process.send_signal(signal.SIGCONT)
    said = process.communicate(timeout=30)[1].decode()
    assert psutil.wait_procs(workers, timeout=20)[1] == []
    assert not (output / "MANIFEST.json").exists()
    if how != signal.SIGKILL:
        assert process.returncode == 128 + how
        word = "interrupted" if how == signal.SIGINT else "terminated"
        assert f"{word}: nothing is kept; run it with --resume" in said
        assert "Traceback" not in said
        assert os.listdir(output) in ([], [".lock"])
    main(arguments(corpus, tokenizer_path, output))
    assert read_dataset(str(output)).stats.broken_equations() == []
    assert not (output / ".staging").exists()


def test_sigterm_while_the_run_is_planned_leaves_no_staging_folder(
    corpus, tokenizer_path, tmp_path, wait_for
):
    output = tmp_path / "set"
    flags = arguments(corpus, tokenizer_path, output)
    process = subprocess.Popen(command(*flags), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    wait_for((output / ".staging").exists)  # before Beam is imported
    process.terminate()
    said = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 143
    assert said.splitlines()[-1].startswith("terminated: nothing is kept; run it with --resume")
    assert os.listdir(output) == [".lock"]


def test_classes_of_folders_are_counted(topics, sentinels, tmp_path, capsys):
    for number, text in enumerate(topics[:60]):
        folder = tmp_path / "in" / ("neg", "pos", "pos")[number % 3]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.txt").write_text(text or "empty")
    main(arguments(tmp_path / "in", sentinels, tmp_path / "set", "--task=classification"))
    said = capsys.readouterr().out
    assert "2 classes: neg, pos" in said
    info = read_dataset(str(tmp_path / "set"))
    assert info.schema.parameters["classes"] == ["neg", "pos"]
    labels = info.stats.total().labels
    assert set(labels) == {"neg", "pos"} and f"{labels['pos']:,} (" in said
    assert verify_dataset(str(tmp_path / "set")).problems == []
    stats = json.loads((tmp_path / "set" / "stats.json").read_text())
    for part in (*stats["shards"].values(), *stats["splits"].values(), stats["total"]):
        labels = part["labels"]
        part["labels"] = dict(zip(labels, reversed(labels.values()), strict=True))
    replace_file(tmp_path / "set", "stats.json", json.dumps(stats).encode())
    problems = verify_dataset(str(tmp_path / "set")).problems
    assert any("documents with label 'neg'" in problem for problem in problems)


def test_train_loses_what_validation_and_test_have(topics, tokenizer_path, tmp_path):
    unique = sorted(set(filter(None, topics)))
    documents = {"train": unique[:-60] + unique[:7], "validation": unique[-90:-30]}
    documents["test"] = unique[-30:]
    paths = {split: tmp_path / f"{split}.jsonl" for split in documents}
    for split, texts in documents.items():
        paths[split].write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    flags = [f"--tokenizer={tokenizer_path}", f"--output={tmp_path / 'set'}", "--num_shards=9"]

    def build(**inputs):
        main([*flags, *(f"--{split}_input={path}" for split, path in inputs.items())])
        verify([str(tmp_path / "set")])
        return read_dataset(str(tmp_path / "set"))

    made = build(**paths)
    shards = made.schema.shards  # by the size of each input
    assert shards["train"] == 9 and 1 <= shards["test"] <= shards["validation"] < 5
    assert made.schema.splits == {"test": 0.0, "train": 0.0, "validation": 0.0}
    splits = made.stats.splits()
    assert splits["validation"].documents == 60 and splits["test"].documents == 30
    both = set(documents["train"]) & set(documents["validation"])
    assert len(both) == 30 == splits["train"].dropped["held_out"]
    assert splits["train"].dropped["duplicates"] == 7
    assert splits["train"].documents == len(set(documents["train"])) - 30
    assert made.stats.documents_read == sum(map(len, documents.values()))
    train, validation = (
        set(segments_of(made.directory, split)) for split in ("train", "validation")
    )
    assert train and validation and not train & validation
    assert build(**paths).manifest == made.manifest
    paths["test"], paths["validation"] = paths["validation"], paths["test"]
    with pytest.raises(UsageError, match="but other content, labels, splits or names"):
        build(**paths)


# Fields with other names in the inputs give the same rows


TASKS = {
    "qa": (
        "questions.jsonl",
        {"question": "ask", "context": "page", "answers": "gold", "id": "number"},
        ["--max_length=96", "--max_question_length=16", "--max_answer_length=12"],
    ),
    "classification": (
        "documents.jsonl",
        {"text": "body", "label": "mood", "url": "address"},
        ["--id_field=url"],
    ),
    "chat": ("chat.jsonl", {"messages": "turns", "tools": "functions"}, []),
}


@pytest.mark.parametrize("task", TASKS)
def test_the_names_of_fields_are_flags(task, tmp_path):
    name, renames, more = TASKS[task]
    records = [json.loads(line) for line in (HERE / "inputs" / name).read_text().splitlines()]
    if task == "chat":
        function = {"name": "turns", "description": "counts turns", "parameters": {}}
        records = [
            {**record, "tools": [{"type": "function", "function": function}]} for record in records
        ]
        more = [f"--chat_template={template_of_tools(tmp_path)}"]
    flags = [f"--{ours}_field={theirs}" for ours, theirs in renames.items() if ours != "url"]
    renamed = [
        {renames.get(key, key): value for key, value in record.items()} for record in records
    ]
    built = build(task, tmp_path / "same", records, more)
    others = [flag.replace("=url", "=address") for flag in more]
    assert build(task, tmp_path / "renamed", renamed, [*others, *flags]) == built
    assert len(built) == 4 + (task != "chat")  # two files of both splits, and evaluation.jsonl


def template_of_tools(folder: Path) -> Path:
    """A template that writes the tools before the messages."""
    path = folder / "template.jinja"
    path.write_text(
        "{% if tools %}{{ tools[0].function.name }}{% endif %}" + CHAT_TEMPLATE.read_text()
    )
    return path


def build(task: str, folder: Path, records: list[dict], flags: list[str]) -> dict[str, bytes]:
    """The rows of a dataset, and what its evaluation reads beside them."""
    folder.mkdir()
    source = folder / "input.jsonl"
    source.write_text("".join(json.dumps(record) + "\n" for record in records))
    always = [f"--task={task}", f"--input={source}", f"--output={folder / 'set'}"]
    always += [f"--tokenizer={KEPT / 'bpe'}", "--splits=train:0.3,validation:0.7"]
    main([*always, *flags])
    paths = [*(folder / "set").glob("*-of-*"), *(folder / "set").glob("evaluation.jsonl")]
    return {path.name: path.read_bytes() for path in paths}
