"""The report of a dry run; test_estimate.py tests its estimates."""

import io
import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from pipelines.build import plan as module
from pipelines.build.plan import Estimate, Plan, Run, plan_facts, warnings
from pipelines.build_shards import main
from pipelines.readers.sources import Block, Source
from pipelines.readers.stored import Part
from pipelines.runners.block_run import BlockRun
from pipelines.runners.console import duration, facts_table
from tests.tools.shard_factory import mlm_schema

PROCESSES = "--direct_running_mode=multi_processing"
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
)


def plan(tmp_path, *beam_arguments, estimate=ESTIMATE, schema=None, shuffle_by="files"):
    part = Part("text.jsonl", 100_000_000, 0, 100_000_000)
    on = BlockRun(
        "build_shards",
        Source(("text.jsonl",)),
        [Block(0, (part,))],
        list(beam_arguments),
        "in this process",
        shuffle_by,
    )
    options: Any = SimpleNamespace(output=str(tmp_path / "set"), overwrite=False)
    tokenizer: Any = SimpleNamespace(load_backend=lambda size: "gigatoken")
    return Plan(Run(options, schema or mlm_schema(), tokenizer, on), estimate)


def text_of(planned):
    console = Console(file=io.StringIO(), width=200)
    console.print(facts_table(plan_facts(planned)))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_an_estimate_is_said_in_three_digits(tmp_path):
    said = text_of(plan(tmp_path))
    for words in (
        "1 file, 100.0 MB, 1 block; estimated from a sample of 6.0 MB",
        "about 74,000",
        "about 3 not_utf8",
        "about 1,230 min_chars",
        "at least 21",
        "about 28,800,000 + 535,000 special",
        "train about 1,840,000, validation about 4,590; 16 tokens each, packing efficiency 99.8%",
        "about 152.4 MB of shards and 60.1 MB of scratch",
        "about 24 s, in this process",
        "no dataset: the run builds it",
        mlm_schema().fingerprint,
    ):
        assert words in said, words
    # What was read whole is exact.
    said = text_of(plan(tmp_path, estimate=replace(ESTIMATE, whole=True)))
    assert "1 block; read whole" in said and "74,045" in said and "28,842,217" in said
    assert "about 74," not in said and "at least" not in said


def test_seconds_by_the_way_to_run(tmp_path):
    # 4 s until a worker begins, once more for processes, and 20 s of work.
    assert plan(tmp_path).seconds() == 24
    threads = ["--direct_running_mode", "multi_threading", "--direct_num_workers", "2"]
    assert plan(tmp_path, *threads).seconds() == 4 + 20 / 1.6
    assert plan(tmp_path, "--direct_num_workers=10", PROCESSES).seconds() == 8 + 20 / 8
    cluster = text_of(plan(tmp_path, "--runner=FlinkRunner"))
    assert "about 20 s of one core of this machine, in this process" in cluster


def test_durations_are_rounded_to_two_digits():
    said = {0.2: "1 s", 89: "89 s", 90: "1.5 min", 1000: "17 min", 9000: "2.5 h"}
    assert {seconds: duration(seconds) for seconds in said} == said


def test_a_disk_or_a_memory_that_does_not_suffice_is_said(tmp_path, monkeypatch):
    assert warnings(plan(tmp_path)) == []
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: SimpleNamespace(free=200_000_000))
    [said] = warnings(plan(tmp_path))
    assert "is too small: about 212.5 MB are needed and 200.0 MB are free" in said
    assert warnings(plan(tmp_path, shuffle_by="runner")) == []
    monkeypatch.setattr(module.psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    assert "memory may be too small" in warnings(plan(tmp_path))[1]


def test_memory_grows_with_workers_and_shards(tmp_path):
    one = plan(tmp_path).memory_bytes()
    assert plan(tmp_path, "--direct_num_workers=2").memory_bytes() > one
    assert plan(tmp_path, "--direct_num_workers=2", PROCESSES).memory_bytes() > 2 * one
    schema = mlm_schema(shards={"train": 50, "validation": 1})
    assert plan(tmp_path, schema=schema).memory_bytes() < one


def test_what_the_output_holds(corpus, tokenizer_path, tmp_path, capsys):
    output = tmp_path / "set"
    command = [f"--input={corpus}", f"--tokenizer={tokenizer_path}", f"--output={output}"]

    def said(*more):
        capsys.readouterr()
        main([*command, "--dry_run", *more])
        return " ".join(capsys.readouterr().out.replace("│", " ").split())

    assert "no dataset: the run builds it" in said()
    assert not output.exists()
    main(command)
    before = sorted(os.listdir(output))
    assert "a dataset of these settings, from inputs of these sizes" in said()
    differing = said("--seed=1")
    assert (
        "a different dataset (seed: stored 0, requested 1): the run needs --overwrite" in differing
    )
    assert "the run replaces it (--overwrite)" in said("--overwrite")
    (output / "schema.json").write_text("{}")
    assert "a damaged dataset: the run would fail" in said()
    assert sorted(os.listdir(output)) == before
