"""A Flink cluster of two hosts on one machine, for tests: network namespaces on a bridge.

    root namespace                 bridge 10.A.B.1
      JobManager     :8081           |-- host 1: 10.A.B.11  TaskManager (1 slot), worker pool :50000
      job server                     |-- host 2: 10.A.B.12  TaskManager (1 slot), worker pool :50000

Every host finds its own pool at its own localhost, as on machines of their own; the disk is shared.
Names carry this process's id, the subnet is one that is free: clusters do not meet. All of it goes
away at the end, and what a process that was killed left behind goes when the next cluster is made.
It takes root, `ip`, Java 11 or newer and, the first time, Maven.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock

from tests.tools.places import ROOT

HOSTS = 2
_NAME = "tmill"  # with a process id and a host's number: at most 15 letters
_LOCK = os.path.join(tempfile.gettempdir(), "textmill-flink.lock")
# The newest of Beam's runners for Flink that Maven's usual mirrors carry whole.
_RUNNER, _RUNNER_VERSION = "beam-runners-flink-1.16", "2.56.0"
_LOGGING, _LOGGING_VERSION = "slf4j-simple", "1.7.36"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>textmill</groupId> <artifactId>flink</artifactId> <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.beam</groupId>
      <artifactId>{runner}</artifactId> <version>{runner_version}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>{logging}</artifactId> <version>{logging_version}</version>
    </dependency>
  </dependencies>
</project>
"""
_JAVA_FLAGS = (
    "-XX:+UseSerialGC",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    # Flink 1.16 reaches into these, which newer versions of Java keep closed.
    *(
        f"--add-exports=java.{module}=ALL-UNNAMED"
        for module in ("base/sun.net.util", "management/sun.management")
    ),
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in (
            *("java.lang", "java.lang.reflect", "java.util", "java.util.concurrent"),
            *("java.nio", "java.net", "sun.nio.ch"),
        )
    ),
)
# A batch job starts over when a host is lost: often enough for one that comes back, and not for
# ever, as when a worker refuses the data.
SETTINGS = {
    "restart-strategy": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "4",
    "restart-strategy.fixed-delay.delay": "5 s",
    "heartbeat.interval": "2000",
    "heartbeat.timeout": "10000",
    "slot.request.timeout": "60000",
    "taskmanager.numberOfTaskSlots": "1",
    "parallelism.default": str(HOSTS),
    # Hosts have all jars; without it each job would load the classes again.
    "classloader.resolve-order": "parent-first",
}
_SENT = re.compile(r"flink-(java|clients|optimizer|streaming-java)-|beam-runners-flink")
_STARTING_SECONDS = 90.0


class CannotRun(Exception):
    """Why there is no cluster, in one sentence."""


class _Ended(Exception):
    """A process is gone that should run."""


def why_not() -> str:
    """Why this machine has no place for a cluster, in one sentence; empty if it has one."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "making network namespaces takes root"
    for program, wanted in (("ip", "iproute2"), ("setpriv", "util-linux"), ("java", "Java 11")):
        if shutil.which(program) is None:
            return f"there is no `{program}` ({wanted})"
    if shutil.which("mvn") is None and not _class_path_file().exists():
        return "there is no `mvn` (Maven) to fetch Flink with"
    trial = f"{_NAME}{os.getpid()}t"
    made = _ip("netns", "add", trial)
    if made.returncode:
        return f"network namespaces are refused: {made.stderr.strip()}"
    _ip("netns", "delete", trial)
    return ""


# Flink from Maven -----------------------------------------------------------------------------


def cache_folder() -> Path:
    """Where the list of Flink's jars is kept, for all runs of this user."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base, "textmill", "flink")


def _class_path_file() -> Path:
    return cache_folder() / f"{_RUNNER}-{_RUNNER_VERSION}.txt"


def class_path() -> str:
    """Java's class path of the Flink runner and of Flink; fetched once (140 jars, a minute or two).

    Raises:
      CannotRun: Maven could not fetch them.
    """
    folder, listed = cache_folder(), _class_path_file()
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        if listed.exists():
            jars = listed.read_text()
            if all(map(os.path.exists, jars.split(":"))):
                return jars
        with tempfile.TemporaryDirectory() as project:
            pom, found = Path(project, "pom.xml"), Path(project, "class_path.txt")
            pom.write_text(
                _POM.format(
                    runner=_RUNNER,
                    runner_version=_RUNNER_VERSION,
                    logging=_LOGGING,
                    logging_version=_LOGGING_VERSION,
                )
            )
            command = ["mvn", "--batch-mode", "--quiet", f"--file={pom}"]
            # Without `compile` scope tests' jars would come too: twice as many.
            command += ["dependency:build-classpath", "-DincludeScope=runtime"]
            done = subprocess.run(
                [*command, f"-Dmdep.outputFile={found}"], capture_output=True, text=True
            )
            if done.returncode or not found.exists():
                said = re.findall(r"\[ERROR\] (.+)", done.stdout + done.stderr)
                raise CannotRun(f"Maven could not fetch Flink: {(said or ['no reason given'])[0]}")
            jars = found.read_text().strip()
        new = listed.with_suffix(".new")
        new.write_text(jars)
        new.replace(listed)
        return jars


# The cluster ----------------------------------------------------------------------------------


@dataclass
class Host:
    """A network namespace that stands for a machine.

    Attributes:
      namespace: its name, and that of its cable's end on the bridge.
      address: its place on the bridge.
      task_manager: Flink's process.
      pool: Beam's, which starts Python workers.
    """

    namespace: str
    address: str
    task_manager: subprocess.Popen
    pool: subprocess.Popen


@dataclass
class Cluster:
    """Flink on two hosts.

    Attributes:
      folder: logs (one a process), Flink's files.
      address: of the JobManager and of the job server.
      hosts: the machines.
      job_manager: Flink's process.
      job_server: Beam's process that takes jobs.
      job_port: where it listens.
    """

    folder: Path
    address: str
    task_heap: str
    environment: dict[str, str]
    hosts: list[Host] = field(default_factory=list)
    job_manager: subprocess.Popen | None = None
    job_server: subprocess.Popen | None = None
    job_port: int = field(default_factory=lambda: _free_port())
    _jars: str = field(default_factory=class_path)

    def flags(self) -> list[str]:
        """Flags of a pipeline's command beside its own."""
        return [
            "--runner=PortableRunner",
            f"--job_endpoint={self.address}:{self.job_port}",
            "--environment_type=EXTERNAL",
            "--environment_config=localhost:50000",
            f"--parallelism={HOSTS}",
        ]

    def rest(self, path: str) -> Any:
        """The JobManager's answer: `rest("overview")["taskmanagers"]`."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://{self.address}:8081/{path}", timeout=10) as answer:
            return json.load(answer)

    def running(self) -> list[str]:
        """Ids of jobs that have not ended."""
        ended = ("FINISHED", "FAILED", "CANCELED")
        return [job["id"] for job in self.rest("jobs")["jobs"] if job["status"] not in ended]

    def cancel_all(self) -> None:
        """Ends all jobs that still run."""
        for job in self.running():
            request = urllib.request.Request(
                f"http://{self.address}:8081/jobs/{job}", method="PATCH"
            )
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            opener.open(request, timeout=10).close()
        wait_for(lambda: not self.running(), "jobs are cancelled", 60)

    def workers(self, host: Host) -> list[int]:
        """Process ids of a host's Python workers."""
        found = []
        for pid in map(int, _ip("netns", "pids", host.namespace).stdout.split()):
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                if b"SdkHarness" in command:
                    found.append(pid)
        return found

    def start_job_manager(self) -> None:
        """Starts the JobManager, which knows no jobs."""
        self.job_manager = self._java(
            "job_manager",
            "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint",
            "--executionMode=cluster",
            f"--configDir={self.folder / 'conf'}",
            heap="512m",
        )

    def start_job_server(self) -> None:
        """Starts the job server."""
        self.job_server = self._java(
            "job_server",
            "org.apache.beam.runners.flink.FlinkJobServerDriver",
            f"--flink-master={self.address}:8081",
            f"--job-host={self.address}",
            f"--job-port={self.job_port}",
            # Both on all addresses of the machine, whatever the host.
            f"--artifact-port={_free_port()}",
            f"--expansion-port={_free_port()}",
            f"--artifacts-dir={self.folder / 'artifacts'}",
            heap="256m",
        )

    def start_task_manager(self, namespace: str, address: str) -> subprocess.Popen:
        """A host's TaskManager."""
        # Flink's start scripts would work these out of one number; there are none in its jars.
        memory = {
            "framework.heap.size": "128m",
            "task.heap.size": self.task_heap,
            "managed.size": "128m",
            "framework.off-heap.size": "128m",
            "task.off-heap.size": "128m",
            "network.fraction": "0.1",
            "network.min": "192m",
            "network.max": "192m",
            "jvm-metaspace.size": "256m",
            "jvm-overhead.min": "128m",
            "jvm-overhead.max": "128m",
        }
        given = [
            f"-Dtaskmanager.host={address}",
            "-Dtaskmanager.bind-host=0.0.0.0",
            "-Dtaskmanager.cpu.cores=1",
            *(f"-Dtaskmanager.memory.{name}={value}" for name, value in memory.items()),
        ]
        return self._java(
            f"task_manager_{namespace}",
            "org.apache.flink.runtime.taskexecutor.TaskManagerRunner",
            f"--configDir={self.folder / 'conf'}",
            *given,
            heap=f"{int(self.task_heap[:-1]) + 128}m",
            namespace=namespace,
        )

    def start_pool(self, namespace: str) -> subprocess.Popen:
        """A host's worker pool."""
        pool = [sys.executable, "-m", "apache_beam.runners.worker.worker_pool_main"]
        return self._start(f"pool_{namespace}", [*pool, "--service_port=50000"], namespace)

    def revive(self) -> None:
        """Starts again whatever has ended, as a supervisor does."""
        if self.job_manager is None or self.job_manager.poll() is not None:
            self.start_job_manager()
        if self.job_server is None or self.job_server.poll() is not None:
            self.start_job_server()
        for host in self.hosts:
            if host.task_manager.poll() is not None:
                host.task_manager = self.start_task_manager(host.namespace, host.address)
            if host.pool.poll() is not None:
                host.pool = self.start_pool(host.namespace)

    def wait(self) -> None:
        """Until all of it answers.

        Raises:
          CannotRun: it does not; with the end of the log that says why.
        """
        try:
            wait_for(self._registered, f"{HOSTS} TaskManagers are registered")
            for host in self.hosts:
                wait_for(lambda host=host: _answers(host.address, 50000), "a pool answers")
            wait_for(lambda: _answers(self.address, self.job_port), "the job server answers")
        except (TimeoutError, _Ended) as error:
            ends = "\n".join(
                f"{log.name}: {log.read_text(errors='replace')[-1000:]}"
                for log in sorted(self.folder.glob("*.log"))
            )
            raise CannotRun(f"the Flink cluster did not start: {error}\n{ends}") from error

    def _registered(self) -> bool:
        started = [self.job_manager, self.job_server]
        started += [process for host in self.hosts for process in (host.task_manager, host.pool)]
        if any(process and process.poll() is not None for process in started):
            raise _Ended("one of its processes has ended")
        return self.rest("overview")["taskmanagers"] == HOSTS

    def cut(self, host: Host, seconds: float) -> None:
        """Pulls a host's cable out, and plugs it in again."""
        _run_ip("link", "set", host.namespace, "down")
        try:
            time.sleep(seconds)
        finally:
            _run_ip("link", "set", host.namespace, "up")

    def _java(
        self, name: str, main: str, *arguments: str, heap: str, namespace: str = ""
    ) -> subprocess.Popen:
        jars = self._jars.split(":")
        # The job server sends its class path along with every job, 159 MB, to hosts that have all
        # of it. It does not send jars of its boot path, except for these.
        sent = [jar for jar in jars if name != "job_server" or _SENT.search(jar)]
        boot = [jar for jar in jars if jar not in sent]
        paths = [f"-Xbootclasspath/a:{':'.join(boot)}"] if boot else []
        paths += ["-cp", ":".join(sent)]
        command = ["java", f"-Xmx{heap}", *_JAVA_FLAGS, *paths, main]
        return self._start(name, [*command, *arguments], namespace)

    def _start(self, name: str, command: list[str], namespace: str) -> subprocess.Popen:
        inside = ["ip", "netns", "exec", namespace] if namespace else []
        # Should this process be killed, none of its own stays: the kernel sees to that.
        bound = ["setpriv", "--pdeathsig=KILL", *inside, *command]
        with open(self.folder / f"{name}.log", "ab") as log:
            return subprocess.Popen(
                bound,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self.environment,
                # Ctrl-C is for us to act on; and a pool and its workers can be killed as one.
                start_new_session=True,
            )


@contextlib.contextmanager
def flink_cluster(*, task_heap: str = "300m", python_path: str = "") -> Iterator[Cluster]:
    """A cluster that is ready for jobs; it is gone afterwards.

    Args:
      task_heap: Java memory of a TaskManager for its task.
      python_path: folders where workers find modules of the user's own.

    Raises:
      CannotRun: in one sentence.
    """
    reason = why_not()
    if reason:
        raise CannotRun(reason)
    jars = class_path()
    name = f"{_NAME}{os.getpid()}"
    folder = Path(tempfile.mkdtemp(prefix="textmill-flink-"))
    ends = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _leave) if ends else None
    try:
        address = _make_bridge(name)
        cluster = Cluster(folder, address, task_heap, _environment(python_path), _jars=jars)
        _write_settings(cluster)
        cluster.start_job_manager()
        cluster.start_job_server()
        for number in range(1, HOSTS + 1):
            cluster.hosts.append(_make_host(cluster, name, number))
        cluster.wait()
        yield cluster
    finally:
        _take_down(name, locals().get("cluster"))
        shutil.rmtree(folder, ignore_errors=True)
        if ends:
            signal.signal(signal.SIGTERM, before)


def _leave(*_: object) -> None:
    raise SystemExit(143)


def _environment(python_path: str) -> dict[str, str]:
    """Variables of all processes: a pool starts its workers as `python`, which must be this one."""
    environment = dict(os.environ)
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    folders = [str(ROOT), python_path, os.environ.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    return environment


def _write_settings(cluster: Cluster) -> None:
    settings = {
        "jobmanager.rpc.address": cluster.address,
        "jobmanager.bind-host": "0.0.0.0",  # it calls its own file server by localhost
        "jobmanager.rpc.port": str(_free_port()),
        "jobmanager.memory.process.size": "1024m",
        "rest.address": cluster.address,
        "rest.bind-address": cluster.address,
        "rest.port": "8081",
        "io.tmp.dirs": str(cluster.folder / "tmp"),
        **SETTINGS,
    }
    (cluster.folder / "tmp").mkdir()
    (cluster.folder / "conf").mkdir()
    lines = "".join(f"{name}: {value}\n" for name, value in settings.items())
    (cluster.folder / "conf" / "flink-conf.yaml").write_text(lines)


def _make_bridge(name: str) -> str:
    """Makes a bridge with an address in an unused subnet; the address."""
    with FileLock(_LOCK):
        _remove_remains()
        _run_ip("link", "add", name, "type", "bridge")
        used = {
            tuple(address["local"].split(".")[:3])
            for link in json.loads(_run_ip("-json", "-4", "address"))
            for address in link["addr_info"]
        }
        routes = json.loads(_run_ip("-json", "-4", "route"))
        used |= {tuple(route["dst"].split("/")[0].split(".")[:3]) for route in routes}
        free = (
            f"10.{64 + (os.getpid() + step) // 256 % 128}.{(os.getpid() + step) % 256}"
            for step in range(128 * 256)
        )
        subnet = next(subnet for subnet in free if tuple(subnet.split(".")) not in used)
        _run_ip("address", "add", f"{subnet}.1/24", "dev", name)
        _run_ip("link", "set", name, "up")
    return f"{subnet}.1"


def _make_host(cluster: Cluster, name: str, number: int) -> Host:
    """A namespace with a cable to the bridge, and what runs in it."""
    namespace = f"{name}h{number}"
    address = f"{cluster.address.rpartition('.')[0]}.{10 + number}"
    _run_ip("netns", "add", namespace)
    peer = ("peer", "name", "eth0", "netns", namespace)
    _run_ip("link", "add", namespace, "type", "veth", *peer)
    _run_ip("link", "set", namespace, "master", name, "up")
    for command in (
        ("address", "add", f"{address}/24", "dev", "eth0"),
        ("link", "set", "eth0", "up"),
        ("link", "set", "lo", "up"),
    ):
        _run_ip("-netns", namespace, *command)
    return Host(
        namespace,
        address,
        cluster.start_task_manager(namespace, address),
        cluster.start_pool(namespace),
    )


def _take_down(name: str, cluster: Cluster | None) -> None:
    """Ends all processes, removes namespaces and bridge; whatever is not there is fine."""
    if cluster:
        for process in (cluster.job_server, cluster.job_manager):
            if process:
                process.kill()
                process.wait()
    for number in range(1, HOSTS + 1):
        _remove_namespace(f"{name}h{number}")
    if cluster:
        for host in cluster.hosts:
            host.task_manager.wait()
            host.pool.wait()
    _ip("link", "delete", name)


def _remove_namespace(namespace: str) -> None:
    for pid in map(int, _ip("netns", "pids", namespace).stdout.split()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _ip("netns", "delete", namespace)
    _ip("link", "delete", namespace)  # its cable, which the kernel would remove a little later


def _remove_remains() -> None:
    """Removes the remains of clusters whose process was killed."""
    for line in _ip("netns", "list").stdout.splitlines():
        found = re.match(rf"({_NAME}(\d+))(h\d+|t)\b", line)
        if found and not os.path.exists(f"/proc/{found[2]}"):
            _remove_namespace(found[1] + found[3])
            _ip("link", "delete", found[1])


def wait_for(
    condition: Callable[[], object], what: str, seconds: float = _STARTING_SECONDS
) -> None:
    """Until it is so.

    Raises:
      TimeoutError: it was not, in time.
    """
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with contextlib.suppress(OSError):  # no answer yet
            if condition():
                return
        time.sleep(0.2)
    raise TimeoutError(f"waited {seconds:.0f} s until {what}")


def _free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("", 0))
        return trial.getsockname()[1]


def _answers(address: str, port: int) -> bool:
    with socket.socket() as trial:
        trial.settimeout(1)
        return trial.connect_ex((address, port)) == 0


def _ip(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *arguments], capture_output=True, text=True)


def _run_ip(*arguments: str) -> str:
    done = _ip(*arguments)
    if done.returncode:
        raise CannotRun(f"`ip {' '.join(arguments)}` failed: {done.stderr.strip()}")
    return done.stdout


def main() -> None:
    """A cluster to try things on, until Ctrl-C: `python -m tests.tools.flink_cluster`."""
    with flink_cluster(task_heap="1024m") as cluster:
        print(f"http://{cluster.address}:8081, logs in {cluster.folder}; Ctrl-C ends it")
        print(" ".join(cluster.flags()), flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
