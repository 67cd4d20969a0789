"""From text in a bucket to training: tokenizer, shards, verify, inspect, trainer."""

from pathlib import Path

import pytest

from textmill.pipelines import build_shards, inspect_shards, train_tokenizer, verify
from textmill.schemas.files.cache import Cache
from textmill.schemas.files.finished import read_dataset
from textmill.trainers.flax_mlm import main as flax_mlm

SMALL = ["--layers=1", "--hidden_size=16", "--heads=2", "--intermediate_size=32", "--steps=2"]


def _build(text, place):
    bpe, shards = f"--output={place}/bpe", f"--output={place}/set"
    train_tokenizer.main([f"--input={text}", bpe, "--vocab_size=600"])
    build_shards.main(
        [f"--input={text}", f"--tokenizer={place}/bpe", shards, "--num_shards=3", "--max_length=64"]
    )


@pytest.mark.slow
def test_from_text_to_a_step(gs_store, corpus, tmp_path, capsys):
    """The rows are those of the same text on this disk."""
    text = b"".join(Path(corpus).read_bytes().splitlines(keepends=True)[:300])
    (tmp_path / "corpus.jsonl").write_bytes(text)
    gs_store.put("corpus.jsonl", text)
    _build(tmp_path / "corpus.jsonl", tmp_path)
    _build(gs_store.url("corpus.jsonl"), gs_store.url("made"))
    url, cache = gs_store.url("made/set"), str(tmp_path / "cache")
    capsys.readouterr()

    verify.main([url])
    assert capsys.readouterr().out.startswith("ok: 1 dataset")
    inspect_shards.main([url, "--stats", f"--cache_dir={cache}"])
    assert "rows of 64 tokens" in capsys.readouterr().out

    here, there = (
        {f.path: f.sha256 for f in read_dataset(place, Cache(cache)).manifest.files if f.split}
        for place in (str(tmp_path / "set"), url)
    )
    assert here == there

    flax_mlm([f"--shards={url}", f"--output={tmp_path}/run", f"--cache_dir={cache}", *SMALL])
    assert (tmp_path / "run" / "metrics.jsonl").exists()
