"""A worker process of a run on this machine: Beam's, without packages that no such run uses.

It ends at once. Taking an interpreter apart takes 0.7 s of CPU, and Beam ends workers one by one.
"""

import os
import sys

from textmill.pipelines.runners.forked_workers import end_with
from textmill.pipelines.runners.runner_flags import LAUNCHER
from textmill.pipelines.runtime.imports import (
    NOT_LOCAL,
    SELDOM_CALLED,
    block_imports,
    block_pandas,
    postpone_imports,
)
from textmill.pipelines.runtime.memory import keep_freed_memory
from textmill.schemas.commands.entry import leave_at_once

if __name__ == "__main__":
    end_with(int(os.environ[LAUNCHER]))
    with block_imports(*NOT_LOCAL, "IPython"), postpone_imports(SELDOM_CALLED):
        from apache_beam.runners.worker import sdk_worker_main

        from textmill.pipelines.runners.beam_sampler import sample_often
    keep_freed_memory()
    block_pandas()
    sample_often()
    sdk_worker_main.main(sys.argv)
    leave_at_once(0)
