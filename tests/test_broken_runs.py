"""All five trainers, broken off and damaged: what a run goes on from, and what it then has."""

import os
import signal
from importlib import import_module

import pytest
from compile_cache import compiled_once
from damage_checkpoints import SIZES, write_shards

from trainers.run.journal import MetricsFile, read_metrics

FLAGS = ["--steps=10", "--evaluate_every=4", "--checkpoint_every=3", "--learning_rate=0.01"]
OF_AN_EVALUATION = ("predictions.json", "confusion.png", "reliability.png")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """Equal programs of JAX are compiled once for all tests here."""
    with compiled_once(tmp_path_factory.mktemp("compiled")):
        yield


@pytest.fixture(scope="module", params=SIZES)
def train(request, tmp_path_factory):
    """A function of an output directory and more flags."""
    shards = tmp_path_factory.mktemp("shards") / "set"
    write_shards(request.param, shards)
    main = import_module(f"trainers.{request.param}").main

    def train(output, *more):
        main([f"--shards={shards}", f"--output={output}", *SIZES[request.param], *FLAGS, *more])

    return train


@pytest.fixture(scope="module")
def whole(train, tmp_path_factory):
    """The lines of a run that nothing broke, but for times."""
    output = tmp_path_factory.mktemp("whole") / "run"
    train(output)
    return lines_of(output)


def lines_of(output):
    timed = ("tokens_per_second", "waiting")
    lines = read_metrics(str(output / "metrics.jsonl"))
    return [{name: line[name] for name in line if name not in timed} for line in lines]


def evaluated(lines):
    return [line["step"] for line in lines if line["kind"] == "evaluation"]


def test_a_broken_run_has_the_evaluations_of_an_unbroken_one(train, whole, tmp_path, monkeypatch):
    """SIGTERM as the evaluations of steps 4 and 10 begin, and --stop_after=6 in between."""
    assert evaluated(whole) == [4, 8, 10]
    write = MetricsFile.write

    def write_then_end(self, metrics):
        write(self, metrics)
        if metrics["step"] in (4, 10) and metrics["kind"] == "train":
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(MetricsFile, "write", write_then_end)
    with pytest.raises(SystemExit, match="143"):
        train(tmp_path)
    assert evaluated(lines_of(tmp_path)) == []
    assert not any((tmp_path / name).exists() for name in OF_AN_EVALUATION), "of part of a split"
    train(tmp_path, "--resume", "--stop_after=6")
    assert evaluated(lines_of(tmp_path)) == [4]
    with pytest.raises(SystemExit, match="143"):
        train(tmp_path, "--resume")
    assert evaluated(lines_of(tmp_path)) == [4, 8]
    monkeypatch.undo()
    train(tmp_path, "--resume")
    assert lines_of(tmp_path) == whole


def test_a_damaged_run_goes_on_from_what_is_whole(train, whole, tmp_path, capfd):
    """The newest checkpoint with a bit flipped, metrics.jsonl with a torn line and NUL bytes."""
    train(tmp_path, "--stop_after=6")
    [newest] = [*tmp_path.glob("checkpoints/6"), *tmp_path.glob("checkpoints/*6.pt")]
    files = [newest, *(path for path in newest.rglob("*") if path.is_file())]
    largest = max(files, key=lambda path: path.stat().st_size * path.is_file())
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)
    metrics = tmp_path / "metrics.jsonl"
    lines = metrics.read_bytes().split(b"\n")
    lines[1] = lines[1][:20] + lines[1]
    metrics.write_bytes(b"\n".join(lines) + bytes(100))
    train(tmp_path, "--resume")
    said = capfd.readouterr().err
    assert f"note: the checkpoint after step 6 is damaged: {largest} is not what was" in said
    assert f"It is kept as {newest}.damaged; the run goes on from the one after step 3" in said
    assert "resuming after step 3 of 10" in said
    assert f"note: {metrics}: cannot be read in line 2; moved to {metrics}.damaged" in said
    assert f"note: {metrics}: NUL bytes at its end" in said
    assert lines_of(tmp_path) == [line for line in whole if line["step"] != 2]
