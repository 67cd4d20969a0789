"""From text in a bucket to training: tokenizer, shards, verify, inspect, trainer."""

from pathlib import Path

import pytest

from pipelines import build_shards, inspect_shards, train_tokenizer, verify
from schemas.metadata import read_set
from schemas.stores.set_files import Cache
from trainers.flax_mlm import main as flax_mlm
from trainers.reader import ShardSet

SMALL = ["--layers=1", "--hidden_size=16", "--heads=2", "--intermediate_size=32", "--steps=2"]


@pytest.fixture(scope="module")
def local(corpus, tmp_path_factory):
    """A tokenizer and a set on this disk, of the same text."""
    folder = tmp_path_factory.mktemp("local")
    _build(corpus, str(folder))
    return folder


def _build(text, place):
    bpe, shards = f"--output={place}/bpe", f"--output={place}/set"
    train_tokenizer.main([f"--input={text}", bpe, "--vocab_size=600"])
    build_shards.main(
        [f"--input={text}", f"--tokenizer={place}/bpe", shards, "--num_shards=3", "--max_length=64"]
    )


def test_from_text_to_a_step(store, local, corpus, tmp_path, capsys):
    store.put("corpus.jsonl", Path(corpus).read_bytes())
    _build(store.url("corpus.jsonl"), store.url("made"))
    url = store.url("made/set")
    capsys.readouterr()

    verify.main([url])
    assert capsys.readouterr().out.startswith("ok: 1 dataset")
    inspect_shards.main([url, "--stats", f"--cache_dir={tmp_path / 'cache'}"])
    assert "rows of 64 tokens" in capsys.readouterr().out

    hashes = [
        {
            file.path: file.sha256
            for file in read_set(place, Cache(str(tmp_path / "cache"))).manifest.files
            if file.split
        }
        for place in (url, str(local / "set"))
    ]
    assert hashes[0] == hashes[1]
    here, there = ShardSet(str(local / "set")), ShardSet(url, cache_dir=str(tmp_path / "cache"))
    for one, two in zip(
        here.in_order("train", batch_size=64), there.in_order("train", batch_size=64), strict=True
    ):
        assert (one["input_ids"] == two["input_ids"]).all()

    if store.scheme == "gs":  # of the other only the batches are another's
        output = tmp_path / "run"
        flax_mlm(
            [f"--shards={url}", f"--output={output}", f"--cache_dir={tmp_path / 'cache'}", *SMALL]
        )
        assert (output / "metrics.jsonl").exists()
