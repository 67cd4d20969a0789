"""Every command writes the bytes that it wrote before, and opens what it wrote then."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from tests.golden.outputs import KEPT, SUMS, TRAIN, sums_of, write_outputs
from textmill.pipelines import build_shards, verify
from textmill.trainers import evaluate, flax_clm
from textmill.trainers.data.shard_set import ShardSet

CHANGED = """The bytes of these files have changed. If this is on purpose, raise the version of the
format that changed, add a line to CHANGELOG.md and run `python -m tests.golden.outputs`."""


def test_all_outputs_have_the_same_bytes(tmp_path):
    write_outputs(tmp_path)
    now, before = (set(text.splitlines()) for text in (sums_of(tmp_path), SUMS.read_text()))
    assert sorted(line.split("  ")[1] for line in now ^ before) == [], CHANGED


@pytest.mark.parametrize("name", ["clm", "corpus"])
def test_verify_accepts_what_was_written(name, capsys):
    verify.main([str(KEPT / name)])
    assert "error" not in capsys.readouterr().out


def test_trainers_read_the_dataset():
    shards = ShardSet(str(KEPT / "clm"))
    [rows] = shards.sequential_batches("train", batch_size=shards.rows("train"))
    assert rows["input_ids"].shape == (shards.rows("train"), 32)
    tokenizer = Tokenizer.from_file(str(KEPT / "clm" / "tokenizer.json"))
    texts = [tokenizer.decode(row) for row in rows["input_ids"].tolist()]
    assert "y and grinds fast.The mill stands where the river bends. E" in texts
    assert np.array_equal(np.unique(rows["segment_ids"][:, 0]), [1])


def test_the_tokenizer_and_the_corpus_build_the_same_dataset(tmp_path):
    before = (KEPT / "clm" / "train-00000-of-00001.array_record").read_bytes()
    flags = ["--task=clm", f"--input={KEPT / 'corpus'}", f"--tokenizer={KEPT / 'bpe'}"]
    flags += ["--splits=train:0.8,validation:0.2", "--max_length=32", "--packing=concat"]
    build_shards.main([*flags, f"--output={tmp_path / 'clm'}"])
    assert (tmp_path / "clm" / "train-00000-of-00001.array_record").read_bytes() == before


def test_a_run_of_before_resumes_and_leads_to_the_same_weights(tmp_path):
    shutil.copytree(KEPT / "run", tmp_path / "run")
    weights = tmp_path / "weights"
    flags = [f"--shards={KEPT / 'clm'}", *TRAIN, "--resume", f"--export={weights}"]
    flax_clm.main([*flags, f"--output={tmp_path / 'run'}"])
    assert _evaluation(tmp_path / "run")["step"] == 8
    now, before = (load_file(d / "model.safetensors") for d in (weights, KEPT / "weights"))
    assert now.keys() == before.keys()
    for name in before:
        np.testing.assert_allclose(now[name], before[name], atol=1e-4, err_msg=name)
    names = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
    for name in names:
        assert (weights / name).read_bytes() == (KEPT / "weights" / name).read_bytes()


def test_the_checkpoint_of_before_has_its_loss(tmp_path, capsys):
    shutil.copytree(KEPT / "run", tmp_path / "run")  # an evaluation is written into its run
    evaluate.main([str(tmp_path / "run"), f"--shards={KEPT / 'clm'}"])
    loss = _evaluation(KEPT / "run")["loss"]
    assert f"loss {loss:.3f}" in capsys.readouterr().out


def _evaluation(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "evaluation"][-1]
