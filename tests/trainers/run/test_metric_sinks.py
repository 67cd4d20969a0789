"""TensorBoard and Weights & Biases get what metrics.jsonl gets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tensorboardX.proto import event_pb2

from tests.tools.places import ROOT
from tests.tools.run_reading import read_metrics
from textmill.schemas.errors import UsageError
from textmill.trainers.flags.run_flags import parse_log_to
from textmill.trainers.run.journal import MetricsFile, MetricSink
from textmill.trainers.run.metric_sinks import open_sinks, scalars

LINE = {"kind": "train", "step": 3, "loss": 2.5, "learning_rate": 1e-4, "split": "train"}


def test_log_to_names_sinks(monkeypatch):
    assert parse_log_to("") == ()
    assert parse_log_to("wandb, tensorboard") == ("wandb", "tensorboard")
    with pytest.raises(UsageError, match="'mlflow' is unknown; give tensorboard or wandb"):
        parse_log_to("tensorboard,mlflow")
    assert parse_log_to("wandb,wandb") == ("wandb",)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="tensorboardX is not installed: pip install tensorboardX"):
        parse_log_to("tensorboard")


def test_the_metrics_file_passes_lines_on(tmp_path):
    lines, closed = [], []
    sink = MetricSink(lines.append, lambda: closed.append(True))
    file = MetricsFile(str(tmp_path / "m.jsonl"), also=[sink])
    file.write(LINE)
    file.close()
    assert lines == [LINE] == read_metrics(file.path) and closed
    numbers = {"train/loss": 2.5, "train/learning_rate": 1e-4, "train/whole": 3.0}
    assert scalars(dict(LINE, whole=3, right=True)) == numbers


def records(content):
    """The records of a TFRecord file: length uint64, its CRC, the bytes, their CRC."""
    while content:
        length = int.from_bytes(content[:8], "little")
        yield content[12 : 12 + length]
        content = content[16 + length :]


def points(directory):
    """(tag, step) -> value of all event files in a directory, the later file's last."""
    found = {}
    for path in sorted(directory.iterdir(), key=lambda path: path.stat().st_mtime_ns):
        for record in records(path.read_bytes()):
            event = event_pb2.Event.FromString(record)  # type: ignore[attr-defined]
            if event.session_log.status == event_pb2.SessionLog.START:  # type: ignore
                found = {k: v for k, v in found.items() if k[1] < event.step}
            for value in event.summary.value:
                found[value.tag, event.step] = value.simple_value
    return found


def test_tensorboard_takes_back_points_after_the_checkpoint(tmp_path):
    for start, steps in ((0, (1, 2, 3)), (2, (3, 4))):
        sinks = open_sinks("tensorboard", str(tmp_path), start_step=start, settings={})
        for step in steps:
            sinks[0].write({"kind": "train", "step": step, "loss": step + start * 100.0})
        sinks[0].close()
    found = points(tmp_path / "tensorboard")
    wanted = {1: 1.0, 2: 2.0, 3: 203.0, 4: 204.0}
    assert found == {("train/loss", step): loss for step, loss in wanted.items()}


def run_with_wandb(code: str, output: Path, **environment: str) -> subprocess.CompletedProcess:
    """Runs a program in a home of its own, without an account."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    return subprocess.run(
        [sys.executable, "-c", code, str(output)],
        cwd=ROOT,
        env={**bare, "HOME": str(output), "WANDB_SILENT": "true", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


OFFLINE = """
import sys
from textmill.trainers.run.metric_sinks import open_sinks
for start in (0, 1):
    sink, = open_sinks("wandb", sys.argv[1], start_step=start, settings={"seed": 4})
    for step in (start + 1, start + 2):
        sink.write({"kind": "train", "step": step, "loss": 8.0 / step})
    sink.close()
"""


def test_wandb_offline(tmp_path):
    """Two parts of one run have one name."""
    done = run_with_wandb(OFFLINE, tmp_path, WANDB_MODE="offline")
    assert done.returncode == 0, done.stderr
    run_id = (tmp_path / "wandb_id").read_text().strip()
    runs = list((tmp_path / "wandb").glob(f"offline-run-*-{run_id}"))
    assert runs
    content = b"".join((run / f"run-{run_id}.wandb").read_bytes() for run in runs)
    assert b"train/loss" in content and tmp_path.name.encode() in content and b"seed" in content


NO_LOGIN = """
from textmill.schemas.commands.entry import run_entry
from textmill.trainers.run.metric_sinks import open_sinks
run_entry(lambda argv: open_sinks("wandb", argv[0], start_step=0, settings={}))
"""


def test_wandb_without_a_login_says_what_to_do(tmp_path):
    done = run_with_wandb(NO_LOGIN, tmp_path)
    assert done.returncode == 2, done.stderr
    assert "WANDB_MODE=offline" in done.stderr and "Traceback" not in done.stderr
