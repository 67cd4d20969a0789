"""What processes of a run must share: every flag, dataset, packages and weights."""

import copy
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tools.clm_factory import write_clm_set
from textmill.schemas.errors import DataError, as_flags
from textmill.schemas.version import VERSION
from textmill.trainers.data.shard_set import ShardSet
from textmill.trainers.flags.command_line import flag_values, make_flags
from textmill.trainers.flax_clm import TRAINER, FlaxClmFlags
from textmill.trainers.flax_mlm import FlaxMlmFlags
from textmill.trainers.models.plan_model import plan_model
from textmill.trainers.poptorch_classifier import PoptorchClassifierFlags
from textmill.trainers.run.agreement import LOCAL, check_agreement, differences, digest_of, identity
from textmill.trainers.run.plan import TrainingPlan
from textmill.trainers.run.processes import ALONE, Processes

KINDS = (FlaxClmFlags, FlaxMlmFlags, PoptorchClassifierFlags)
FLAGS = [(kind, name) for kind in KINDS for name in flag_values(make_flags(kind))]


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    directory = tmp_path_factory.mktemp("agreement") / "set"
    write_clm_set(directory)
    return ShardSet(directory)


def with_other(flags: Any, name: str) -> Any:
    """The flags with a different value of one, whatever its type."""
    changed = copy.deepcopy(flags)
    for field in fields(changed):
        group = getattr(changed, field.name)
        if is_dataclass(group) and name in {inner.name for inner in fields(group)}:
            object.__setattr__(group, name, ("other than", getattr(group, name)))
    return changed


def plan_of(flags: Any, shards: ShardSet) -> TrainingPlan:
    sizes = make_flags(FlaxClmFlags, shards="set", layers=1, hidden_size=8, heads=1)
    return TrainingPlan(
        flags, shards.schema, plan_model(sizes, shards.schema).config, 10, Path("run")
    )


@pytest.mark.parametrize(("kind", "name"), FLAGS, ids=lambda value: getattr(value, "entry", value))
def test_every_flag_is_compared_unless_it_is_local(kind, name, shards):
    flags = make_flags(kind, shards="set")
    one, other = (
        identity(plan_of(f, shards), shards, ()) for f in (flags, with_other(flags, name))
    )
    found = differences([one, other])
    value = flag_values(flags)[name]
    due = f"--{name} is {value} in process 0, ('other than', {value!r}) in process 1"
    assert [*map(as_flags, found)] == ([] if name in LOCAL else [due])


def test_local_flags_exist():
    assert {name for _, name in FLAGS} | {"export_saved_model"} > set(LOCAL)


def test_what_a_process_is_besides_its_flags(shards, tmp_path):
    write_clm_set(tmp_path / "set", vocab_size=60)
    flags = make_flags(FlaxClmFlags, shards="set")
    plan = plan_of(flags, shards)
    values = identity(plan, shards, (*TRAINER.packages, "none-of-this-name"))
    assert {"jax", "jaxlib", "flax", "optax", "numpy"} < set(values)
    assert values["textmill"] == VERSION and values["none-of-this-name"] == "without a version"
    assert values["hidden_size of the model"] == "8" and values["steps of the run"] == "10"
    other = identity(plan, ShardSet(tmp_path / "set"), TRAINER.packages)
    named = [line.partition(" is ")[0] for line in differences([values, other])]
    assert named == [
        "fingerprint of the dataset",
        "tokenizer of the dataset",
        "none-of-this-name",
    ]


def test_differences_name_who_has_what():
    values: list[dict[str, str]] = [{"a": "1", "b": "x"}, {"a": "2", "b": "x"}, {"a": "1"}]
    assert differences(values) == [
        "a is 1 in processes 0, 2, 2 in process 1",
        "b is x in processes 0, 1, none in process 2",
    ]
    many = [{"a": str(index > 0)} for index in range(12)]
    due = "a is False in process 0, True in processes 1, 2, 3, 4, 5, 6, 7, 8, 9 and others"
    assert differences(many) == [due]
    assert differences(values[:1]) == differences([{}, {}]) == []


def test_weights_have_a_digest_of_names_shapes_and_bits():
    first = {"a": np.zeros((2, 3), np.float32), "b": np.ones(2, np.float32)}
    same = {"b": np.ones(2, np.float32), "a": np.zeros((3, 2), np.float32).T}
    assert digest_of(first) == digest_of(same)
    others = [
        {**first, "a": np.zeros((3, 2), np.float32)},
        {**first, "b": np.array([1, np.nextafter(np.float32(1), np.float32(2))])},
        {"a": first["a"], "c": first["b"]},
        {**first, "b": np.ones(2, np.float16)},
    ]
    assert len({digest_of(weights) for weights in [first, *others]}) == 5


class _Others(Processes):
    """This process and one with other values."""

    count = 2

    def __init__(self, values: dict[str, str]):
        self.values, self.has_left = values, False

    def gather(self, value: Any) -> list[Any]:
        return [value, self.values]

    def leave(self) -> None:
        self.has_left = True


def test_processes_that_differ_leave_each_other_and_say_what():
    check_agreement(ALONE, {"a": "1"})
    same, others = _Others({"a": "1"}), _Others({f"--{n}": "2" for n in range(11)})
    check_agreement(same, {"a": "1"})
    with pytest.raises(DataError, match="^the 2 processes of the run differ: --0 is 1 in") as error:
        check_agreement(others, {f"--{n}": "1" for n in range(11)})
    assert error.value.exit_code == 1 and "; and 3 more. Start all of them" in str(error.value)
    assert others.has_left and not same.has_left
