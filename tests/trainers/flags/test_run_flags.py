"""The flags of all five trainers: what two of them have means the same, and is refused alike."""

import ast
import contextlib
import inspect
import re
import shlex
from dataclasses import fields
from functools import cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from tests.tools.class_factory import write_class_set
from tests.tools.run_reading import change_flags
from tests.tools.shard_factory import write_mlm_set
from textmill.schemas.commands.flag_file import config_bytes
from textmill.schemas.errors import TextmillError, UsageError, as_flags, as_keywords
from textmill.trainers.data.batches import BatchReader
from textmill.trainers.flags.command_line import (
    command,
    command_to_resume,
    flag_values,
    make_flags,
    parse_flags,
)
from textmill.trainers.flags.run_flags import RunFlags
from textmill.trainers.models.families import FAMILIES
from textmill.trainers.models.plan_model import SIZES

TRAINERS = {
    "flax_mlm": "FlaxMlmFlags",
    "flax_clm": "FlaxClmFlags",
    "tf_classifier": "TfClassifierFlags",
    "tf_qa": "TfQaFlags",
    "poptorch_classifier": "PoptorchClassifierFlags",
}
FLAGS: dict[str, Any] = {
    name: getattr(import_module(f"trainers.{name}"), flags) for name, flags in TRAINERS.items()
}
every = pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS)
# Which models a trainer has is its own matter.
OF_MODELS = {"family", "model"}
# Those that suit a task, as papers and transformers have them.
OWN_DEFAULTS = {"learning_rate", "beta2", "epsilon", "dropout", "best_metric", "model"}


def groups_of(flags: type) -> list[type]:
    return [field.type for field in fields(flags)]  # type: ignore[misc]


@cache
def docs_of(flags: type) -> dict[str, str]:
    """The docstring below each flag, that of the class nearest to its group."""
    docs = {}
    for kind in (kind for group in groups_of(flags) for kind in reversed(inspect.getmro(group))):
        if kind is object:
            continue
        [body] = ast.parse(inspect.getsource(kind)).body
        assert isinstance(body, ast.ClassDef)
        for field, below in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                assert isinstance(field.target, ast.Name) and isinstance(below.value, ast.Constant)
                docs[field.target.id] = inspect.cleandoc(str(below.value.value))
    return docs


@cache
def hints_of(flags: type) -> dict[str, Any]:
    """The type of each flag."""
    found = {}
    for group in groups_of(flags):
        hints = get_type_hints(group)
        found.update({field.name: hints[field.name] for field in fields(group)})
    return found


def settings_of(flags: Any) -> list[Any]:
    """Settings with None, True and False for all flags that may be so, unless that is refused."""
    found = []
    for value in (None, True, False):
        together: dict[str, Any] = {"shards": "set", "output": "run"}
        for name, kind in hints_of(flags).items():
            if type(value) in {*get_args(kind), kind}:
                with contextlib.suppress(TextmillError):
                    make_flags(flags, **{**together, name: value})
                    together[name] = value
        found.append(make_flags(flags, **together))
    return found


ODD: dict[str, Any] = {
    **{"shards": "a set:0.7,b:0.3", "output": "it's there", "verify": False, "batch_size": 8},
    **{"learning_rate": 3e-4, "best_metric": "loss", "patience": 2, "warmup_steps": 0},
}


@every
def test_what_a_run_prints_and_writes_gives_it_again(flags, tmp_path):
    """Every value of a choice of words: `--no_tied`, `--dropout=None`, `--no_verify`."""
    path = tmp_path / "config.yaml"
    settings = [make_flags(flags, **ODD), *settings_of(flags)]
    for one in settings:
        python, m, module, *argv = shlex.split(command(one, resume=True))
        assert (python, m, module) == ("python", "-m", f"trainers.{flags.entry}")
        assert parse_flags(argv, flags) == change_flags(one, resume=True)
        path.write_bytes(config_bytes(f"trainers.{flags.entry}", one))
        again = parse_flags([f"--config={path}", f"--output={one.files.output}"], flags)
        assert again == change_flags(one, resume=False, stop_after=None, dry_run=False)


def names_of(flags: type) -> set[str]:
    return set(hints_of(flags))


NAMES = {name for flags in FLAGS.values() for name in names_of(flags)}
COMMON = set.intersection(*map(names_of, FLAGS.values()))


def test_all_have_what_a_run_and_a_model_have():
    assert names_of(RunFlags) == COMMON
    rows = {flags().task.rows for flags in FLAGS.values()}
    assert rows == {"mlm", "clm", "classification", "qa"}
    for name, flags in FLAGS.items():
        assert flags.entry == name
        names = [field.name for group in groups_of(flags) for field in fields(group)]
        assert len(names) == len(set(names)) and flag_values(flags()).keys() == set(names)


@every
def test_help_has_a_heading_for_each_group(flags, capfd):
    with pytest.raises(SystemExit, match="0"):
        parse_flags(["--help=all"], flags)
    shown = capfd.readouterr().out
    assert all(f"\n{field.name.capitalize()}: " in shown for field in fields(flags))
    assert not any(word in shown for word in ("--evaluate ", "--input", "TEXT", "data."))


def head(doc: str) -> str:
    """The part before the details, which may be a trainer's own."""
    for sign in ".,;:(":
        doc = doc.split(sign)[0]
    return doc


def default_of(flags: type, name: str) -> str:
    """That of the class, which the value of a trainer without flags is."""
    [default] = {f.default for g in groups_of(flags) for f in fields(g) if f.name == name}  # type: ignore
    assert default == flag_values(flags())[name]
    return repr(default)


@pytest.mark.parametrize("name", sorted(NAMES - {"device"}))  # whose choices are the framework's
def test_flags_of_one_name_mean_the_same(name):
    having = [flags for flags in FLAGS.values() if name in names_of(flags)]
    assert (len({default_of(flags, name) for flags in having}) > 1) == (name in OWN_DEFAULTS)
    if name in OF_MODELS:
        return
    docs = {docs_of(flags)[name] for flags in having}
    assert len({head(doc) for doc in docs}) == 1, docs
    assert len(docs) == 1 or name in ("best_metric", "dropout", "optimizer", "precision"), docs
    due, *others = [
        hints_of(flags)[name] for flags in [RunFlags, *having] if name in hints_of(flags)
    ]
    for kind in others:
        if name in COMMON and get_origin(kind) is Literal:
            assert set(get_args(kind)) >= set(get_args(due)), "choices may be added"
        else:
            assert kind == due


@every
def test_sizes_and_families_stand_in_one_table(flags):
    hints = hints_of(flags)
    families = get_args(get_args(hints["family"])[0])
    assert set(get_args(hints["model"])) <= set(SIZES) and set(families) <= set(FAMILIES)
    assert ("modernbert" in families) == (flags.entry == "flax_mlm")


REFUSED = [
    ({"patience": 2, "best_metric": "none"}, "--patience=2 needs a metric: give --best_metric"),
    ({"patience": 0, "best_metric": "loss"}, "--patience=0: must be at least 1"),
    ({"steps": 0}, "--steps=0: must be at least 1"),
    ({"stop_after": 0}, "--stop_after=0: must be at least 1"),
    ({"batch_size": -4}, "--batch_size=-4: must be at least 1"),
    ({"gradient_accumulation_steps": 0}, "--gradient_accumulation_steps=0: must be at least 1"),
    ({"evaluate_every": 0}, "--evaluate_every=0: must be at least 1"),
    ({"checkpoint_every": 0}, "--checkpoint_every=0: must be at least 1"),
    ({"keep_checkpoints": 0}, "--keep_checkpoints=0: must be at least 1"),
    ({"layers": 0}, "--layers=0: must be at least 1"),
    ({"max_positions": 0}, "--max_positions=0: must be at least 1"),
    ({"epochs": 0.0}, "--epochs=0.0: must be above 0 and at most 1e30"),
    ({"tokens": 0.0}, "--tokens=0.0: must be above 0 and at most 1e30"),
    ({"tokens": float("nan")}, "--tokens=nan: must be above 0 and at most 1e30"),
    ({"tokens": 1e9, "steps": 3}, "--steps=3 --tokens=1e+09: give one of them"),
    ({"evaluation_rows": 0}, "--evaluation_rows=0: must be at least 1"),
    ({"epochs": float("inf")}, "--epochs=inf: must be above 0 and at most 1e30"),
    ({"learning_rate": float("nan")}, "--learning_rate=nan: must be above 0 and at most 1e30"),
    ({"learning_rate": 1e38}, "--learning_rate=1e+38: must be above 0 and at most 1e30"),
    ({"epsilon": -1.0}, "--epsilon=-1.0: must be above 0 and at most 1e30"),
    ({"weight_decay": float("nan")}, "--weight_decay=nan: must be at least 0"),
    ({"weight_decay": 1e300}, "--weight_decay=1e+300: must be at most 1e30"),
    ({"clip_norm": -1.0}, "--clip_norm=-1.0: must be at least 0"),
    ({"warmup_steps": -1}, "--warmup_steps=-1: must be at least 0"),
    ({"warmup_steps": 1 << 31}, "--warmup_steps=2147483648: must be below 2**31"),
    ({"seed": -1}, "--seed=-1: must be at least 0"),
    ({"seed": 1 << 31}, "--seed=2147483648: must be below 2**31"),
    ({"beta1": 1.0}, "--beta1=1.0: must be at least 0 and below 1"),
    ({"beta2": float("nan")}, "--beta2=nan: must be at least 0 and below 1"),
    ({"dropout": 1.0}, "--dropout=1.0: must be at least 0 and below 1"),
    ({"cache_gigabytes": 0.0}, "--cache_gigabytes=0.0: must be above 0"),
    (
        {"batch_size": 6, "gradient_accumulation_steps": 4},
        "--batch_size=6 is not a multiple of --gradient_accumulation_steps=4: microbatches have "
        "equal sizes",
    ),
    ({"output": ""}, "--output is empty: give a directory, or leave the flag out"),
    ({"export": ""}, "--export is empty: give a directory, or leave the flag out"),
    ({"export": "/"}, "--export=/ exists already: give another directory or remove it"),
    (
        {"output": "gs://bucket/run"},
        "--output=gs://bucket/run: give a directory on this machine; only --shards may be a URL",
    ),
    (
        {"log_to": "mlflow"},
        "--log_to=mlflow: 'mlflow' is unknown; give tensorboard or wandb, or both separated by a "
        "comma (metrics.jsonl is always written)",
    ),
]


@pytest.mark.parametrize(("values", "said"), REFUSED, ids=lambda value: str(value)[:40])
def test_all_refuse_with_the_same_words(values, said):
    for flags in FLAGS.values():
        with pytest.raises(UsageError, match=f"^{re.escape(said)}$"):
            make_flags(flags, **{"shards": "set", **values})


UNKNOWN = [
    ("--learning_rte=3", "did you mean --learning_rate?"),
    ("--no_such_flag", "--help=all lists the flags"),
    (
        "--max-length=256",
        "rows are as long as the dataset's; build another with build_shards --max-length=256",
    ),
    (
        "--checkpoint=750",
        "to use one, give it to evaluate, generate or another use of the run, as --checkpoint=750",
    ),
    ("--vocab_size=3", "it is that of the dataset's tokenizer; leave the flag out"),
]


@every
@pytest.mark.parametrize(("argument", "hint"), UNKNOWN)
def test_an_unknown_flag_is_refused_in_one_line(flags, argument, hint):
    with pytest.raises(UsageError, match=f"^{re.escape(f'unknown flag {argument}: {hint}')}$"):
        parse_flags(["--shards=set", argument], flags)


@every
def test_spellings_of_transformers_are_accepted(flags, tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("steps: 3\n")
    argv = [f"--config={path}", "--max_steps=5", "--gradient-accumulation-steps=4"]
    argv += ["--eval_steps=7", "--adam_beta1", "0.5"]
    values = flag_values(parse_flags(argv, flags))
    found = [
        values[name] for name in ("steps", "gradient_accumulation_steps", "evaluate_every", "beta1")
    ]
    assert found == [5, 4, 7, 0.5]


ENTRIES = pytest.mark.parametrize("name", TRAINERS)


def main_refuses(name: str, *argv: str) -> str:
    """The message of a trainer's refusal, which is an error of ours and not a library's."""
    with pytest.raises(TextmillError) as refused:
        import_module(f"trainers.{name}").main(list(argv))
    return str(refused.value)


def test_a_run_is_resumed_by_its_command_or_its_function():
    kind = import_module("textmill.trainers.flax_clm").TRAINER.flags
    message = command_to_resume(make_flags(kind, shards="a b", steps=3), steps=5, export=None)
    assert as_flags(message) == "python -m trainers.flax_clm '--shards=a b' --steps=5 --resume"
    call = "textmill.train('flax_clm', shards='a b', steps=5, resume=True)"
    assert as_keywords(message) == call


@ENTRIES
def test_what_is_not_there_is_named(name, tmp_path):
    none = str(tmp_path / "none")
    assert main_refuses(name) == "give the dataset with --shards=DIR"
    assert main_refuses(name, f"--shards={none}").startswith(f"{none} does not exist: ")
    (tmp_path / "none").mkdir()
    assert main_refuses(name, f"--shards={none}").startswith(f"{none} is not a finished dataset")
    (tmp_path / "none").rmdir()
    assert not list(tmp_path.iterdir())


@ENTRIES
def test_a_set_of_another_task_is_refused(name, tmp_path):
    task = FLAGS[name]().task.rows
    write = write_class_set if task != "classification" else write_mlm_set
    write(tmp_path / "set")
    other = "classification" if task != "classification" else "mlm"
    said = main_refuses(name, f"--shards={tmp_path}/set", f"--output={tmp_path}/run")
    assert said == (
        f"{tmp_path}/set holds rows of --task={other}, and this trainer needs {task}: build a "
        f"dataset with build_shards --task={task}, or use another trainer"
    )
    assert not (tmp_path / "run").exists()


class _Rows(SimpleNamespace):
    def rows(self, split):
        return self.count

    def mean_tokens_per_row(self, split):
        return 100.0

    rows_of_tokens: Any = BatchReader.rows_of_tokens


@pytest.mark.parametrize(
    ("rows", "batch_size", "length", "steps"),
    [
        (3200, 32, {"epochs": 1.1}, 110),  # 3520.0000000000005 / 32
        (3200, 32, {"epochs": 2.2}, 220),
        (3201, 32, {"epochs": 1.1}, 111),
        (10, 4, {}, 3),
        (10, 4, {"epochs": 0.001}, 1),
        (10, 4, {"tokens": 1600.0}, 4),
        (10, 4, {"tokens": 1601.0}, 5),
        (10, 4, {"steps": 7}, 7),
    ],
)
def test_steps_of_a_length(rows, batch_size, length, steps):
    flags: Any = make_flags(RunFlags, shards="set", batch_size=batch_size, **length)
    assert flags.plan_steps(_Rows(count=rows)) == steps


def test_steps_of_epochs_are_exact():
    """Of all decimals from 0.1 to 9.9: as whole numbers give them."""
    for tenths in range(1, 100):
        flags: Any = make_flags(RunFlags, shards="set", batch_size=32, epochs=tenths / 10)
        for rows in (320, 3200, 12_345):
            assert flags.plan_steps(_Rows(count=rows)) == -(-rows * tenths // 320)


def test_too_many_steps_are_refused():
    flags: Any = make_flags(RunFlags, shards="set", batch_size=1, epochs=1e30)
    with pytest.raises(UsageError, match=r"the run has 1e\+31 steps: must be below 2\*\*31"):
        flags.plan_steps(_Rows(count=10))
