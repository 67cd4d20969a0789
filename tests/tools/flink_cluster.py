"""A Flink cluster of two hosts on one machine, for tests: network namespaces on a bridge.

    root namespace                 bridge 10.A.B.1
      JobManager     :8081           |-- host 1: 10.A.B.11  TaskManager (1 slot), worker pool :50000
      job server                     |-- host 2: 10.A.B.12  TaskManager (1 slot), worker pool :50000

Every host finds its own pool at its own localhost, as on machines of their own; the disk is shared.
Names and the subnet carry this process's id: clusters do not meet. It takes root, `ip`, Java 11 or
newer and, the first time, Maven.
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
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock

from tests.tools.places import ROOT
from tests.tools.run_processes import free_port

HOSTS = (1, 2)
_NAME = "tmill"  # with a process id and a host's number: at most 15 letters
_STARTING_SECONDS = 90.0
# The newest of Beam's runners for Flink that Maven's usual mirrors carry whole.
_RUNNER, _LOGGING = "beam-runners-flink-1.16:2.56.0", "slf4j-simple:1.7.36"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>textmill</groupId> <artifactId>flink</artifactId> <version>1</version>
  <packaging>pom</packaging>
  <dependencies>{}</dependencies>
</project>
"""
_DEPENDENCY = """
    <dependency>
      <groupId>{}</groupId> <artifactId>{}</artifactId> <version>{}</version>
    </dependency>"""
# Flink 1.16 reaches into these, which newer versions of Java keep closed.
_EXPORTED = ("base/sun.net.util", "management/sun.management")
_OPENED = (
    *("java.lang", "java.lang.reflect", "java.util", "java.util.concurrent"),
    *("java.nio", "java.net", "sun.nio.ch"),
)
_JAVA = (
    "java",
    "-XX:+UseSerialGC",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    *(f"--add-exports=java.{module}=ALL-UNNAMED" for module in _EXPORTED),
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
)
# A batch job starts over when a host is lost: often enough for one that comes back, and not for
# ever, as when a worker refuses the data.
_SETTINGS = {
    "restart-strategy": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "4",
    "restart-strategy.fixed-delay.delay": "5 s",
    "heartbeat.interval": "2000",
    "heartbeat.timeout": "10000",
    "slot.request.timeout": "60000",
    "taskmanager.numberOfTaskSlots": "1",
    "parallelism.default": str(len(HOSTS)),
    # Hosts have all jars; without it each job would load the classes again.
    "classloader.resolve-order": "parent-first",
    "jobmanager.bind-host": "0.0.0.0",  # it calls its own file server by localhost
    "jobmanager.memory.process.size": "1024m",
    "rest.port": "8081",
}
# Flink's start scripts would work these out of one number; there are none in its jars.
_TASK_MEMORY = {
    "framework.heap.size": "128m",
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
_SENT = re.compile(r"flink-(java|clients|optimizer|streaming-java)-|beam-runners-flink")


class CannotRun(Exception):
    """Why there is no cluster, in one sentence."""


def why_not() -> str:
    """Why this machine has no place for a cluster, in one sentence; empty if it has one."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces are Linux's, and making them takes root"
    for program, package in (("ip", "iproute2"), ("setpriv", "util-linux"), ("java", "Java 11")):
        if shutil.which(program) is None:
            return f"there is no `{program}` ({package})"
    if shutil.which("mvn") is None and not _class_path_file().exists():
        return "there is no `mvn` (Maven) to fetch Flink with"
    trial = f"{_NAME}{os.getpid()}t"
    made = _ip("netns", "add", trial)
    _ip("netns", "delete", trial)
    return f"network namespaces are refused: {made.stderr.strip()}" if made.returncode else ""


# Flink from Maven -----------------------------------------------------------------------------


def _class_path_file() -> Path:
    """The list of Flink's jars, for all runs of this user."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base, "textmill", "flink", f"{_RUNNER.replace(':', '-')}.txt")


def class_path() -> list[str]:
    """The jars of the Flink runner and of Flink; fetched once (140 jars, a minute or two).

    Raises:
      CannotRun: Maven could not fetch them.
    """
    listed = _class_path_file()
    listed.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(listed.parent / ".lock"), tempfile.TemporaryDirectory() as project:
        if listed.exists() and all(map(os.path.exists, listed.read_text().split(":"))):
            return listed.read_text().split(":")
        pom, found = Path(project, "pom.xml"), Path(project, "class_path.txt")
        wanted = (("org.apache.beam", _RUNNER), ("org.slf4j", _LOGGING))
        needs = (_DEPENDENCY.format(group, *name.split(":")) for group, name in wanted)
        pom.write_text(_POM.format("".join(needs)))
        command = ["mvn", "--batch-mode", "--quiet", f"--file={pom}"]
        # Without a scope tests' jars would come too: twice as many.
        command += ["dependency:build-classpath", "-DincludeScope=runtime"]
        done = subprocess.run(
            [*command, f"-Dmdep.outputFile={found}"], capture_output=True, text=True
        )
        if done.returncode or not found.exists():
            errors = re.findall(r"\[ERROR\] (.+)", done.stdout + done.stderr)
            raise CannotRun(f"Maven could not fetch Flink: {(errors or ['no reason given'])[0]}")
        shutil.copy(found, listed)
        return found.read_text().strip().split(":")


# The cluster ----------------------------------------------------------------------------------


class Cluster:
    """Flink on two hosts.

    Attributes:
      folder: logs (one a process), Flink's files.
      address: of the JobManager and of the job server.
      processes: job_manager, job_server, and of each host task_manager_1 and pool_1, as started
        last.
    """

    def __init__(self, folder: Path, name: str, task_heap: str, python_path: str):
        subnet = f"10.{64 + os.getpid() // 256 % 128}.{os.getpid() % 256}"
        self.folder, self.address = folder, f"{subnet}.1"
        self.processes: dict[str, subprocess.Popen] = {}
        self._name, self._addresses = name, {host: f"{subnet}.{10 + host}" for host in HOSTS}
        self._jars, self._job_port = class_path(), free_port()
        self._environment = _environment(python_path)
        self._commands = self._list_commands(task_heap)

    def _list_commands(self, task_heap: str) -> dict[str, list[str]]:
        conf = f"--configDir={self.folder / 'conf'}"
        runtime = "org.apache.flink.runtime"
        entrypoint = f"{runtime}.entrypoint.StandaloneSessionClusterEntrypoint"
        # The job server sends its class path along with every job, 159 MB, to hosts that have all
        # of it. It does not send jars of its boot path, except for these.
        sent = [jar for jar in self._jars if _SENT.search(jar)]
        boot = [jar for jar in self._jars if jar not in sent]
        commands = {
            "job_manager": [
                *(*_JAVA, "-Xmx512m", "-cp", ":".join(self._jars), entrypoint),
                *("--executionMode=cluster", conf),
            ],
            "job_server": [
                *(*_JAVA, "-Xmx256m", f"-Xbootclasspath/a:{':'.join(boot)}"),
                *("-cp", ":".join(sent), "org.apache.beam.runners.flink.FlinkJobServerDriver"),
                *(f"--flink-master={self.address}:8081", f"--job-host={self.address}"),
                # All ports on all addresses of the machine, whatever the host.
                *(f"--job-port={self._job_port}", f"--artifact-port={free_port()}"),
                *(
                    f"--expansion-port={free_port()}",
                    f"--artifacts-dir={self.folder / 'artifacts'}",
                ),
            ],
        }
        memory = {**_TASK_MEMORY, "task.heap.size": task_heap}
        for host, address in self._addresses.items():
            inside = ["ip", "netns", "exec", self.namespace(host)]
            commands[f"task_manager_{host}"] = [
                *(*inside, *_JAVA, f"-Xmx{int(task_heap[:-1]) + 128}m"),
                *("-cp", ":".join(self._jars), f"{runtime}.taskexecutor.TaskManagerRunner", conf),
                *(f"-Dtaskmanager.host={address}", "-Dtaskmanager.bind-host=0.0.0.0"),
                "-Dtaskmanager.cpu.cores=1",
                *(f"-Dtaskmanager.memory.{name}={value}" for name, value in memory.items()),
            ]
            pool = [sys.executable, "-m", "apache_beam.runners.worker.worker_pool_main"]
            commands[f"pool_{host}"] = [*inside, *pool, "--service_port=50000"]
        return commands

    def namespace(self, host: int) -> str:
        """The name of a host, and of its cable's end on the bridge."""
        return f"{self._name}h{host}"

    def flags(self) -> list[str]:
        """Flags of a pipeline's command beside its own."""
        return [
            "--runner=PortableRunner",
            f"--job_endpoint={self.address}:{self._job_port}",
            "--environment_type=EXTERNAL",
            "--environment_config=localhost:50000",
            f"--parallelism={len(HOSTS)}",
        ]

    def rest(self, path: str, method: str = "GET") -> Any:
        """The JobManager's answer: `rest("overview")["taskmanagers"]`."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        request = urllib.request.Request(f"http://{self.address}:8081/{path}", method=method)
        with opener.open(request, timeout=10) as answer:
            return json.load(answer)

    def running(self) -> list[str]:
        """Ids of jobs that have not ended."""
        ended = ("FINISHED", "FAILED", "CANCELED")
        return [job["id"] for job in self.rest("jobs")["jobs"] if job["status"] not in ended]

    def cancel_all(self) -> None:
        """Ends all jobs that still run."""
        for job in self.running():
            self.rest(f"jobs/{job}", "PATCH")
        wait_for(lambda: not self.running(), "jobs are cancelled", 60)

    def workers(self) -> list[int]:
        """Process ids of all Python workers."""
        found = []
        for host in HOSTS:
            for pid in map(int, _ip("netns", "pids", self.namespace(host)).stdout.split()):
                with contextlib.suppress(OSError):
                    if b"SdkHarness" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        found.append(pid)
        return found

    def start(self) -> None:
        """Makes the hosts, and starts all processes.

        Raises:
          CannotRun: one ended, or does not answer; with the ends of the logs.
        """
        _make_hosts(self._name, self.address, self._addresses)
        settings = {
            "jobmanager.rpc.address": self.address,
            "jobmanager.rpc.port": str(free_port()),
            "rest.address": self.address,
            "rest.bind-address": self.address,
            "io.tmp.dirs": str(self.folder / "tmp"),
            **_SETTINGS,
        }
        (self.folder / "tmp").mkdir()
        (self.folder / "conf").mkdir()
        lines = "".join(f"{name}: {value}\n" for name, value in settings.items())
        (self.folder / "conf" / "flink-conf.yaml").write_text(lines)
        self.revive()
        self.wait()

    def revive(self) -> None:
        """Starts whatever does not run, as a supervisor does."""
        for name, command in self._commands.items():
            if name in self.processes and self.processes[name].poll() is None:
                continue
            with open(self.folder / f"{name}.log", "ab") as log:
                self.processes[name] = subprocess.Popen(
                    # Should this process be killed, none of its own stays: the kernel ends them.
                    ["setpriv", "--pdeathsig=KILL", *command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.folder,
                    env=self._environment,
                    # Ctrl-C is for us to act on; and a pool and its workers can be killed as one.
                    start_new_session=True,
                )

    def wait(self) -> None:
        """Until all of it answers.

        Raises:
          CannotRun: it does not; with the ends of the logs.
        """
        answers = [(address, 50000) for address in self._addresses.values()]
        try:
            wait_for(self._is_registered, f"{len(HOSTS)} TaskManagers are registered")
            for address in (*answers, (self.address, self._job_port)):
                wait_for(
                    lambda a=address: socket.create_connection(a, 1).close() is None, "it answers"
                )
        except (TimeoutError, CannotRun) as error:
            ends = "\n".join(
                f"{log.name}: {log.read_text(errors='replace')[-1000:]}"
                for log in sorted(self.folder.glob("*.log"))
            )
            raise CannotRun(f"the Flink cluster did not start: {error}\n{ends}") from error

    def _is_registered(self) -> bool:
        if any(process.poll() is not None for process in self.processes.values()):
            raise CannotRun("one of its processes has ended")
        return self.rest("overview")["taskmanagers"] == len(HOSTS)

    def kill(self, *names: str) -> None:
        """Kills processes, and waits for their ends."""
        for name in names:
            self.processes[name].kill()
        for name in names:
            self.processes[name].wait()

    def cut(self, host: int, seconds: float) -> None:
        """Pulls a host's cable out, and plugs it in again."""
        _run_ip("link", "set", self.namespace(host), "down")
        try:
            time.sleep(seconds)
        finally:
            _run_ip("link", "set", self.namespace(host), "up")


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
    _remove_remains()
    name = f"{_NAME}{os.getpid()}"
    folder = Path(tempfile.mkdtemp(prefix="textmill-flink-"))
    cluster = Cluster(folder, name, task_heap, python_path)
    try:
        cluster.start()
        yield cluster
    finally:
        for host in HOSTS:
            _remove_namespace(cluster.namespace(host))
        cluster.kill(*cluster.processes)
        _ip("link", "delete", name)
        shutil.rmtree(folder, ignore_errors=True)


def _environment(python_path: str) -> dict[str, str]:
    """Variables of all processes: a pool starts its workers as `python`, which must be this one."""
    folders = filter(None, [str(ROOT), python_path, os.environ.get("PYTHONPATH", "")])
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(folders),
    }


def _make_hosts(name: str, address: str, hosts: dict[int, str]) -> None:
    """A bridge, and a namespace with a cable to it for each host."""
    _run_ip("link", "add", name, "type", "bridge")
    _run_ip("address", "add", f"{address}/24", "dev", name)
    _run_ip("link", "set", name, "up")
    for number, its_address in hosts.items():
        namespace = f"{name}h{number}"
        _run_ip("netns", "add", namespace)
        peer = ("peer", "name", "eth0", "netns", namespace)
        _run_ip("link", "add", namespace, "type", "veth", *peer)
        _run_ip("link", "set", namespace, "master", name, "up")
        _run_ip("-netns", namespace, "address", "add", f"{its_address}/24", "dev", "eth0")
        _run_ip("-netns", namespace, "link", "set", "eth0", "up")
        _run_ip("-netns", namespace, "link", "set", "lo", "up")


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


def _ip(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *arguments], capture_output=True, text=True)


def _run_ip(*arguments: str) -> None:
    done = _ip(*arguments)
    if done.returncode:
        raise CannotRun(f"`ip {' '.join(arguments)}` failed: {done.stderr.strip()}")
