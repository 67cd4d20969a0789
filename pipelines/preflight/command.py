"""Runs the checks of a command, and prints each result."""

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from textmill.pipelines.preflight.check import Check, attempt
from textmill.pipelines.preflight.flags import check_flags, check_runner
from textmill.pipelines.preflight.job import check_job
from textmill.pipelines.preflight.reach import check_inputs, check_output
from textmill.pipelines.readers.sources import Block, Source
from textmill.pipelines.runners.result import Say
from textmill.pipelines.runners.runner_flags import runner_flags
from textmill.pipelines.user_filter import load_filter
from textmill.pipelines.writers.staging import STAGING, Staging
from textmill.schemas.errors import DataError, flag
from textmill.schemas.files.store import is_url

if TYPE_CHECKING:
    import apache_beam as beam


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command to check.

    Attributes:
      name: build_corpus, for one.
      beam_arguments: Beam's flags.
      sources: the inputs.
      output: the directory or URL.
      filter_name: the value of --filter; "" for none.
      plan: returns the blocks of the inputs.
      wire: loads what the settings name; returns the function that adds the job's transforms to a
        pipeline. Its argument is None if the inputs cannot be read from here.
    """

    name: str
    beam_arguments: list[str]
    sources: tuple[Source, ...]
    output: str
    filter_name: str
    plan: Callable[[], list[Block]]
    wire: "Callable[[list[Block] | None], Callable[[beam.Pipeline], Any]]"


def as_if_staged(output: str) -> Staging:
    """The staging directory that a run would have; nothing is written."""
    folder = os.path.join(output, STAGING)
    if is_url(output):
        return Staging(folder, os.path.join(tempfile.gettempdir(), STAGING), "preflight")
    return Staging(folder, folder)


def print_checks(command: Command, say: Say) -> None:
    """Prints each check when it is done; raises DataError if one failed."""
    say(f"preflight of {command.name}: nothing is written, no job is started")
    states = []
    for check in _checks(command):
        states.append(check.state)
        say(f"{check.state:12} {check.name:16} {check.detail}")
        if check.remedy:
            say(f"{'':29} -> {check.remedy}")
    failed, skipped = states.count("failed"), states.count("not checked")
    more = f"; {skipped} not checked" if skipped else ""
    if failed:
        raise DataError(f"{failed} of {len(states)} checks failed{more}")
    say(f"0 of {len(states)} checks failed{more}")


def _checks(command: Command) -> Iterator[Check]:
    """Flags, reach, settings, translation and unpickling, in this order."""
    flags = runner_flags(command.beam_arguments)
    runner = check_runner(command.beam_arguments)
    yield runner
    if flags.is_dataflow:
        yield check_flags(command.beam_arguments)
    blocks = yield from check_inputs(command.sources, command.plan, flags)
    yield from check_output(command.output, flags)

    def prepare() -> "Callable[[beam.Pipeline], Any]":
        if command.filter_name:
            load_filter(command.filter_name)
        return command.wire(blocks)

    prepared = yield from attempt("settings", prepare, f"correct the flag, or {flag('input')}")
    if prepared is not None:
        yield Check("settings", "ok", "what they name loads here, and fits together")
    if flags.is_local:
        return
    if runner.state != "ok":
        yield Check("job", "not checked", "the runner cannot be used")
    elif prepared is None:
        yield Check("job", "not checked", "the settings cannot be used")
    else:
        yield from check_job(command.beam_arguments, command.filter_name, *prepared)
