"""Worker processes of Beam's local runner on this machine; importing this module registers them."""

import shlex
import sys
import threading
from typing import Any

from apache_beam.portability import python_urns
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from google.protobuf.json_format import MessageToJson

from textmill.pipelines.runners.forked_workers import take_worker
from textmill.pipelines.runners.worker_watch import WAITS_FOR_PROCESS

_WORKER = "textmill.pipelines.runners.worker"  # a user's own pipelines/ may hide the short name
_ITS_WORKER: Any = worker_handlers.SubprocessSdkWorkerHandler


@worker_handlers.WorkerHandler.register_environment(python_urns.SUBPROCESS_SDK, bytes)
class LocalWorker(_ITS_WORKER):
    """A worker process of DirectRunner, with the imports of `pipelines.runners.worker`."""

    def __init__(self, command: bytes, *others: Any):
        """Takes Beam's command of a worker, but starts another, as a child of this process."""
        command = f"exec {shlex.quote(sys.executable)} -m {_WORKER}".encode()
        super().__init__(command, *others)

    def start_worker(self) -> None:
        """Takes a forked process, if one waits, instead of a new interpreter."""
        forked = take_worker()
        if forked is None:
            super().start_worker()
            return
        environment = {  # without Beam's server of logs: the worker writes them to our stderr
            "CONTROL_API_SERVICE_DESCRIPTOR": str(self.control_api_service_descriptor()),
            "PIPELINE_OPTIONS": MessageToJson(self.provision_info.provision_info.pipeline_options),
            "WORKER_ID": self.worker_id,
        }
        self.worker_thread = threading.Thread(
            target=forked.work, args=(environment,), name=WAITS_FOR_PROCESS
        )
        self.worker_thread.start()
