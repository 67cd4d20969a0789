"""Wrong values of build_shards' options, from the command line, a file and Python: one refusal.

Each case: the field, its value as text, the value in Python, and the reason of the refusal.
"""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.pipelines.corpus.test_options_three_ways import with_value
from textmill.pipelines.build_shards import BUILDER
from textmill.pipelines.shards.values import ShardCounts, Splits
from textmill.pipelines.tasks.chat import Chat
from textmill.pipelines.tasks.class_names import ClassNames
from textmill.pipelines.tasks.classification import Classification
from textmill.pipelines.tasks.qa import Qa
from textmill.pipelines.tasks.questions import QuestionTemplate
from textmill.schemas.commands.flag_file import config_bytes
from textmill.schemas.errors import FieldError, UsageError

WRONG = [
    ("splits", "train:0.9,test:0.2", {"train": 0.9, "test": 0.2}, "the shares add up to 1.1"),
    ("splits", "Train:1", {"Train": 1}, "the name 'Train' must look like train_2"),
    ("splits", "train:1,test:0", {"train": 1, "test": 0}, "the share of test must be above 0"),
    ("splits", "train", "train", "'train' is not NAME:NUMBER; give train:0.98,validation:0.02"),
    ("splits", "train:x", "train:x", "'x' is not a number; give train:0.98,validation:0.02"),
    ("splits", "train:nan", {"train": float("nan")}, "the share of train must be above 0"),
    ("num_shards", "0", 0, "from 1 to 99999"),
    ("num_shards", "100000", 100_000, "from 1 to 99999"),
    ("num_shards", "many", "many", "'many' is not a number; give 16 for the largest split, or"),
    ("num_shards", "train:0", {"train": 0}, "from 1 to 99999"),
    ("num_shards", "test:3", {"test": 3}, "names test, but the splits are train, validation"),
    ("file_format", "parquet", ["parquet"], "one or more of array_record, tfrecord for the task"),
    ("file_format", "tfrecord,tfrecord", ["tfrecord", "tfrecord"], "one or more of array_record"),
    ("encoding", "text", "text", "choose one of bits, bytes, int64_list"),
    ("max_length", "0", 0, "from 1 to 65535"),
    ("max_length", "long", "long", "not a whole number"),
    ("seed", "-1", -1, "from 0 to 2**64 - 1"),
    ("shuffle_by", "hand", "hand", "choose one of auto, files, runner"),
    ("assume_bytes", "2TX", "2TX", "give a size such as 500GB or 2TB"),
    ("document", "page", "page", "choose one of file, paragraph, line"),
    ("quoting", "odd", "odd", "choose one of auto, none, double"),
]
USUAL = ("--tokenizer=t", "--output=o", "--input=i")


def parse(*argv):
    options, _ = BUILDER.parse([*USUAL, *argv])
    return options


def from_yaml(path, *lines):
    path.write_text("\n".join(lines))
    return parse(f"--config={path}")


def refuse_everywhere(name, text, value, reason, file, task="mlm"):
    head = f"{name}={text}: {reason}"
    with pytest.raises(UsageError) as of_argv:
        parse(f"--task={task}", f"--{name}={text}")
    with pytest.raises(UsageError) as of_yaml:
        from_yaml(file, f"task: {task}", f"{name}: {json.dumps(text)}")
    with pytest.raises(FieldError) as of_python:
        with_value(parse(f"--task={task}"), name, value)
    assert str(of_argv.value).startswith(f"--{head}")
    assert str(of_yaml.value) == f"{file}: {of_argv.value.in_python()}"
    assert of_python.value.in_python().startswith(head)


@pytest.mark.parametrize("name, text, value, reason", WRONG)
def test_a_wrong_value_is_refused_from_everywhere(name, text, value, reason, tmp_path):
    refuse_everywhere(name, text, value, reason, tmp_path / "job.yaml")


OF_TASKS = [
    ("mlm", "mask_rate", "1.5", 1.5, "must be between 0 and 1"),
    ("mlm", "mask_copies", "0", 0, "must be from 1 to 1,000"),
    ("mlm", "packing", "tight", "tight", "choose one of best_fit, concat, none"),
    ("classification", "classes", "a,b,a", ["a", "b", "a"], "a name occurs twice"),
    ("classification", "classes", "a", ["a"], "at least two classes are needed"),
    ("classification", "class_names", "a,,b", ["a", "", "b"], "must be names such as neg,pos"),
    ("span_corruption", "noise_density", "0.0", 0.0, "must be between 0 and 1"),
    ("span_corruption", "sentinels", "<x>", "<x>", "must have {} in place of the number"),
    ("qa", "qa_template", "{question}", "{question}", "{context} occurs 0 times, not once"),
    ("qa", "window_stride", "0", 0, "from 1 to 65535"),
    ("chat", "chat_template_arguments", "[1]", "[1]", "must be a JSON object of variables"),
    ("chat", "train_on", "user", "user", "choose one of assistant, last, all"),
]


@pytest.mark.parametrize("task, name, text, value, reason", OF_TASKS)
def test_a_wrong_value_of_a_task(task, name, text, value, reason, tmp_path):
    refuse_everywhere(name, text, value, reason, tmp_path / "job.yaml", task)


def test_values_of_tasks_from_python(tmp_path):
    # Lists, mappings and texts stand for values.
    classification: Any = Classification
    chats: Any = Chat
    qa: Any = Qa
    named = classification(classes=["no, not", "yes"], class_names=["a", "b"])
    assert (named.classes, named.names) == (("no, not", "yes"), ("a", "b"))
    flags = ("--task=classification", '--classes="no, not",yes', "--class_names=a,b")
    assert parse(*flags).settings == named
    lines = ("task: classification", "classes: ['no, not', 'yes']", "class_names: [a, b]")
    assert from_yaml(tmp_path / "job.yaml", *lines).settings == named
    for classes in (
        ClassNames(["[x]", "y"]),
        ClassNames(["a", "b"], is_json=True),
        ClassNames(['a"', "b, c"]),
    ):
        assert ClassNames.parse(str(classes)) == classes
    assert [str(ClassNames(names)) for names in ((), ("a", "b"))] == ["", "a,b"]
    again = pickle.loads(pickle.dumps(ClassNames(["a", "b"], is_json=True)))
    assert str(again) == '["a", "b"]'
    chat = chats(chat_template_arguments={"thinking": False, "name": "ø"})
    assert chat == chats(chat_template_arguments='{"thinking": false, "name": "ø"}')
    assert chat.chat_template_arguments.values == {"thinking": False, "name": "ø"}
    with pytest.raises(FieldError, match="^--chat_template_arguments=.*it is not JSON"):
        chats(chat_template_arguments={"a": {1}})
    template = "{context}: {question} {answer}"
    assert qa(qa_template=template) == Qa(qa_template=QuestionTemplate(template))


def test_values_of_python_are_the_same_options(tmp_path):
    argv = ("--splits=train:0.9,test:0.10", "--num_shards=test:1,train:3")
    options = parse(*argv, "--file_format=tfrecord,array_record", "--assume_bytes=2TB", "--dry_run")
    assert options.splitting.splits == Splits({"train": 0.9, "test": 0.1})
    assert options.splitting.shares == {"test": 0.1, "train": 0.9}
    assert options.splitting.num_shards == ShardCounts({"train": 3, "test": 1})
    assert options.splitting.shards({}) == {"train": 3, "test": 1}
    assert options.formats == ("array_record", "tfrecord") == parse("--file_format=both").formats
    assert options.run.assume_bytes == 2 * 10**12
    for name, value in {
        "splits": {"train": 0.9, "test": 0.1},
        "num_shards": {"train": 3, "test": 1},
        "file_format": ["tfrecord", "array_record"],
        "assume_bytes": "2TB",
        "input": [Path("i")],
        "tokenizer": Path("t"),
    }.items():
        assert with_value(options, name, value) == options
    lines = ("splits: {train: 0.9, test: 0.1}", "num_shards: {test: 1, train: 3}")
    more = ("file_format: [tfrecord, array_record]", "assume_bytes: 2TB", "dry_run: true")
    assert from_yaml(tmp_path / "job.yaml", *lines, *more) == options


def test_config_yaml_has_the_texts(tmp_path):
    plain = yaml.safe_load(config_bytes("pipelines.build_shards", parse("--task=clm")))
    assert plain["splits"] == "train:0.98,validation:0.02"
    assert (plain["num_shards"], plain["file_format"]) == ("auto", "array_record")
    flags = ("--splits=train:1", "--num_shards=3", "--file_format=both")
    options = parse(*flags)
    text = config_bytes("pipelines.build_shards", options)
    assert b"splits: train:1\nnum_shards: '3'\n" in text and b"file_format: both\n" in text
    lines = text.decode().splitlines()
    assert from_yaml(tmp_path / "again.yaml", *lines) == options
