"""Beam's PrismRunner, for jobs of any length; in a file of its own, as Beam finds it by name."""

from apache_beam.runners.portability import prism_runner
from apache_beam.runners.portability.portable_runner import JobServiceHandle


class PrismRunner(prism_runner.PrismRunner):
    """Waits for a job until it ends.

    Beam takes `--job_server_timeout`, the limit of a request, for that of the whole job, and gives
    up after 300 seconds (apache/beam#35867).
    """

    def create_job_service_handle(self, job_service, options) -> JobServiceHandle:
        """As Beam's, without a limit of time."""
        handle = super().create_job_service_handle(job_service, options)
        handle.timeout = None
        return handle
