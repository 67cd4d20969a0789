"""A job server: the program that takes our jobs to a Flink or Spark cluster (`--job_endpoint`).

Beam waits five minutes for one that is not there, and says the end of one in the words of gRPC.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import grpc
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

from pipelines.runners.beam_flags import runner_flags
from schemas.commands.terminal import in_time
from schemas.errors import DataError, UsageError

_ANSWER_SECONDS = 10
_CANCEL_SECONDS = 5


def ask_flags(beam_arguments: list[str]) -> list[str]:
    """Flags that a cluster's runner takes beside Beam's, such as `--max_bundle_size`.

    Raises:
      UsageError: nobody answers at `--job_endpoint`.
    """
    endpoint = runner_flags(beam_arguments).job_endpoint
    if not endpoint:
        return []
    with grpc.insecure_channel(endpoint) as channel:
        _wait_for(channel, endpoint)
        stub = beam_job_api_pb2_grpc.JobServiceStub(channel)
        try:
            request = beam_job_api_pb2.DescribePipelineOptionsRequest()
            answer = stub.DescribePipelineOptions(request, timeout=_ANSWER_SECONDS)
        except grpc.RpcError as error:
            raise _no_job_server(endpoint) from error
    return [f"--{option.name}" for option in answer.options]


@contextmanager
def reach_job_server(beam_arguments: list[str]) -> Iterator[list[str]]:
    """Passes Beam's arguments on; does nothing more where no job server is named.

    Raises:
      UsageError: nobody answers at `--job_endpoint`.
      DataError: whoever answered there is gone.
    """
    endpoint = runner_flags(beam_arguments).job_endpoint
    if not endpoint:
        yield beam_arguments
        return
    with grpc.insecure_channel(endpoint) as channel:
        _wait_for(channel, endpoint)
    try:
        yield beam_arguments
    except (grpc.RpcError, grpc.FutureTimeoutError) as error:
        raise DataError(
            f"the job server at {endpoint} ended while the job ran, or the network to "
            "it was cut: nothing was published. The cluster may go on with the job for a while; of "
            "that nothing is published either: start the job server, run the same command again"
        ) from error


def cancel(job: Any) -> None:
    """Tells a runner that nobody waits for a job; gives up soon where it does not answer."""
    with suppress(Exception):  # whatever it is, there is nobody who could act on it
        in_time(_CANCEL_SECONDS, job.cancel)


def _wait_for(channel: Any, endpoint: str) -> None:
    try:
        grpc.channel_ready_future(channel).result(timeout=_ANSWER_SECONDS)
    except grpc.FutureTimeoutError as error:
        raise _no_job_server(endpoint) from error


def _no_job_server(endpoint: str) -> UsageError:
    return UsageError(
        f"--job_endpoint={endpoint}: no job server answers there within {_ANSWER_SECONDS} s; start "
        "it, or give the address that it listens on (8099 is its usual port)"
    )
