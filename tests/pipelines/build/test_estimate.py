"""Estimates against what a run really counts."""

import bz2
import gzip
import json
import random
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from rich.filesize import decimal

from pipelines.build import plan as module
from pipelines.build.options import parse_options
from pipelines.build.plan import Estimate, Run, estimate
from pipelines.build_shards import main
from pipelines.encoding.tokenizer import load_tokenizer
from pipelines.input_options import assumed_bytes
from pipelines.readers.sources import Source, plan_blocks
from pipelines.runners.shuffle import count_elements
from schemas.errors import DataError, UsageError
from schemas.metadata import read_set


def estimated(*flags: str) -> Estimate:
    options, _ = parse_options([*flags, "--output=unused"])
    return estimate(Run.of(options, load_tokenizer(options.tokenizer), options.blocks(), []))


def few_characters(document):
    """A filter of the user's."""
    return "short" if len(document["text"]) < 20 else None


def every_one(document):
    """Another, which drops all."""
    return "all"


@pytest.fixture
def small_sample(monkeypatch):
    """Inputs above 100 kB are sampled at 24 places of 8 kB."""
    monkeypatch.setattr(module, "_WHOLE_BYTES", 100_000)
    monkeypatch.setattr(module, "_PLACE_BYTES", 8 << 10)


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
    info = read_set(str(tmp_path / "set"))
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
    module._WHOLE_BYTES = 1 << 30  # put back by the fixture
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
    monkeypatch.setattr(module, "_PLACE_BYTES", 10_000)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["word " * 1000] * 20_000}), path, row_group_size=5000)
    assert path.stat().st_size < 100_000  # of 100 MB of text
    source = Source((str(path),))
    sample = module._sample(source, plan_blocks(source))
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
    options, _ = parse_options([*flags, "--dry_run", "--assume_bytes=2TB"])
    times, tokenizer = 2e12 / len(lines), load_tokenizer(tokenizer_path)
    small = Run.of(options, tokenizer, options.blocks(), [])
    large = Run.of(options, tokenizer, options.blocks(), ["--runner=DataflowRunner"], times=times)
    assert large.schema.shards["train"] == 65_536
    one, many = estimate(small), estimate(large)
    assert one.whole and not many.whole
    for name in ("text_bytes", "documents", "tokens", "scratch_bytes", "shard_bytes"):
        due = times * getattr(one, name)
        assert getattr(many, name) == pytest.approx(due, rel=0.01), name
    facts = module.plan_facts(module.Plan(large, many))
    assert facts["inputs"].startswith(
        f"1 file, {decimal(len(lines))}, 1 block; a sample of 2.0 TB;"
    )
    assert facts["shards"] == "train 65,536, validation 1,337"
    assert re.match(r"about [\d.]+ CPU hours: .* on 16, .* on 1,024 workers", facts["on a cluster"])
    # 65,536 shards get documents of what a worker sends at once: an element each.
    extra = count_elements(
        many.scratch_bytes, many.documents, 119_210, sum(large.schema.shards.values())
    )
    assert facts["shuffle"] == f"about {decimal(int(many.scratch_bytes + 500 * extra))}"
    main([*flags, "--dry_run", "--assume_bytes=2TB"])
    assert "a sample of 2.0 TB" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("size", "words"), [("2TX", "give a size such as"), ("0GB", "such as"), ("1e9", "such as")]
)
def test_assumed_bytes_are_sizes(size, words):
    with pytest.raises(UsageError, match=words):
        assumed_bytes(size, dry_run=True)
    assert assumed_bytes("1.5GB", dry_run=True) == 1_500_000_000
    assert assumed_bytes("77", dry_run=True) == 77 and assumed_bytes("", dry_run=False) == 0
    with pytest.raises(UsageError, match="give --dry_run too"):
        assumed_bytes("2TB", dry_run=False)
