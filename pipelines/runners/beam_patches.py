"""Code of Beam's that Textmill replaces: it loses data or jobs, prints tracebacks, or idles."""

import copy
import functools
import shutil
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import apache_beam as beam
from apache_beam.metrics import monitoring_infos
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.direct import direct_runner
from apache_beam.runners.portability import portable_runner
from apache_beam.runners.portability.fn_api_runner import execution, fn_runner, worker_handlers
from apache_beam.runners.worker import sdk_worker
from apache_beam.transforms import core
from apache_beam.utils import interactive_utils, thread_pool_executor

from textmill.pipelines.runners.beam_sampler import sample_often

_PARTS = 32  # of a worker's share of the elements: the smallest bundle


class _PatientHandle(portable_runner.JobServiceHandle):
    """Waits for a job without a time limit.

    On Prism, Beam applies `--job_server_timeout`, the limit of a request, to the whole job, and
    gives up after 300 seconds (apache/beam#35867).
    """

    def __init__(self, *arguments: Any, **more: Any):
        super().__init__(*arguments, **more)
        self.timeout = None


class RunOptions(PipelineOptions):
    """The options of a run, whose views are made once.

    Beam makes a parser of flags for each view, and 200 views for a pipeline: a twentieth of the
    processor time of a small run.
    """

    def view_as(self, cls: Any) -> Any:
        """A view; all views share their values, however many there are."""
        views = vars(self).setdefault("_views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]


class _Parts:
    """The elements of a stage, handed out in bundles that become smaller.

    Beam gives each worker one bundle, so that all wait for the one with the slowest elements.
    """

    def __init__(self, inputs: Any, workers: int):
        """Cuts `inputs`, name -> buffer; grouped ones are cut finely."""
        parts: list[dict[str, list[bytes]]] = [{} for _ in range(workers * _PARTS)]
        for name, buffer in inputs.items():
            is_grouped = isinstance(buffer, execution.GroupingBuffer)
            cut = buffer.partition(len(parts) if is_grouped else workers)
            for part, streams in zip(parts, cut, strict=False):
                part[name] = streams
        filled = [part for part in parts if any(map(any, part.values()))]
        self._left = filled or parts[:1]
        self._workers = workers
        self._lock = threading.Lock()

    def take(self) -> Any:  # dict[str, list[bytes]] | None, which Beam takes for buffers
        """The input of the next bundle; None if no element is left."""
        with self._lock:
            number = -(-len(self._left) // (2 * self._workers))
            taken, self._left = self._left[:number], self._left[number:]
        names = {name for part in taken for name in part}
        return {n: [s for part in taken for s in part.get(n, ())] for n in names} if taken else None

    def clear(self) -> None:
        """Hands out no more: none is left, or a bundle has failed."""
        with self._lock:
            self._left = []


class _EvenBundles(fn_runner.ParallelBundleManager):
    """Runs a stage on several workers, each of which takes a bundle when it is free."""

    def process_bundle(
        self,
        inputs: Any,
        expected_outputs: Any,
        fired_timers: Any,
        expected_output_timers: Any,
        dry_run: bool = False,
    ) -> Any:
        """Runs the stage; the stages that come here have no timers."""
        handlers = self.bundle_context_manager.worker_handlers
        parts = _Parts(inputs, len(handlers))

        def work(handler: worker_handlers.WorkerHandler) -> list[Any]:
            context = copy.copy(self.bundle_context_manager)
            context._worker_handlers = [handler]
            results = []
            try:
                while (part := parts.take()) is not None:
                    bundle = fn_runner.BundleManager(
                        context, cache_token_generator=self._cache_token_generator
                    )
                    results.append(
                        bundle.process_bundle(
                            part, expected_outputs, {}, expected_output_timers, dry_run
                        )[0]
                    )
            finally:
                parts.clear()
            return results

        with thread_pool_executor.shared_unbounded_instance() as executor:
            results = [one for own in executor.map(work, handlers) for one in own]
        infos = (info for one in results for info in one.process_bundle.monitoring_infos)
        merged = beam_fn_api_pb2.ProcessBundleResponse(
            monitoring_infos=monitoring_infos.consolidate(infos)
        )
        return beam_fn_api_pb2.InstructionResponse(process_bundle=merged), []


def _inspect_once(inspect: Callable[[Any], tuple[list[str], list[Any]]]) -> Callable[[Any], Any]:
    """Beam's function that lists arguments and defaults, which inspects a method once for a class.

    Beam inspects each method of each DoFn some ten times, and most methods are those of its own
    base class: a fiftieth of the processor time of a small run.
    """
    of_bound = functools.cache(lambda function: inspect(types.MethodType(function, object())))

    @functools.wraps(inspect)
    def inspect_known(function: Any) -> tuple[list[str], list[Any]]:
        own = getattr(function, "__func__", None)
        if not (isinstance(function, types.MethodType) and isinstance(own, types.FunctionType)):
            return inspect(function)
        names, defaults = of_bound(own)
        return [*names], [*defaults]

    return inspect_known


def patch_beam() -> None:
    """Patches Beam; tests report Beam's fixes.

    The flush interval of the local runner is set to 0, which means when a buffer is full or closed.
    """
    sample_often()
    portable_runner.JobServiceHandle = _PatientHandle
    fn_runner.ParallelBundleManager = _EvenBundles
    if not hasattr(core.get_function_args_defaults, "__wrapped__"):
        core.get_function_args_defaults = _inspect_once(core.get_function_args_defaults)
    # Workers in threads of this process print the failure of a bundle, and report it, too. After a
    # run that ended early, because the runner was lost for example, that would be a traceback.
    setattr(sdk_worker, "print", lambda *_, **__: None)  # noqa: B010
    # The local runner flushes its buffers once a second from another thread, and loses data that is
    # written meanwhile: docs/beam_local_runner.md.
    worker_handlers.DATA_BUFFER_TIME_LIMIT_MS = 0


@contextmanager
def as_in_a_script() -> Iterator[None]:
    """Hides a notebook, in which Beam would import its interactive runner, and with it pandas.

    Outside a notebook, it keeps Beam from importing IPython to look for one.
    """
    found = interactive_utils.is_in_ipython
    # `beam.pipeline` is a module that pyright does not see.
    places = (interactive_utils, sys.modules[beam.Pipeline.__module__], direct_runner)
    for place in places:
        setattr(place, "is_in_ipython", lambda: False)  # noqa: B010
    try:
        yield
    finally:
        for place in places:
            setattr(place, "is_in_ipython", found)  # noqa: B010


def make_pipeline(**arguments: Any) -> beam.Pipeline:
    """A pipeline, without the temporary folder that Beam makes for it.

    Only transforms of other languages use the folder, and an interrupted run would leave it.
    """
    pipeline = beam.Pipeline(**arguments)
    shutil.rmtree(pipeline.local_tempdir, ignore_errors=True)
    return pipeline
