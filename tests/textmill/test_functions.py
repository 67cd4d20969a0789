"""The commands as functions: one definition of settings, and results for the next call."""

import dataclasses
import functools
import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

import textmill as tm
from tests.golden.outputs import KEPT
from tests.test_start import HEAVY
from tests.tools.clm_factory import write_clm_set
from tests.tools.python_process import run_python
from textmill.functions import TRAINERS, keywords_of
from textmill.pipelines.tasks.task import task_class
from textmill.schemas.commands.help import flags_of
from textmill.schemas.commands.options import fields_of
from textmill.schemas.commands.values import rule_of, written
from textmill.schemas.format.features import TASKS
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
        assert f"<bdi>{result.directory}</bdi>" in result._repr_html_()
    assert "python -m" not in capfd.readouterr().out


def test_describe_returns_the_directory_of_the_description(tmp_path):
    to = tmp_path / "to"
    assert tm.describe(KEPT / "clm", to=to, corpus=KEPT / "corpus") == str(to)
    with pytest.raises(tm.UsageError, match="^to=.* has files .*, or overwrite=True to replace"):
        tm.describe(KEPT / "clm", to=to)
    tm.describe(KEPT / "clm", to=to, corpus=[KEPT / "corpus"], overwrite=True)


BUILDERS = ("build_corpus", "train_tokenizer", "build_shards")
REQUIRED = {
    "build_corpus": {"input": "x.txt", "output": "made"},
    "train_tokenizer": {"input": "x.txt", "output": "made", "vocab_size": 300},
    "build_shards": {"input": "x.txt", "output": "made", "tokenizer": "gpt2"},
}


def options_of(command: str, argv: Sequence[str] = (), **values: Any) -> Any:
    """The options of a command line, and of keywords."""
    file, given = keywords_of(command).given(values)
    module = import_module(
        f"textmill.{'trainers' if command in TRAINERS else 'pipelines'}.{command}"
    )
    if command in TRAINERS:
        return parse_flags([*file, *argv], module.TRAINER.flags, given)
    return module.BUILDER.parse([*file, *argv], given)[0]


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
    assert shown == {*fields_of(*keywords.options())}
    required = REQUIRED.get(command, {"shards": "made"})
    options = options_of(command, **required)
    assert options_of(command, [f"--{name}={value}" for name, value in required.items()]) == options
    values = {name: value for name, value in values_of(options) if name in shown}
    assert options_of(command, **{**values, **required}) == options


@pytest.mark.parametrize("name", TASKS)
def test_keywords_of_a_task_are_its_flags(name):
    kind = getattr(tm, name.title().replace("_", ""))
    [flags] = kind.options()
    defaults = {n: value for n, value in values_of(flags()) if value not in ("", ())}
    assert kind(max_length=64, **defaults).settings == {"max_length": 64, **defaults}
    with pytest.raises(tm.UsageError, match="^unknown keyword text_feild=x: did you mean "):
        kind(text_feild="x")


@pytest.mark.parametrize(
    ("command", "name", "value", "text"),
    [
        ("build_corpus", "near_duplicates", tm.Jaccard(0.8), "jaccard:0.8"),
        ("build_corpus", "bands", tm.Bands(20, 6), "20x6"),
        ("build_corpus", "shingle", tm.Shingle("char", 24), "char:24"),
        ("build_corpus", "keep_fields", ["url", "title:og:title"], "url,title:og:title"),
        ("build_corpus", "keep_fields", [tm.KeptField("title", "og:title")], "title:og:title"),
        ("build_corpus", "duplicate_paragraphs", tm.Paragraphs("line", 10), "line:10"),
        ("build_corpus", "language", tm.Languages({"en": 0.65, "nb": 0.0}), "en:0.65,nb"),
        ("build_corpus", "language", {"en": 0.65, "nb": 0}, "en:0.65,nb"),
        ("build_corpus", "gopher_max_top_ngrams", {2: 0.2, 3: 0.18}, "2:0.2,3:0.18"),
        ("build_corpus", "c4_page_phrases", ["a, b", "c"], '"a, b",c'),
        ("build_corpus", "num_files", 3, "3"),
        ("build_corpus", "num_files", None, "auto"),
        ("train_tokenizer", "special_tokens", ("<s>", "</s>"), "<s>,</s>"),
        ("train_tokenizer", "normalizer", tm.Normalizers(("nfc", "lowercase")), "nfc,lowercase"),
        ("train_tokenizer", "pattern", tm.Pattern("gpt2"), "gpt2"),
        ("build_shards", "splits", tm.Splits({"train": 0.9, "test": 0.1}), "train:0.9,test:0.1"),
        ("build_shards", "splits", {"test": 0.1, "train": 0.9}, "train:0.9,test:0.1"),
        ("build_shards", "num_shards", 4, "4"),
        ("build_shards", "file_format", ["array_record", "tfrecord"], "array_record,tfrecord"),
        ("flax_clm", "shards", {"a": 0.7, Path("b"): 0.3}, "a:0.7,b:0.3"),
        ("flax_clm", "dropout", None, "None"),
    ],
    ids=str,
)
def test_a_value_has_a_type_and_a_text(command, name, value, text):
    required = REQUIRED.get(command, {"shards": "made"})
    if name in ("bands", "shingle"):
        required = {**required, "near_duplicates": tm.Jaccard(0.8)}
    others = {n: other for n, other in required.items() if n != name}
    of_type, of_text = (options_of(command, **others, **{name: v}) for v in (value, text))
    assert of_type == of_text == options_of(command, [f"--{name}={text}"], **others)
    assert of_type != options_of(command, **required) or text == "auto"


@pytest.mark.parametrize("command", BUILDERS)
def test_a_wrong_keyword_names_the_nearest(command):
    with pytest.raises(tm.UsageError, match="^unknown keyword max_reject=3: did you mean max_rej"):
        getattr(tm, command)(**REQUIRED[command], max_reject=3)


@pytest.mark.parametrize("command", BUILDERS)
def test_a_missing_keyword_is_named_with_the_function(command):
    with pytest.raises(tm.UsageError, match=f"^{command} needs (.*, )?output=DIR"):
        getattr(tm, command)(input="x.txt")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_length": 0}, "max_length=0: from 1 to 65535"),
        ({"max_length": "many"}, "max_length=many: not a whole number"),
        ({"packing": "most"}, "packing=most: choose one of "),
        ({"max_lengths": 3}, "unknown keyword max_lengths=3"),
    ],
    ids=str,
)
def test_a_task_refuses_a_wrong_value_when_it_is_made(settings, message):
    with pytest.raises(tm.UsageError) as refused:
        tm.Clm(**settings)
    assert str(refused.value).startswith(message)


def test_the_class_of_a_task_is_no_task():
    with pytest.raises(tm.UsageError, match=r"^task=Clm: write Clm\(\)$"):
        tm.build_shards(tm.Clm, **REQUIRED["build_shards"])  # pyright: ignore[reportArgumentType]


def test_a_wrong_trainer_names_the_nearest():
    with pytest.raises(tm.UsageError, match="^there is no trainer 'flax_cml': did you mean flax_"):
        tm.train("flax_cml", shards="made")  # pyright: ignore[reportCallIssue, reportArgumentType]


WRONG = [
    ("build_corpus", "near_duplicates", 2),
    ("build_corpus", "near_duplicates", "jaccard:1.5"),
    ("build_corpus", "keep_fields", ["id"]),
    ("build_corpus", "keep_fields", ["url", "url"]),
    ("build_corpus", "duplicate_paragraphs", "page:3"),
    ("build_corpus", "num_files", 0),
    ("build_corpus", "html", "most"),
    ("build_corpus", "bands", "1"),
    ("build_corpus", "language", "xx:2"),
    ("build_corpus", "assume_bytes", "much"),
    ("train_tokenizer", "vocab_size", 1),
    ("train_tokenizer", "model", "unigram"),
    ("train_tokenizer", "max_rejects", "few"),
    ("build_shards", "max_length", 0),
    ("build_shards", "seed", -1),
    ("build_shards", "seed", "abc"),
    ("build_shards", "splits", {"train": 0.5}),
    ("build_shards", "num_shards", 0),
    ("build_shards", "file_format", ["csv"]),
    ("build_shards", "task", "clmm"),
    ("build_shards", "mask_rate", 2),
    ("build_shards", "mask_unit", "letter"),
    ("flax_clm", "steps", 0),
    ("flax_clm", "steps", 1.5),
    ("flax_clm", "learning_rate", -1.0),
    ("flax_clm", "dropout", 1.5),
    ("flax_clm", "optimizer", "adam"),
    ("flax_mlm", "mask_rate", 2),
    ("flax_mlm", "masking", "often"),
    ("tf_classifier", "batch_size", 0),
    ("tf_classifier", "device", "ipu"),
    ("tf_qa", "squad_version", "3.0"),
    ("poptorch_classifier", "replication", 0),
    ("poptorch_classifier", "device", "tpu"),
]


@pytest.mark.parametrize(("command", "name", "value"), WRONG, ids=str)
def test_a_wrong_value_has_one_refusal_in_three_spellings(command, name, value, tmp_path):
    required = {**REQUIRED.get(command, {"shards": "made"})}
    required.pop(name, None)
    file = tmp_path / "flags.yaml"
    file.write_text(yaml.safe_dump({name: value}))
    refusals = []
    for argv in ([f"--{name}={written(value)}"], [f"--config={file}"]):
        with pytest.raises(tm.UsageError) as refused:
            options_of(command, argv, **required)
        refusals.append(refused.value)
    run = functools.partial(tm.train, command) if command in TRAINERS else getattr(tm, command)
    with pytest.raises(tm.UsageError) as refused:
        run(**required, **{name: value})
    typed, of_file = refusals
    assert str(typed).startswith(f"--{name}=")
    assert str(of_file) == f"{file}: {typed.in_python()}"
    assert str(refused.value) == typed.in_python()


RECORD = b'{"text": "a b"}\n'
WRONG_DATA = [
    (b'{"text": 1}\n' * 3, {"max_rejects": 2}, "rejected, more than max_rejects=2 ("),
    (b"text\na b\n", {"text_field": "body"}, "has no field 'body', which text_field names; its"),
    (
        RECORD,
        {"url_blocklist": ["x"]},
        "url_blocklist=x needs each document's url: keep_fields=url",
    ),
    (RECORD, {"filter": "codecs:decode"}, "filter=codecs:decode failed with TypeError"),
    (RECORD, {"filter": "no_such:x"}, "filter=no_such:x: no_such cannot be imported"),
    (RECORD, {"document": "line"}, "document=line divides text files, but no input is one"),
]


@pytest.mark.parametrize(("content", "settings", "message"), WRONG_DATA, ids=str)
def test_errors_of_a_run_name_keywords(content, settings, message, tmp_path):
    """The limit of rejected documents and the filter fail in a worker."""
    path = tmp_path / ("a.jsonl" if content[:1] == b"{" else "a.csv")
    path.write_bytes(content)
    with pytest.raises((tm.UsageError, tm.DataError)) as error:
        tm.build_corpus(input=path, output=tmp_path / "made", **settings)
    assert message in str(error.value) and "--" not in str(error.value)
    assert str(error.value).isprintable()


def test_a_wrong_chat_template_is_that_of_a_keyword(tokenizer_path, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"messages": []}\n')
    (tmp_path / "wrong.jinja").write_text("{% if %}")
    settings = {
        "input": tmp_path / "a.jsonl",
        "tokenizer": tokenizer_path,
        "output": tmp_path / "x",
    }
    for name, message in {
        "none.jinja": f"^chat_template={tmp_path}/none.jinja cannot be read: ",
        "wrong.jinja": f"^chat_template: {tmp_path}/wrong.jinja, line 1: .*; it must be valid Jin",
    }.items():
        with pytest.raises(tm.UsageError, match=message):
            tm.build_shards("chat", chat_template=tmp_path / name, **settings)


@pytest.mark.parametrize(
    ("missing", "call", "extra"),
    [
        ("tyro", "tm.build_corpus(input='x', output='y')", "pipelines"),
        ("pyarrow", "tm.verify('x')", "pipelines"),
        ("tyro", "tm.train('tf_qa', shards='x')", "tf"),
        ("tyro", "tm.Clm(max_length=3)", "pipelines"),
    ],
)
def test_a_missing_package_names_its_extra(missing, call, extra):
    code = f"import sys; sys.modules[{missing!r}] = None; import textmill as tm; {call}"
    done = run_python("-c", code)
    line = done.stderr.splitlines()[-1]
    assert line.startswith("ModuleNotFoundError: textmill")
    assert f"needs the package {missing}, which is not installed here: pip install " in line
    assert line.endswith(f"'/path/to/textmill[{extra}]'")


@pytest.mark.slow
def test_ctrl_c_saves_a_training_run(tmp_path):
    write_clm_set(tmp_path / "shards", train=40, validation=10)
    metrics = tmp_path / "run" / "metrics.jsonl"

    def interrupt():
        while not (metrics.exists() and metrics.stat().st_size):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    settings = {
        **{"shards": tmp_path / "shards", "output": tmp_path / "run", "batch_size": 4},
        **{"layers": 1, "hidden_size": 16, "heads": 2, "intermediate_size": 16},
    }
    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt, match="^resume=True continues from the newest"):
        tm.train("flax_clm", steps=100_000, **settings)
    stopped = tm.open(tmp_path / "run")
    assert isinstance(stopped, tm.Run)
    steps = len(stopped.metrics())
    assert os.listdir(tmp_path / "run" / "checkpoints") == [str(steps)]
    run = tm.train("flax_clm", steps=100_000, stop_after=steps + 2, resume=True, **settings)
    lines = [line["step"] for line in run.metrics() if line["kind"] == "train"]
    assert lines == [*range(1, steps + 3)]
