"""Compares the processes of a run before the first step: if they differ, the model is wrong.

Each process starts with a command line, a dataset and packages of its own, and holds first weights.
Python 3.8 syntax.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Mapping, Sequence

import numpy as np

from textmill.schemas.errors import DataError, flag
from textmill.schemas.version import VERSION
from textmill.trainers.data.batches import BatchReader
from textmill.trainers.flags.command_line import flag_values
from textmill.trainers.models.set_tokenizer import TOKENIZER, set_file
from textmill.trainers.run.plan import TrainingPlan
from textmill.trainers.run.processes import Processes
from textmill.trainers.run.tensors import Arrays

# Flags that may differ. The content of paths is compared: fingerprint, tokenizer, first weights.
LOCAL = (
    *("process_id", "num_processes", "coordinator_address"),  # where the others are, seen from here
    *("shards", "init_from", "output", "cache_dir", "executable_cache"),  # paths of this host
    *("verify", "follow_links", "cache_gigabytes"),  # how files are opened
    "order",  # the order itself is compared
    *("export", "export_saved_model", "log_to", "profile"),  # what the first process writes
    "resume",  # the first process decides whether there is a checkpoint
)
_MOST = 8  # differences that a message names
_LONGEST = 60  # characters of a value


def identity(plan: TrainingPlan, shards: BatchReader, packages: Sequence[str]) -> dict[str, str]:
    """Flags, model, dataset and versions: names to values, which all processes must share."""
    flags = flag_values(plan.flags)
    values = {flag(name): str(value) for name, value in flags.items() if name not in LOCAL}
    values.update({f"{name} of the model": str(v) for name, v in asdict(plan.model).items()})
    values["steps of the run"] = str(plan.steps)
    values["fingerprint of the dataset"] = shards.fingerprint
    values["order of the rows"] = shards.row_order
    values["tokenizer of the dataset"] = hashlib.sha256(set_file(shards, TOKENIZER)).hexdigest()
    values["textmill"] = VERSION
    for name in packages:
        try:
            values[name] = version(name)
        except PackageNotFoundError:  # a build of one's own
            values[name] = "without a version"
    return values


def digest_of(weights: Arrays) -> str:
    """A digest of weights: names, shapes and bits."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(f"{name} {weights[name].dtype} {weights[name].shape}\n".encode())
        digest.update(np.ascontiguousarray(weights[name]).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def check_agreement(processes: Processes, values: Mapping[str, str]) -> None:
    """Compares the values of all processes, which all call this; returns at once for one process.

    Raises:
      DataError: they differ; in all processes, after they have left each other.
    """
    if processes.count == 1:
        return
    differing = differences(processes.gather(dict(values)))
    if differing:
        more = len(differing) - _MOST
        text = "; ".join(differing[:_MOST]) + (f"; and {more} more" if more > 0 else "")
        processes.leave()
        raise DataError(
            f"the {processes.count} processes of the run differ: {text}. Start all of them with "
            "the same flags, dataset, weights and packages"
        )


def differences(values: Sequence[Mapping[str, str]]) -> list[str]:
    """How the values of processes differ, by name, in the order of the first process.

    ["--seed is 0 in process 0, 1 in process 1"]; "none" stands for a name that a process lacks.
    """
    names: dict[str, Any] = {name: None for of_one in values for name in of_one}
    found = []
    for name in names:
        holders: defaultdict[str, list[int]] = defaultdict(list)
        for index, of_one in enumerate(values):
            holders[of_one.get(name, "none")].append(index)
        if len(holders) > 1:
            each = [f"{_short(value)} in {_processes(who)}" for value, who in holders.items()]
            found.append(f"{name} is {', '.join(each)}")
    return found


def _short(value: str) -> str:
    return value if len(value) <= _LONGEST else value[:_LONGEST] + "..."


def _processes(indices: list[int]) -> str:
    """[1] -> "process 1"; [0, 2, 3] -> "processes 0, 2, 3"; many are cut."""
    numbers = ", ".join(map(str, indices[:9])) + (" and others" if len(indices) > 9 else "")
    return f"process{'es' if len(indices) > 1 else ''} {numbers}"
