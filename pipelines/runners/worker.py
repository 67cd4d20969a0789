"""A worker process of a run on this machine: Beam's, without packages that no such run uses.

It ends at once. Taking an interpreter apart takes 0.7 s of CPU, and Beam ends workers one by one.
"""

import sys

from pipelines.host.imports import NOT_LOCAL, leave_out, leave_out_pandas
from schemas.commands.entry import leave_at_once

if __name__ == "__main__":
    with leave_out(*NOT_LOCAL, "IPython"):
        from apache_beam.runners.worker import sdk_worker_main
    leave_out_pandas()
    sdk_worker_main.main(sys.argv)
    leave_at_once(0)
