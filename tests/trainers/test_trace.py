"""Traces of runs equal what recording trainers saw."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tools.clm_factory import clm_schema, write_clm_set
from tests.tools.numpy_program import NumpyProgram, run_numpy
from tests.tools.shard_factory import routed_digests
from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.format.metadata import shard_name
from textmill.trainers.run.run_directory import read_settings, write_settings
from textmill.trainers.trace import main

pytestmark = pytest.mark.usefixtures("no_picture")
STAGES = "0:web=0.5,code=0.5;5:code=1;75%:math=0.8,web=0.2"
Tokens = dict[str, int]  # of each document, by its digest as text


@pytest.fixture(scope="module")
def sets(tmp_path_factory) -> dict[str, dict[bytes, Tokens]]:
    """Three sets by directory, each with the documents of its training rows by their ids."""
    directory, found = tmp_path_factory.mktemp("sets"), {}
    for number, name in enumerate(("web", "code", "numbers")):
        schema = clm_schema(seed=number)
        columns = write_clm_set(
            directory / name, schema=schema, train=10 + 5 * number, validation=3, step=number
        )["train"]
        shards, documents = schema.shards["train"], {}
        bounds = np.linspace(0, len(columns["input_ids"]), shards + 1).astype(int)
        for index in range(shards):
            here = slice(bounds[index], bounds[index + 1])
            segments = columns["segment_ids"][here]
            digests = iter(routed_digests(schema, shard_name("train", index, shards), 99))
            for ids, row in zip(columns["input_ids"][here], segments, strict=True):
                tokens = np.bincount(row)[1:].tolist()
                documents[ids.astype(np.int64).tobytes()] = {
                    next(digests).tobytes().hex(): count for count in tokens
                }
        found[str(directory / name)] = documents
    return found


@pytest.fixture
def seen(monkeypatch) -> dict[int, np.ndarray]:
    """The ids that the program trained on, by step from 1; a repeated step replaces the first."""
    recorded, train = {}, NumpyProgram.train

    def record(self, placed, step):
        for number, ids in enumerate(np.split(placed["input_ids"], self.steps_per_call), 1):
            recorded[step + number] = ids
        return train(self, placed, step)

    monkeypatch.setattr(NumpyProgram, "train", record)
    return recorded


def trace(capfd, *words: object) -> list[dict[str, Any]]:
    """The reports of a command."""
    capfd.readouterr()
    main([*map(str, words), "--json"])
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


def check_run(capfd, run: Path, sets: Any, seen: dict[int, np.ndarray]) -> None:
    """Compares traces of all steps and of all documents with what was seen."""
    names = read_settings(run)["config"]["shards"]
    tokens_of = {k: v for path, rows in sets.items() if path in names for k, v in rows.items()}
    steps_of: dict[str, Counter[int]] = {}
    for step, ids in seen.items():
        due: Counter[str] = Counter()
        for row in ids.astype(np.int64):
            due.update(tokens_of[row.tobytes()])
            for digest in tokens_of[row.tobytes()]:
                steps_of.setdefault(digest, Counter())[step] += 1
        [report] = trace(capfd, run, f"--step={step}")
        assert {one["document"]: one["tokens"] for one in report["documents"]} == due
        assert report["tokens"] == due.total()
        assert sum(one["share"] for one in report["documents"]) == pytest.approx(1)
        assert len(report["rows"]) == len(ids)
    check_forgotten(capfd, run, steps_of, {one for own in tokens_of.values() for one in own})
    digests = {digest for documents in tokens_of.values() for digest in documents}
    for digest in random.Random(0).sample(sorted(digests), 8):
        [report] = trace(capfd, run, f"--document={digest}")
        times = steps_of.get(digest, Counter())
        assert {one["step"]: len(one["rows"]) for one in report["steps"]} == times
        assert report["times"] == times.total()


def check_forgotten(capfd, run: Path, steps_of: dict[str, Counter[int]], there: set[str]) -> None:
    """Compares the trace of a list, of every third document and an unknown one, with the steps."""
    some = {*sorted(there)[::3]}
    path = run.parent / "list.txt"
    path.write_text("".join(f"{digest}\n" for digest in (*some, "ab" * 16)))
    [report] = trace(capfd, run, f"--forgotten={path}")
    seen = {one: sorted(steps_of[one]) for one in some if one in steps_of}
    assert {one["document"]: one["steps"] for one in report["documents"]} == {
        one: seen.get(one, []) for one in some
    }
    assert [one["document"] for one in report["documents"]] == sorted(some)
    for one in report["documents"]:
        steps = one["steps"] or [None]
        assert (one["first_step"], one["last_step"]) == (steps[0], steps[-1])
        assert one["times"] == steps_of.get(one["document"], Counter()).total()
    steps = sorted({step for own in seen.values() for step in own})
    assert report["steps"] == steps and len(steps) > 1
    assert (report["first_step"], report["last_step"]) == (steps[0], steps[-1])
    counts = [report[name] for name in ("listed", "in_dataset", "seen")]
    assert counts == [len(some) + 1, len(some), len(seen)]


RUNS = {
    "epochs": ("{web}", {"steps": 12}),
    "mixture": ("{web}:0.6,{code}:0.4", {"seed": 3}),
    "stages": ("{web},{code},math={numbers}", {"stages": STAGES}),
    "calls": ("{code}", {"steps": 10, "steps_per_call": 2, "checkpoint_every": 4}),
}


@pytest.mark.parametrize("name", RUNS)
def test_steps_and_documents(sets, seen, tmp_path, capfd, name):
    """Twelve steps of 4 rows, over sets of 10 to 20 rows."""
    shards, flags = RUNS[name]
    shards = shards.format(**{Path(path).name: path for path in sets})
    run_numpy(shards, tmp_path / "run", **flags)
    check_run(capfd, tmp_path / "run", sets, seen)


def test_a_resumed_run(sets, seen, tmp_path, capfd):
    """Stopped in the middle of an epoch, and resumed with a later stage."""
    [web, code, _] = sets
    shards, stages = f"{web},{code}", "0:web=0.5,code=0.5"
    run_numpy(shards, tmp_path / "run", stages=stages, stop_after=7)
    [stopped] = trace(capfd, tmp_path / "run", "--document=" + "00" * 16)
    assert stopped["steps_done"] == 7
    later = f"{stages};9:code=1"
    run_numpy(shards, tmp_path / "run", stages=later, resume=True)
    check_run(capfd, tmp_path / "run", sets, seen)


def test_checkpoints_around_a_step(sets, seen, tmp_path, capfd):
    """The two newest are kept, and the best one: 9 and 12, and 4."""
    [web, *_] = sets
    run_numpy(web, tmp_path / "run")
    best = max(int(path.name) for path in (tmp_path / "run" / "best").iterdir())
    kept = sorted({9, 12, best})
    [report] = trace(capfd, tmp_path / "run", "--step=1")
    digest = report["documents"][0]["document"]
    [report] = trace(capfd, tmp_path / "run", f"--document={digest}")
    assert len(report["steps"]) > 2
    for one in report["steps"]:
        after = [step for step in kept if step >= one["step"]]
        before = [step for step in kept if step < one["step"]]
        assert one["checkpoint_after"] == after[0]
        assert one["checkpoint_before"] == (before[-1] if before else None)
    main([str(tmp_path / "run"), f"--document={digest}"])
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == (
        f"document {digest} in {tmp_path / 'run'}: in {report['times']} rows of "
        f"{len(report['steps'])} steps, of the 12 steps done"
    )
    row, step = report["steps"][0]["rows"][0], report["steps"][0]
    assert lines[1] == (
        f"  step 1: row {row['row']} (epoch 1); after the start, before checkpoint "
        f"{step['checkpoint_after']}"
    )


def test_checkpoints_around_listed_documents(sets, seen, tmp_path, capfd):
    """Those of the first step of each, and of the first of all."""
    [web, code, _] = sets
    run, path = tmp_path / "run", tmp_path / "list.txt"
    run_numpy(web, run, steps=4, checkpoint_every=2, evaluate_every=2)
    early, late = set(), set()
    for step in range(1, 5):
        [report] = trace(capfd, run, f"--step={step}")
        (early if step < 3 else late).update(one["document"] for one in report["documents"])
    [digest, other] = sorted(late - early)[:2]
    path.write_text(f"{digest}\n{other}\n{'0' * 32}\n")
    [report] = trace(capfd, run, f"--forgotten={path}")
    around = [(one["checkpoint_before"], one["checkpoint_after"]) for one in report["documents"]]
    assert around == [(2, 4), (2, 4)]
    assert (report["checkpoint_before"], report["checkpoint_after"]) == (2, 4)
    steps = {one["document"]: one["steps"] for one in report["documents"]}
    first = min(steps[digest] + steps[other])
    main([str(run), f"--forgotten={path}", "--most=1"])
    times, last = report["documents"][0]["times"], max(steps[digest] + steps[other])
    number = len({*steps[digest], *steps[other]})
    assert capfd.readouterr().out.splitlines() == [
        f"3 listed documents, 2 in the training split of {run}, 2 seen in {number} "
        f"of the 4 steps done, first in step {first}, last in step {last}",
        "the first step is after checkpoint 2, before checkpoint 4",
        f"  {digest}: {times} row{'s' * (times > 1)} of {len(steps[digest])} "
        f"step{'s' * (len(steps[digest]) > 1)}, {steps[digest][0]} to {steps[digest][-1]}; "
        "first after checkpoint 2, before checkpoint 4",
        "  and 1 more document",
    ]
    path.write_text("0" * 32)
    main([str(run), f"--forgotten={path}"])
    assert capfd.readouterr().out == (
        f"1 listed document, 0 in the training split of {run}, none seen in the 4 steps done\n"
    )


def test_a_loss_spike(sets, seen, tmp_path, capfd):
    """Its documents are those of the steps above the limit; the others are elsewhere."""
    [web, code, _] = sets
    run = tmp_path / "run"
    run_numpy(f"{web}:0.5,{code}:0.5", run)
    losses = {}
    for step in range(3, 10):
        [report] = trace(capfd, run, f"--step={step}")
        losses[step] = report["loss"]
    limit = sorted(losses.values())[-3]
    [report] = trace(capfd, run, "--steps=3:9", f"--above={limit}")
    high = [step for step in losses if losses[step] > limit]
    assert [one["step"] for one in report["steps"]] == high and len(high) == 2
    parts = {True: Counter(), False: Counter()}
    for step in losses:
        [one] = trace(capfd, run, f"--step={step}")
        parts[step in high].update({d["document"]: d["tokens"] for d in one["documents"]})
    whole = {key: part.total() for key, part in parts.items()}
    for one in report["documents"]:
        assert one["tokens"] == parts[True][one["document"]]
        assert one["share"] == one["tokens"] / whole[True]
        assert one["share_elsewhere"] == parts[False][one["document"]] / whole[False]
    assert len(report["documents"]) == len(parts[True])
    assert sum(one["share"] for one in report["datasets"]) == pytest.approx(1)
    main([str(run), "--steps=3:9", f"--above={limit}", "--most=2"])
    first = capfd.readouterr().out.splitlines()[0]
    assert "2 steps of" in first and first.endswith("compared with 5 other steps")
    with pytest.raises(UsageError, match=r"no step from 3 to 9 of .* the highest is"):
        main([str(run), "--steps=3:9", "--above=99"])


def test_errors_in_words(sets, seen, tmp_path):
    """What is not there, and what is malformed."""
    [web, code, _] = sets
    run = tmp_path / "run"
    run_numpy(web, run)
    for words, due in {
        ("--step=13",): f"{run} has no step 13: it has done 12, and the first is 1",
        ("--step=0",): f"{run} has no step 0",
        ("--steps=9:3",): "--steps=9:3: give the first and the last step, as 480:520",
        ("--steps=3",): "--steps=3: give the first",
        ("--document=xyz",): "--document=xyz: give the 32 hexadecimal digits of `id` in a corpus",
        ("--step=1", "--above=3"): "--above=3.0 needs --steps",
        (): "nothing to trace: give --step",
        ("--step=1", "--document=00"): "--step=1 --document=00: give one of them",
        ("--step=1", "--forgotten=a"): "--step=1 --forgotten=a: give one of them",
        ("--forgotten=none.txt",): "--forgotten=none.txt cannot be read",
        ("--text=none.txt",): "--text=none.txt: .*No such file",
    }.items():
        with pytest.raises(UsageError, match=due.replace("(", r"\(")):
            main([str(run), *words])
    with pytest.raises(UsageError, match="RUN comes first: python -m trainers.trace RUN --step=N"):
        main(["--step=1"])
    with pytest.raises(UsageError, match=f"{web} holds no run: it has no config.json"):
        main([web, "--step=1"])
    with pytest.raises(DataError, match=f"{code} is not the dataset of {run}: .* give --shards"):
        main([str(run), "--step=1", f"--shards={code}"])
    settings = read_settings(run)
    settings["config"]["shards"] = "/gone"
    write_settings(run, settings)
    with pytest.raises(DataError, match=f"{run} trains on /gone: .*was moved, give --shards=DIR"):
        main([str(run), "--step=1"])
    main([str(run), "--step=1", f"--shards={web}"])


def test_several_runs(sets, seen, tmp_path, capfd):
    """One report for each, with and without the document."""
    [web, code, _] = sets
    run_numpy(web, tmp_path / "a")
    run_numpy(code, tmp_path / "b", steps=1)
    reports = trace(capfd, tmp_path / "a", tmp_path / "b", "--document=" + "0" * 32)
    assert [one["in_dataset"] for one in reports] == [False, False]
    main([str(tmp_path / "a"), "--document=" + "0" * 32])
    assert capfd.readouterr().out == (
        f"document {'0' * 32} in {tmp_path / 'a'}: the run's training split does not have it\n"
    )
