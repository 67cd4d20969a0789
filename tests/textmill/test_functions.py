"""The commands as functions: one definition of settings, and results for the next call."""

import dataclasses
import itertools
import json
import os
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

import textmill as tm
from tests.test_start import HEAVY
from tests.tools.python_process import run_python
from textmill.functions import TRAINERS, keywords_of
from textmill.pipelines.tasks.task import task_class
from textmill.schemas.commands.help import flags_of
from textmill.schemas.commands.values import rule_of
from textmill.schemas.features import TASKS
from textmill.trainers.flags.command_line import parse_flags


def test_an_import_loads_nothing():
    code = (
        "import json, sys; before = {*sys.modules}; import textmill; dir(textmill);"
        "print(json.dumps(sorted({*sys.modules} - before)))"
    )
    loaded = set(json.loads(run_python("-c", code, check=True).stdout))
    assert {name for name in loaded if name.startswith("textmill")} == {"textmill"}
    assert not loaded & HEAVY and "numpy" not in loaded


def test_all_names_are_there():
    assert {*tm.__all__} <= {*dir(tm)}
    assert [name for name in tm.__all__ if not callable(getattr(tm, name))] == []
    with pytest.raises(AttributeError, match="module 'textmill' has no attribute 'build_courpus'"):
        getattr(tm, "build_courpus")  # noqa: B009  pyright knows that it is not there


def test_every_task_has_a_class():
    classes = [getattr(tm, name.title().replace("_", "")) for name in TASKS]
    assert [one.name for one in classes] == [*TASKS]


@pytest.mark.slow
def test_the_example(topics, tmp_path, monkeypatch, capfd):
    """Text -> corpus -> tokenizer -> dataset -> model -> text, in this process."""
    monkeypatch.chdir(tmp_path)
    records = [{"text": text, "url": f"https://a.no/{n}"} for n, text in enumerate(topics[:1500])]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (tmp_path / "crawl.jsonl").write_text(lines)
    corpus = tm.build_corpus(
        input="crawl*.jsonl",
        output="corpus",
        keep_fields=["url"],
        near_duplicates=tm.Jaccard(0.8),
        min_words=3,
    )
    assert corpus.stats.total().documents > 1000 and corpus.seconds
    assert corpus.schema.columns == ("id", "text", "url")
    tokenizer = tm.train_tokenizer(input=corpus, output="tokenizer", vocab_size=600)
    assert tokenizer.stats.vocab_size == 600
    data = tm.build_shards(
        tm.Clm(max_length=64),
        input=corpus,
        tokenizer=tokenizer,
        output="shards",
        splits={"train": 0.9, "validation": 0.1},
    )
    again = tm.build_shards(
        "clm", max_length=64, input="corpus", tokenizer="tokenizer", output="shards",
        splits="train:0.9,validation:0.1",
    )  # fmt: skip
    assert (data.seconds is None, again.seconds) == (False, None)
    assert os.path.exists(data.report) and data.stats.split("train").rows > 100
    batch = next(tm.ShardSet(data).batches("train", batch_size=4, seed=0))
    assert batch["input_ids"].shape == (4, 64)
    counted = tm.verify(corpus, data)
    assert (counted["corpus"], counted["dataset"]) == (1, 1)
    run = tm.train(
        "flax_clm", shards=data, output="run", model="tiny", layers=1, hidden_size=32, heads=2,
        intermediate_size=64, steps=30, batch_size=8, learning_rate=0.01,
    )  # fmt: skip
    losses = [line["loss"] for line in run.metrics() if line["kind"] == "train"]
    assert len(losses) == 30 and losses[-1] < losses[0] - 0.3
    assert os.path.exists(run.report)
    text = run.generate("The function", max_new_tokens=5)
    assert text.startswith("The function") and len(text) > len("The function")
    texts = run.generate("The", max_new_tokens=3, samples=2, temperature=1.0)
    assert [each[:3] for each in texts] == ["The", "The"]
    for result in (corpus, tokenizer, data, run):
        found = tm.open(result.directory)
        assert (type(found), found.facts()) == (type(result), result.facts())
        assert f"<td>{result.directory}</td>" in result._repr_html_()
    assert "python -m" not in capfd.readouterr().out


BUILDERS = ("build_corpus", "train_tokenizer", "build_shards")
REQUIRED = {
    "build_corpus": {"input": "x.txt", "output": "made"},
    "train_tokenizer": {"input": "x.txt", "output": "made", "vocab_size": 300},
    "build_shards": {"input": "x.txt", "output": "made", "tokenizer": "gpt2"},
}


def options_of(command: str, argv: list[str]) -> Any:
    """The options of a command line."""
    if command in TRAINERS:
        module = import_module(f"textmill.trainers.{command}")
        return parse_flags(argv, module.TRAINER.flags)
    return import_module(f"textmill.pipelines.{command}").parse(argv)[0]


def values_of(options: Any) -> Iterator[tuple[str, Any]]:
    """The values of all fields, those of nested dataclasses too, by name."""
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if dataclasses.is_dataclass(value) and rule_of(field.type) is None:
            yield from values_of(value)
        else:
            yield field.name, value


@pytest.mark.parametrize("command", [*BUILDERS, *TRAINERS])
def test_keywords_are_the_flags(command):
    """Field by field: the names of --help, and each default as a value of Python."""
    keywords = keywords_of(command)
    flags = (flags_of(kind, settings=task_class("mlm")) for kind in keywords.options())
    shown = {flag.name for flag in itertools.chain(*flags)}
    assert shown == {*keywords.kinds} - {"index"}
    required = REQUIRED.get(command, {"shards": "made"})
    options = options_of(command, keywords.arguments(required))
    values = {name: value for name, value in values_of(options) if name in shown}
    assert options_of(command, keywords.arguments({**values, **required})) == options


@pytest.mark.parametrize("name", TASKS)
def test_keywords_of_a_task_are_its_flags(name):
    kind = getattr(tm, name.title().replace("_", ""))
    [flags] = kind.options()
    defaults = {n: value for n, value in values_of(flags()) if value not in ("", ())}
    assert kind(max_length=64, **defaults).settings == {"max_length": 64, **defaults}
    with pytest.raises(tm.UsageError, match="^unknown keyword text_feild=x: did you mean "):
        kind(text_feild="x")
