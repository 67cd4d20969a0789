"""Prints what poptorch_classifier asks of PopTorch, and the operators that are traced for IPUs.

    python -m tests.benchmarks.record_poptorch
    python -m tests.benchmarks.record_poptorch --replication=2 --device_iterations=4 --layers=3

Four steps of a narrow ELECTRA on random rows, against the stand-in of `poptorch_stub`; no
IPU runs any of it. Flags are the trainer's.
"""

import contextlib
import io
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.tools.class_factory import write_class_set
from tests.tools.poptorch_stub import installed
from trainers.poptorch_classifier import main as train

FLAGS = (
    "--family=electra",
    "--layers=12",
    "--hidden_size=32",
    "--heads=4",
    "--intermediate_size=64",
    "--batch_size=32",
    "--steps=4",
    "--device=ipu",
)


def main(flags: list[str]) -> None:
    """Trains against the stand-in, then prints the recording."""
    with tempfile.TemporaryDirectory() as work, installed() as poptorch:
        write_class_set(Path(work) / "set")
        with contextlib.redirect_stdout(io.StringIO()):
            train([f"--shards={work}/set", f"--output={work}/run", *FLAGS, *flags])
    print(*poptorch.calls, sep="\n")
    for kind, operators in poptorch.traced.items():
        blocks = ", ".join(f"{name} on {ipu}" for name, ipu in poptorch.blocks[kind])
        print(f"\ntraced for {kind}, blocks on IPUs: {blocks}")
        counts = sorted(Counter(operators).items())
        print(", ".join(f"{count} {name.removeprefix('aten::')}" for name, count in counts))


if __name__ == "__main__":
    main(sys.argv[1:])
