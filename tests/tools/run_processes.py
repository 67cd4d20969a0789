"""Runs of a trainer in several processes, each with CPU devices of its own."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from tests.tools.places import ROOT

TINY = ["--batch_size=8", "--dropout=0.1", "--learning_rate=0.01", "--layers=2", "--heads=2"]
TINY += ["--hidden_size=64", "--intermediate_size=128"]


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("", 0))
        return server.getsockname()[1]


def how_to_join(entry: str, index: int, count: int, port: int) -> tuple[list[str], dict[str, str]]:
    """Flags and environment that tell a process of the others: JAX's flags, or torchrun's names."""
    if entry == "poptorch_classifier":
        names = {"WORLD_SIZE": count, "RANK": index, "LOCAL_RANK": index, "MASTER_PORT": port}
        numbers = {name: str(value) for name, value in names.items()}
        return [], {**numbers, "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
    flags = [f"--num_processes={count}", f"--process_id={index}"]
    flags += [f"--coordinator_address=127.0.0.1:{port}"]
    return flags if count > 1 else [], {"JAX_PLATFORMS": "cpu"}


class Group:
    """`count` processes of one run; `logs` are the files of their messages.

    `own` adds flags to those of a process: {1: ["--seed=1"]}.
    """

    def __init__(
        self,
        work: Path,
        count: int,
        *flags: str,
        devices: int = 1,
        entry="flax_clm",
        own: Mapping[int, Sequence[str]] = MappingProxyType({}),
    ):
        port = free_port()
        work.mkdir(parents=True, exist_ok=True)
        self.logs, self.all = [], []
        environment = dict(
            os.environ,
            XLA_FLAGS=f"--xla_force_host_platform_device_count={devices}",
            PYTHONPATH=str(ROOT),
        )
        for index in range(count):
            who, names = how_to_join(entry, index, count, port)
            more = [*who, *own.get(index, ())]
            self.logs.append(work / f"process-{index}.log")
            with open(self.logs[-1], "w") as log:
                self.all.append(
                    subprocess.Popen(
                        [sys.executable, "-m", f"trainers.{entry}", *flags, *more],
                        cwd=ROOT,
                        env={**environment, **names},
                        stdout=log,
                        stderr=log,
                    )
                )

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.all:
            process.kill()
            process.wait()

    def wait(self, seconds: float = 300) -> list[int]:
        """Exit codes of all."""
        end = time.monotonic() + seconds
        return [process.wait(max(0.1, end - time.monotonic())) for process in self.all]

    def wait_for_step(self, output: Path, step: int, seconds: float = 200) -> None:
        """Waits for a line of a step in metrics.jsonl."""
        end, path = time.monotonic() + seconds, output / "metrics.jsonl"
        while time.monotonic() < end:
            if path.exists() and re.search(rf'"step": {step}\b', path.read_text()):
                return
            if all(process.poll() is not None for process in self.all):
                break
            time.sleep(0.05)
        raise AssertionError(f"no step {step}: {self.texts}")

    def signal(self, index: int, number: int = signal.SIGTERM) -> None:
        self.all[index].send_signal(number)

    @property
    def texts(self) -> list[str]:
        """The messages of each process."""
        return [log.read_text() for log in self.logs]
