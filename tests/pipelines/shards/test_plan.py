"""The report of a dry run, and its estimates."""

import bz2
import gzip
import io
import json
import os
import random
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from rich.console import Console
from rich.filesize import decimal

from tests.tools.shard_factory import mlm_schema
from textmill.pipelines.build_shards import BUILDER, main
from textmill.pipelines.encoding.tokenizer import load_tokenizer
from textmill.pipelines.input_options import assumed_bytes, parse_size
from textmill.pipelines.readers.sources import Block, Source, plan_blocks
from textmill.pipelines.readers.stored import Part
from textmill.pipelines.runners import plan as plans
from textmill.pipelines.runners import sample as samples
from textmill.pipelines.runners.console import duration, facts_table
from textmill.pipelines.runners.shuffle import count_elements
from textmill.pipelines.shards.estimate import Estimate, estimate
from textmill.pipelines.shards.plan import BuildPlan
from textmill.pipelines.shards.prepare import BuildRun
from textmill.pipelines.shards.summary import plan_facts
from textmill.schemas.errors import DataError, UsageError, as_flags
from textmill.schemas.files.finished import read_dataset

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
    cpu_seconds={"reading": 5.0, "tokens and rows": 15.0},
    passed=20.0,
)


def plan(tmp_path, *beam_arguments, estimate=ESTIMATE, schema=None, shuffle_by="files"):
    part = Part("text.jsonl", 100_000_000, 0, 100_000_000)
    options: Any = SimpleNamespace(output=str(tmp_path / "set"), overwrite=False)
    tokenizer: Any = SimpleNamespace(load_backend=lambda size: "gigatoken")
    run = BuildRun(
        "build_shards",
        Source(("text.jsonl",)),
        [Block(0, (part,))],
        list(beam_arguments),
        "in this process",
        shuffle_by,
        options=options,
        schema=schema or mlm_schema(),
        tokenizer=tokenizer,
    )
    return BuildPlan(run, estimate)


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
        "about 3 not utf8",
        "about 1,230 min chars",
        "at least 21",
        "about 28,800,000 + 535,000 special",
        "train about 1,840,000, validation about 4,590; 16 tokens each, packing efficiency 99.8%",
        "about 152.4 MB of shards and 60.1 MB of scratch",
        "about 21 s, in this process",
        "no dataset: the run builds it",
        mlm_schema().fingerprint,
    ):
        assert words in said, words
    # Numbers are exact if all text was read.
    said = text_of(plan(tmp_path, estimate=replace(ESTIMATE, whole=True)))
    assert "1 block; read whole" in said and "74,045" in said and "28,842,217" in said
    assert "about 74," not in said and "at least" not in said


def test_seconds_by_the_way_to_run(tmp_path, monkeypatch):
    # 1 s until a worker begins, once more for new interpreters, and 20 s of work.
    assert plan(tmp_path).needs().seconds() == 21
    threads = ["--direct_running_mode", "multi_threading", "--direct_num_workers", "2"]
    assert plan(tmp_path, *threads).needs().seconds() == 1 + 20 / 1.6
    processes = plan(tmp_path, "--direct_num_workers=10", PROCESSES).needs()
    assert processes.seconds() == 2 + 20 / 8
    monkeypatch.setattr(plans, "can_fork", lambda: True)
    assert processes.seconds() == 1 + 20 / 8
    busy = replace(ESTIMATE, passed=60.0)  # three seconds for a CPU second
    assert plan(tmp_path, estimate=busy).needs().seconds() == 61


def test_a_plan_for_a_cluster_has_nothing_of_this_machine_but_the_measurement(tmp_path):
    facts = plan_facts(plan(tmp_path, "--runner=FlinkRunner", shuffle_by="runner"))
    assert {"memory", "time"} & facts.keys() == set()
    assert facts["disk"] == f"about 152.4 MB of shards in {tmp_path / 'set'}"
    assert facts["work"] == "tokens and rows 75%, reading 25%"
    assert re.match(
        r"about 0\.0 CPU hours: .* workers of one core, without their start; measured on this "
        r"machine \(.*, \d+ cores?(, nearly idle|, at a load of [\d.]+)\)$",
        facts["on a cluster"],
    )
    assert "available" not in str(facts) and "free" not in str(facts)


def test_durations_are_rounded_to_two_digits():
    said = {0.2: "1 s", 89: "89 s", 90: "1.5 min", 1000: "17 min", 9000: "2.5 h"}
    assert {seconds: duration(seconds) for seconds in said} == said


def test_a_disk_or_a_memory_that_does_not_suffice_is_said(tmp_path, monkeypatch):
    assert list(plan(tmp_path).needs().warnings()) == []
    monkeypatch.setattr(plans.shutil, "disk_usage", lambda _: SimpleNamespace(free=200_000_000))
    [said] = list(plan(tmp_path).needs().warnings())
    assert "is too small: about 212.5 MB are needed and 200.0 MB are free" in said
    assert list(plan(tmp_path, shuffle_by="runner").needs().warnings()) == []
    monkeypatch.setattr(plans.psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    assert "memory may be too small" in list(plan(tmp_path).needs().warnings())[1]


def test_memory_grows_with_workers_and_shards(tmp_path, monkeypatch):
    one = plan(tmp_path).needs().memory_bytes()
    assert plan(tmp_path, "--direct_num_workers=2").needs().memory_bytes() > one
    assert plan(tmp_path, "--direct_num_workers=2", PROCESSES).needs().memory_bytes() > 2 * one
    # Forked workers share the launcher's memory, but for 200 MB each.
    threads = plan(tmp_path, "--direct_num_workers=2").needs().memory_bytes()
    monkeypatch.setattr(plans, "can_fork", lambda: True)
    forked = plan(tmp_path, "--direct_num_workers=2", PROCESSES).needs().memory_bytes()
    assert forked - threads == pytest.approx(400e6, abs=20e6)
    much = replace(ESTIMATE, text_bytes=1e9)
    one = plan(tmp_path, estimate=much).needs().memory_bytes()
    schema = mlm_schema(shards={"train": 50, "validation": 1})
    assert plan(tmp_path, schema=schema, estimate=much).needs().memory_bytes() < one


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


# Estimates against what a run counts


def estimated(*flags: str) -> Estimate:
    options, _ = BUILDER.parse([*flags, "--output=unused"])
    return estimate(BuildRun.of(options, load_tokenizer(options.tokenizer), options.blocks(), []))


def few_characters(document):
    """A filter of the user's."""
    return "short" if len(document["text"]) < 20 else None


def every_one(document):
    """Another, which drops all."""
    return "all"


@pytest.fixture
def small_sample(monkeypatch):
    """Inputs above 100 kB are sampled at 24 places of 8 kB."""
    monkeypatch.setattr(samples, "_WHOLE_BYTES", 100_000)
    monkeypatch.setattr(samples, "_PLACE_BYTES", 8 << 10)


@pytest.fixture(scope="module")
def lines(topics):
    """2 MB of JSON Lines: paragraphs in groups of 1 to 9, in a fixed shuffle."""
    rng = random.Random(0)
    documents = ["\n\n".join(rng.choices(topics, k=rng.randint(1, 9))) for _ in range(2500)]
    return "".join(json.dumps({"text": document}) + "\n" for document in documents).encode()


@pytest.mark.parametrize("more", [(), ("--task=clm", "--packing=concat"), ("--packing=none",)])
def test_what_is_read_whole_is_exact(corpus, tokenizer_path, tmp_path, more):
    flags = (f"--input={corpus}", f"--tokenizer={tokenizer_path}", "--num_shards=1", *more)
    flags += ("--splits=train:1", f"--filter={__name__}:few_characters")
    found = estimated(*flags)
    main([*flags, f"--output={tmp_path / 'set'}"])
    info = read_dataset(str(tmp_path / "set"))
    total = info.stats.total()
    assert found.whole
    assert found.documents == info.stats.documents_read
    assert found.dropped == info.stats.all_dropped()
    assert (found.tokens, found.specials) == (total.tokens, total.specials_added)
    assert total.dropped["duplicates"] and found.rows == {"train": total.rows}
    assert found.tokens_in_rows == total.tokens_in_rows
    assert found.text_bytes == info.stats.source_bytes
    assert found.shard_bytes == sum(f.bytes for f in info.manifest.files if f.split)


PACK = {
    "jsonl": bytes,
    "jsonl.gz": gzip.compress,
    "jsonl.bz2": bz2.compress,
    "jsonl.zst": zstandard.compress,
}


@pytest.mark.parametrize("form", PACK)
def test_a_sample_is_right_within_some_per_cent(
    lines, tokenizer_path, tmp_path, small_sample, form
):
    path = tmp_path / f"text.{form}"
    path.write_bytes(PACK[form](lines))
    flags = (f"--input={path}", f"--tokenizer={tokenizer_path}", "--num_shards=1")
    sampled = estimated(*flags)
    assert not sampled.whole
    samples._WHOLE_BYTES = 1 << 30  # put back by the fixture
    exact = estimated(*flags)
    for name in ("text_bytes", "documents", "tokens", "tokens_in_rows", "scratch_bytes"):
        assert getattr(sampled, name) == pytest.approx(getattr(exact, name), rel=0.08), name
    assert sum(sampled.rows.values()) == pytest.approx(sum(exact.rows.values()), rel=0.08)


def test_many_small_files_and_one_of_rows(lines, tokenizer_path, tmp_path, small_sample):
    documents = [json.loads(line)["text"] for line in lines.splitlines()]
    for number, document in enumerate(documents[:600]):
        (tmp_path / f"{number}.txt").write_text(document)
    flags = (f"--input={tmp_path}/*.txt", f"--tokenizer={tokenizer_path}", "--document=file")
    found = estimated(*flags, "--num_shards=1")
    assert not found.whole
    assert found.documents == pytest.approx(600, rel=0.15)


def test_given_splits_are_estimated_apart(lines, tokenizer_path, tmp_path):
    (tmp_path / "train.jsonl").write_bytes(lines[: lines.index(b"\n", 200_000) + 1])
    (tmp_path / "test.jsonl").write_bytes(lines[: lines.index(b"\n", 50_000) + 1])
    flags = [f"--{split}_input={tmp_path}/{split}.jsonl" for split in ("train", "test")]
    flags += [f"--tokenizer={tokenizer_path}", "--num_shards=1"]
    found = estimated(*flags)
    assert set(found.rows) == {"train", "test"}
    assert found.rows["test"] == pytest.approx(found.rows["train"] / 4, rel=0.1)
    (tmp_path / "test.jsonl").write_text('{"text": ""}\n')
    found = estimated(*flags)
    assert found.rows["train"] and not found.rows["test"], "a run accepts an empty split"


def test_a_sample_of_which_nothing_is_kept_is_an_error(corpus, tokenizer_path):
    said = "no document of the sample would be kept: .* run without --dry_run"
    flags = [f"--input={corpus}", f"--tokenizer={tokenizer_path}"]
    with pytest.raises(DataError, match=said):
        estimated(*flags, f"--filter={__name__}:every_one")


def test_a_small_file_that_holds_much_text_is_sampled(tmp_path, monkeypatch):
    monkeypatch.setattr(samples, "_PLACE_BYTES", 10_000)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["word " * 1000] * 20_000}), path, row_group_size=5000)
    assert path.stat().st_size < 100_000  # of 100 MB of text
    source = Source((str(path),))
    sample = samples.take_sample(source, plan_blocks(source))
    assert 10_000 <= sample.taken < 30_000_000


def test_small_tables_in_one_block_are_matched_with_their_bytes(tmp_path, lines, tokenizer_path):
    texts = [json.loads(line)["text"] for line in lines.splitlines()]
    for number in range(2):
        half = pa.table({"text": texts[number::2]})
        pq.write_table(half, tmp_path / f"{number}.parquet")
    found = estimated(f"--input={tmp_path}/*.parquet", f"--tokenizer={tokenizer_path}")
    assert found.text_bytes == pytest.approx(sum(map(len, map(str.encode, texts))), rel=0.1)
    assert found.documents == pytest.approx(len(texts), rel=0.1)


def test_a_sample_stands_for_the_bytes_that_are_assumed(tmp_path, lines, tokenizer_path, capsys):
    path = tmp_path / "text.jsonl"
    path.write_bytes(lines)
    flags = [f"--input={path}", f"--tokenizer={tokenizer_path}", f"--output={tmp_path / 'set'}"]
    options, _ = BUILDER.parse([*flags, "--dry_run", "--assume_bytes=2TB"])
    times, tokenizer = 2e12 / len(lines), load_tokenizer(tokenizer_path)
    small = BuildRun.of(options, tokenizer, options.blocks(), [])
    large = BuildRun.of(
        options, tokenizer, options.blocks(), ["--runner=DataflowRunner"], times=times
    )
    assert large.schema.shards["train"] == 65_536
    one, many = estimate(small), estimate(large)
    assert one.whole and not many.whole
    for name in ("text_bytes", "documents", "tokens", "scratch_bytes", "shard_bytes"):
        due = times * getattr(one, name)
        assert getattr(many, name) == pytest.approx(due, rel=0.01), name
    facts = plan_facts(BuildPlan(large, many))
    assert facts["inputs"].startswith(
        f"1 file, {decimal(len(lines))}, 1 block; a sample of 2.0 TB;"
    )
    assert facts["shards"] == "train 65,536, validation 1,337"
    assert re.match(r"about [\d.]+ CPU hours: .* on 16, .* on 1,024 workers", facts["on a cluster"])
    # 65,536 shards get documents of what a worker sends at once: an element each.
    extra = count_elements(
        many.scratch_bytes, many.documents, 119_210, sum(large.schema.shards.values())
    )
    assert facts["shuffles"] == f"1, about {decimal(int(many.scratch_bytes + 500 * extra))}"
    main([*flags, "--dry_run", "--assume_bytes=2TB"])
    said = capsys.readouterr().out
    assert "a sample of 2.0 TB" in said
    assert f"warning: the disk of {tmp_path / 'set'} is too small: about " in said


@pytest.mark.parametrize(
    ("size", "words"), [("2TX", "give a size such as"), ("0GB", "such as"), ("1e9", "such as")]
)
def test_assumed_bytes_are_sizes(size, words):
    with pytest.raises(UsageError, match=words):
        parse_size(size)
    assert (parse_size("1.5GB"), parse_size("77")) == (1_500_000_000, 77)
    assert assumed_bytes(77, dry_run=True) == 77 and assumed_bytes(None, dry_run=False) == 0
    with pytest.raises(UsageError, match="--assume_bytes=77: it is for plans: give dry_run too"):
        assumed_bytes(77, dry_run=False)


def test_a_shard_that_a_cluster_cannot_shuffle(tmp_path):
    """The one shard of validation has half of all rows; 6.3 GB are 32 shards of 200 MB."""
    cluster = ["--runner=PortableRunner", "--job_endpoint=localhost:1"]

    def warnings(scratch_bytes, *flags, shuffle_by="runner"):
        rows = {"train": 5.0, "validation": 5.0}
        large = replace(ESTIMATE, rows=rows, scratch_bytes=scratch_bytes)
        planned = plan(tmp_path, *flags, estimate=large, shuffle_by=shuffle_by)
        return [as_flags(line) for line in planned.warnings() if "shard" in line]

    assert warnings(4.2e9, *cluster) == [
        "the largest shard takes 2.1 GB in the shuffle, more than the limit of 2.0 GB: use "
        "--num_shards=32"
    ]
    assert warnings(3.8e9, *cluster) == warnings(4.2e9, shuffle_by="files") == []
