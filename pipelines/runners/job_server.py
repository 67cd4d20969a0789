"""Connects to a job server, which submits jobs to a cluster or runs them itself, like Prism."""

from contextlib import suppress

import grpc
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

from textmill.schemas.errors import UsageError, flag

_ANSWER_SECONDS = 10


def reach_job_server(address: str) -> list[str]:
    """Waits at most 10 s for a job server at HOST:PORT; Beam would wait for five minutes.

    Returns:
      Flags that its runner has in addition to Beam's, such as `--max_bundle_size`.

    Raises:
      UsageError: no job server answers.
    """
    with grpc.insecure_channel(address) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=_ANSWER_SECONDS)
        except grpc.FutureTimeoutError as error:
            raise UsageError(
                f"{flag('job_endpoint', address)}: no job server answers within "
                f"{_ANSWER_SECONDS} s; start it, or correct the address (the usual port is 8099)"
            ) from error
        request = beam_job_api_pb2.DescribePipelineOptionsRequest()
        stub = beam_job_api_pb2_grpc.JobServiceStub(channel)
        with suppress(grpc.RpcError):  # Prism has no list of flags
            answer = stub.DescribePipelineOptions(request, timeout=_ANSWER_SECONDS)
            return [f"--{option.name}" for option in answer.options]
    return []
