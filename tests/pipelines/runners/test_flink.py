"""Both commands on a Flink cluster of two hosts: the bytes of a local run, also where one dies."""

import contextlib
import os

import pytest

from tests.stress.flink_faults import COMMANDS, SETS, Work, run_cell
from tests.tools.flink_cluster import CannotRun, flink_cluster, why_not

# One cluster for all: `make flink-test` has them in one process.
pytestmark = [pytest.mark.flink, pytest.mark.slow]


def cannot(reason):
    """Not in continuous integration, where it must run."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    reason = why_not()
    if reason:
        cannot(reason)
    work = Work(tmp_path_factory.mktemp("flink") / "work")
    work.prepare()
    return work


@pytest.fixture(scope="module")
def cluster(work):
    with contextlib.ExitStack() as stack:
        try:
            cluster = stack.enter_context(flink_cluster(python_path=str(work.folder)))
        except CannotRun as error:
            cannot(str(error))
        yield cluster


def hosts_of(cluster, job):
    """Addresses of the hosts that worked for a job."""
    vertices = [vertex["id"] for vertex in cluster.rest(f"jobs/{job}")["vertices"]]
    answers = [cluster.rest(f"jobs/{job}/vertices/{v}/taskmanagers") for v in vertices]
    return {host["host"].partition(":")[0] for found in answers for host in found["taskmanagers"]}


@pytest.mark.parametrize("name", [*COMMANDS, *SETS])
def test_two_hosts_make_the_bytes_of_a_local_run(cluster, work, name, tmp_path):
    before = {job["id"] for job in cluster.rest("jobs")["jobs"]}
    work.run(name, tmp_path / "made", cluster.flags())
    assert work.differences(name, tmp_path / "made") == []
    (job,) = {job["id"] for job in cluster.rest("jobs")["jobs"]} - before
    assert len(hosts_of(cluster, job)) == 2


def test_a_host_killed_while_shards_are_written_changes_nothing(cluster, work):
    cell = run_cell(cluster, work, "TaskManager", "write", "build_shards")
    assert (cell.right, cell.outcome) == (True, "completed"), cell
    assert cell.restarts


def test_flags_of_the_cluster_and_a_job_server_that_is_not_there(cluster, work, tmp_path):
    output, log = tmp_path / "none", tmp_path / "log"
    flags = [*cluster.flags(), "--max_bundle_size=10", "--execution_mode_for_batch=NONSENSE"]
    assert work.start("build_shards", output, flags, log).wait(120) == 1
    assert "NONSENSE" in log.read_text() and "Traceback" not in log.read_text()
    assert work.start("build_shards", output, [*flags, "--bundles=10"], log).wait(120) == 2
    assert "unknown flag --bundles=10" in log.read_text()
    nowhere = ["--runner=PortableRunner", "--job_endpoint=127.0.0.1:1"]
    assert work.start("build_shards", output, nowhere, log).wait(120) == 2
    assert "error: --job_endpoint=127.0.0.1:1: no job server answers within" in log.read_text()
    assert os.listdir(output) == [".lock"]
