"""Runs a pipeline with a progress display and readable failures.

This module imports Beam; commands import it through `launch.with_beam`.
"""

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PortableOptions
from apache_beam.transforms.environments import Environment

from textmill.pipelines.runners.beam_patches import (
    RunOptions,
    as_in_a_script,
    make_pipeline,
    patch_beam,
)
from textmill.pipelines.runners.console import Console, Display
from textmill.pipelines.runners.failures import explain_failure
from textmill.pipelines.runners.forked_workers import forked_workers
from textmill.pipelines.runners.job_server import reach_job_server
from textmill.pipelines.runners.local_worker import LocalWorker  # noqa: F401
from textmill.pipelines.runners.runner_flags import LAUNCHER, runner_flags
from textmill.pipelines.runners.worker_log import stderr_in
from textmill.pipelines.runners.worker_package import package_code
from textmill.pipelines.runners.worker_watch import cancel, overhear, watch
from textmill.schemas.commands.entry import require_address_space
from textmill.schemas.errors import DataError, UsageError, one_line


def run_pipeline(
    build: Callable[[beam.Pipeline], Any],
    beam_arguments: list[str],
    *,
    local: str,
    total_bytes: int,
    label: str,
    filter_name: str = "",
    count_finished: Callable[[], int] | None = None,
    is_published: Callable[[], bool] = lambda: False,
) -> None:
    """Runs a pipeline to its end, with a progress display.

    Args:
      build: adds the transforms to a pipeline.
      beam_arguments: Beam's flags with a runner, from `choose_runner`.
      local: the local directory with the journal of progress.
      total_bytes: stored bytes of the inputs.
      label: the name of the command.
      filter_name: the value of --filter, whose code is sent to workers.
      count_finished: counts finished shards, for workers whose journal is not visible here.
      is_published: whether the last step has run; called when a worker process has died.

    Raises:
      DataError: a worker rejected the data, or the run failed.
      KeyboardInterrupt: the user pressed Ctrl-C, or SIGTERM came; workers may still be busy.
    """
    flags = runner_flags(beam_arguments)
    if flags.in_parallel:
        require_address_space(3.2, "a run in threads or processes")
    if flags.job_server:
        reach_job_server(flags.job_server)
    os.environ[LAUNCHER] = str(os.getpid())  # for worker processes on this machine
    outcome: list[BaseException | None] = []
    jobs: list[Any] = []
    died = threading.Event()

    def run() -> None:
        # Worker processes inherit this, so that only this process reacts to Ctrl-C.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with (
                overhear(died),
                package_code(beam_arguments, filter_name) as arguments,
            ):
                try:
                    options = RunOptions([*arguments, "--no_save_main_session"])
                    pipeline = make_pipeline(options=options)
                    if flags.environment_type:
                        Environment.from_options(options.view_as(PortableOptions))
                except ValueError as error:
                    raise UsageError(f"the runner cannot be used: {one_line(error)}") from error
                with as_in_a_script():
                    build(pipeline)
                    jobs.append(pipeline.run())
                if name := _job_name(jobs[0]):
                    display.say(f"{label}: the runner's name of this job is {name}")
                state = jobs[0].wait_until_finish()
            if state not in (None, "DONE"):
                raise DataError(f"the runner ended the job in state {state}: see the runner's log")
            outcome.append(None)
        except BaseException as error:  # handed to the main thread
            outcome.append(error)

    worker = threading.Thread(target=run, name="beam", daemon=True)
    forked = flags.number if flags.in_processes and flags.is_local and not flags.is_prism else 0
    with forked_workers(forked), stderr_in(os.path.join(local, "workers.log")) as terminal:
        patch_beam()
        console = Console(file=terminal)
        has_workers = flags.in_processes or not flags.is_local
        display = Display(local, total_bytes, label, console, count_finished, has_workers)
        try:
            watch(worker, display, died, is_published)
        except KeyboardInterrupt:
            cancel(jobs)
            raise
    if outcome[0] is not None:
        raise explain_failure(outcome[0], flags.job_server) from outcome[0]


def _job_name(job: Any) -> str:
    """The name of a job on the pages of its runner; "" if it has none."""
    name = getattr(job, "job_id", getattr(job, "_job_id", ""))
    try:
        return str(name() if callable(name) else name)
    except AttributeError:  # Dataflow raises it for a template, which starts no job
        return ""
