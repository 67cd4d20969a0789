"""What a dry run says; how good its estimates are, test_estimate.py tells."""

import io
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest
from filelock import FileLock
from rich.console import Console

from pipelines.build import estimate as estimating
from pipelines.build import plan as module
from pipelines.build.estimate import Estimate
from pipelines.build.plan import Plan, plan_table, warnings
from pipelines.build_shards import main
from pipelines.readers.sources import Block
from pipelines.readers.stored import Part
from pipelines.runners.beam_flags import runner_flags
from tests.tools.shard_factory import mlm_schema

ESTIMATE = Estimate(
    whole=False,
    sampled_bytes=6_000_000,
    text_bytes=100e6,
    documents=74_045.4,
    dropped={"min_chars": 1234.5, "not_utf8": 3.0, "duplicates": 21.5},
    tokens=28_842_216.7,
    specials=534_840.1,
    tokens_in_rows=29_377_056.8,
    rows={"train": 1_836_066.0, "validation": 4_591.3},
    shard_bytes=152.4e6,
    scratch_bytes=60.1e6,
    seconds=20.0,
    documents_error=2_137.4,
)


def plan(tmp_path, **changes):
    part = Part("text.jsonl", 100_000_000, 0, 100_000_000)
    values = Plan(
        output=str(tmp_path / "set"),
        schema=mlm_schema(),
        blocks=[Block(0, (part,))],
        encoded_by="gigatoken",
        estimate=ESTIMATE,
        how="in this process",
        workers=1,
        processes=False,
        by_files=True,
        overwrite=False,
    )
    return replace(values, **changes)


def text_of(planned):
    console = Console(file=io.StringIO(), width=200)
    console.print(plan_table(planned))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_an_estimate_is_said_in_three_digits(tmp_path):
    said = text_of(plan(tmp_path))
    for words in (
        "1 file, 100.0 MB, 1 block; estimated from 6.0 MB spread over them",
        "about 74,000 ± 2,100",
        "about 3 not_utf8",
        "about 1,230 min_chars",
        "at least 21",
        "about 28,800,000 + 535,000 special",
        "train about 1,840,000, validation about 4,590; 16 tokens each, 99.8% filled",
        "about 152.4 MB of shards and 60.1 MB of scratch",
        "about 24 s, in this process",
        "nothing: the set is made",
        mlm_schema().fingerprint,
    ):
        assert words in said, words


def test_what_was_read_whole_is_said_exactly(tmp_path):
    said = text_of(plan(tmp_path, estimate=replace(ESTIMATE, whole=True)))
    assert "1 block; read whole" in said and "74,045" in said and "28,842,217" in said
    assert "about 74," not in said and "at least" not in said


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], (1, False)),
        (["--direct_num_workers=4"], (4, False)),
        (["--direct_running_mode=multi_processing", "--direct_num_workers", "8"], (8, True)),
        (["--direct_running_mode", "multi_threading", "--direct_num_workers=2"], (2, False)),
    ],
)
def test_workers_are_those_of_beam(arguments, expected):
    flags = runner_flags(arguments)
    assert (flags.number, flags.in_processes) == expected


def test_seconds_by_the_way_to_run(tmp_path):
    # 4 s until a worker begins, once more for processes, and 20 s of work.
    assert plan(tmp_path).seconds() == 24
    assert plan(tmp_path, workers=2).seconds() == 4 + 20 / 1.6
    assert plan(tmp_path, workers=10, processes=True).seconds() == 8 + 20 / 8
    cluster = text_of(plan(tmp_path, workers=0, how="as asked"))
    assert "about 20 s of one core of this machine, as asked" in cluster


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "1 s"), (89, "89 s"), (90, "1.5 min"), (1000, "17 min"), (9000, "2.5 h")],
)
def test_durations(seconds, said):
    assert module._duration(seconds) == said


def test_a_disk_or_a_memory_that_does_not_suffice_is_said(tmp_path, monkeypatch):
    assert warnings(plan(tmp_path)) == []
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: SimpleNamespace(free=200_000_000))
    [said] = warnings(plan(tmp_path))
    assert "does not suffice: about 212.5 MB are needed and 200.0 MB are free" in said
    assert warnings(plan(tmp_path, by_files=False)) == []
    monkeypatch.setattr(module.psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    assert "memory may not suffice" in warnings(plan(tmp_path))[1]


def test_memory_grows_with_workers_and_shards(tmp_path):
    one = plan(tmp_path).memory_bytes()
    assert plan(tmp_path, workers=2).memory_bytes() > one
    assert plan(tmp_path, workers=2, processes=True).memory_bytes() > 2 * one
    schema = mlm_schema(shards={"train": 50, "validation": 1})
    assert plan(tmp_path, schema=schema).memory_bytes() < one


def test_what_the_output_holds(corpus, tokenizer_path, tmp_path, capsys):
    output = tmp_path / "set"
    command = [f"--input={corpus}", f"--tokenizer={tokenizer_path}", f"--output={output}"]

    def said(*more):
        capsys.readouterr()
        main([*command, "--dry_run", *more])
        return " ".join(capsys.readouterr().out.split())

    assert "nothing: the set is made" in said()
    assert not output.exists()
    main(command)
    before = sorted(os.listdir(output))
    assert "a set of these settings, from inputs of these sizes" in said()
    assert "another set (seed: 0 here, 1 there): the run refuses" in said("--seed=1")
    assert "it is replaced (--overwrite)" in said("--overwrite")
    with FileLock(output / ".lock"):
        assert "in use: another run writes there" in said()
    (output / "schema.json").write_text("{}")
    assert "a damaged set: the run refuses" in said()
    assert sorted(os.listdir(output)) == before


def test_the_error_of_an_estimate_is_that_of_its_places():
    """Four places of equal size with 8, 10, 10 and 12 documents: sd 1.633 of 4 places, mean 10."""
    sample = estimating._Sample(places=[(1000, 8), (1000, 10), (1000, 10), (1000, 12)])
    assert sample.error() == pytest.approx((8 / 3) ** 0.5 / 4**0.5 / 10)
    assert estimating._Sample(places=[(1000, 8)]).error() == 0
