"""Parts of Beam that Textmill replaces, since they lose data or jobs, or print tracebacks."""

import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apache_beam as beam
from apache_beam.portability import python_urns
from apache_beam.runners.direct import direct_runner
from apache_beam.runners.portability import portable_runner
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.worker import sdk_worker
from apache_beam.utils import interactive_utils


class _PatientHandle(portable_runner.JobServiceHandle):
    """Waits for a job without a time limit.

    On Prism, Beam applies `--job_server_timeout`, the limit of a request, to the whole job, and
    gives up after 300 seconds (apache/beam#35867).
    """

    def __init__(self, *arguments: Any, **more: Any):
        super().__init__(*arguments, **more)
        self.timeout = None


def patch_beam() -> None:
    """Patches parts of Beam that lose data or jobs, or print tracebacks; tests report Beam's fixes.

    The flush interval of the local runner is set to 0, which means when a buffer is full or closed.
    """
    portable_runner.JobServiceHandle = _PatientHandle
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


_WORKER = "textmill.pipelines.runners.worker"  # a user's own pipelines/ may hide the short name
_ITS_WORKER: Any = worker_handlers.SubprocessSdkWorkerHandler


@worker_handlers.WorkerHandler.register_environment(python_urns.SUBPROCESS_SDK, bytes)
class LocalWorker(_ITS_WORKER):
    """A worker process of DirectRunner, with the imports of `pipelines.runners.worker`."""

    def __init__(self, command: bytes, *others: Any):
        """Takes Beam's command of a worker, but starts another, as a child of this process."""
        command = f"exec {shlex.quote(sys.executable)} -m {_WORKER}".encode()
        super().__init__(command, *others)
