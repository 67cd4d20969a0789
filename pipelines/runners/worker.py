"""A worker process of a run on this machine: Beam's, without packages that no such run uses."""

import sys

from pipelines.host.imports import NOT_LOCAL, leave_out, leave_out_pandas

if __name__ == "__main__":
    with leave_out(*NOT_LOCAL, "IPython"):
        from apache_beam.runners.worker import sdk_worker_main
    leave_out_pandas()
    sdk_worker_main.main(sys.argv)
