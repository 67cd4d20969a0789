"""Estimates against what a run really counts."""

import bz2
import gzip
import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from pipelines.build import plan as module
from pipelines.build.options import parse_options
from pipelines.build.plan import Estimate, Run, estimate
from pipelines.build_shards import main
from pipelines.encoding.tokenizer import load_tokenizer
from pipelines.readers.sources import Source, plan_blocks
from schemas.errors import DataError
from schemas.metadata import read_set
from tests.tools.places import DATA

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="../shared/data is not there")


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


def packed(data, form):
    return {
        "jsonl": lambda: data,
        "jsonl.gz": lambda: gzip.compress(data),
        "jsonl.bz2": lambda: bz2.compress(data),
        "jsonl.zst": lambda: zstandard.compress(data),
    }[form]()


@pytest.mark.parametrize("form", ["jsonl", "jsonl.gz", "jsonl.bz2", "jsonl.zst"])
def test_a_sample_is_right_within_some_per_cent(
    lines, tokenizer_path, tmp_path, small_sample, form
):
    path = tmp_path / f"text.{form}"
    path.write_bytes(packed(lines, form))
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
    found = estimated(
        f"--train_input={tmp_path}/train.jsonl",
        f"--test_input={tmp_path}/test.jsonl",
        f"--tokenizer={tokenizer_path}",
        "--num_shards=1",
    )
    assert set(found.rows) == {"train", "test"}
    assert found.rows["test"] == pytest.approx(found.rows["train"] / 4, rel=0.1)


def test_nothing_is_kept(corpus, tokenizer_path):
    with pytest.raises(
        DataError, match="no document of the sample would be kept: .* run without --dry_run"
    ):
        estimated(
            f"--input={corpus}", f"--tokenizer={tokenizer_path}", f"--filter={__name__}:every_one"
        )


@needs_data
def test_real_data_within_three_per_cent(tmp_path):
    """NoReC, against the counts of a whole run: 12,000 documents, 76,621 rows in 50.4 MB."""
    path = tmp_path / "norec.jsonl"
    with open(DATA / "norec" / "train.jsonl.zst", "rb") as packed, open(path, "wb") as plain:
        zstandard.ZstdDecompressor().copy_stream(packed, plain)
    found = estimated(f"--input={path}", f"--tokenizer={DATA / 'tokenizers' / 'roberta-base'}")
    assert not found.whole
    assert found.documents == pytest.approx(12_000, rel=0.03)
    assert found.tokens == pytest.approx(9_630_270, rel=0.01)
    assert sum(found.rows.values()) == pytest.approx(76_621, rel=0.01)
    assert found.shard_bytes == pytest.approx(50_397_184, rel=0.03)


def test_a_small_file_that_holds_much_text_is_sampled(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_PLACE_BYTES", 10_000)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["word " * 1000] * 20_000}), path, row_group_size=5000)
    assert path.stat().st_size < 100_000  # of 100 MB of text
    source = Source((str(path),))
    sample = module._sample(source, plan_blocks(source))
    assert 10_000 <= sample.taken < 30_000_000
