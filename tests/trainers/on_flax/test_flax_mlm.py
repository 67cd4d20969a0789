"""Runs of flax_mlm: what they measure, Ctrl-C, and published weights in and out.

tests/trainers/run, flags and test_use_model.py test the code that all five trainers share.
"""

import json
import shlex
import signal
import warnings

import numpy as np
import pytest

from schemas.errors import UsageError
from tests.tools.run_processes import Group
from tests.tools.run_reading import read_metrics
from tests.tools.shard_factory import write_mlm_set
from trainers import use_model
from trainers.data.shard_set import ShardSet
from trainers.flax_mlm import main

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, at import
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer, BertConfig

pytestmark = pytest.mark.usefixtures("cache")
STEPS = "--steps=15"  # few values: each is another program
SMALL = ["--layers=1", "--hidden_size=16", "--heads=2", "--intermediate_size=32", "--batch_size=4"]


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """40 training rows and 10 of validation, with masks."""
    directory = tmp_path_factory.mktemp("shards") / "set"
    write_mlm_set(directory)
    return directory


def flags(shards, output, *more):
    return [f"--shards={shards}", f"--output={output}", *SMALL, *more]


def lines_of(output, kind):
    lines = read_metrics(str(output / "metrics.jsonl"))
    return [line for line in lines if line["kind"] == kind]


@pytest.mark.slow
def test_a_checkpoint_is_measured_alike_whatever_the_flags(tmp_path):
    """Masks of an evaluation come of the set: its largest seed, and its rate or BERT's."""
    write_mlm_set(tmp_path / "set", static_masking=False, mask_rate=0.0, seed=(1 << 64) - 1)
    output, found = tmp_path / "run", []
    main(flags(tmp_path / "set", output, STEPS, "--seed=5", "--mask_rate=0.4"))
    for more in ([], ["--seed=6"], ["--mask_rate=0.3"]):
        use_model.main([str(output), "--evaluate", "--batch_size=4", *more])
        [path] = output.glob("evaluation/*/15/metrics.json")
        found.append(json.loads(path.read_text()))
    [trained] = lines_of(output, "evaluation")
    for metrics in found:
        assert metrics["masked"] == trained["masked"]
        assert metrics["loss"] == pytest.approx(trained["loss"], rel=1e-6)
        assert metrics["accuracy"] == trained["accuracy"]


@pytest.mark.slow
def test_ctrl_c_saves_and_says_how_to_resume(shards, tmp_path):
    output = tmp_path / "run"
    more = flags(shards, output, "--steps=100000")
    with Group(tmp_path, 1, *more, entry="flax_mlm") as process:
        process.wait_for_step(output, 3)
        process.signal(0, signal.SIGINT)
        assert process.wait(60) == [130], process.texts
    [said] = process.texts
    assert "Traceback" not in said
    done = len(lines_of(output, "train"))
    assert f"interrupted: the checkpoint after step {done} is in" in said
    again = shlex.split(said.strip().splitlines()[-1])
    assert again[:3] == ["python", "-m", "trainers.flax_mlm"] and "--resume" in again
    main([*again[3:], f"--stop_after={done + 1}"])
    assert len(lines_of(output, "train")) == done + 1


def loss_by_torch(model, shards):
    """The sum over the masked tokens of validation, each segment alone."""
    total = 0.0
    for rows in ShardSet(str(shards)).in_order("validation", batch_size=1):
        segments = rows["segment_ids"][0].astype(int)
        used = rows["masked_weights"][0] > 0
        places = rows["masked_positions"][0][used].astype(int)
        labels = rows["masked_ids"][0][used].astype(int)
        for segment in range(1, segments.max() + 1):
            here = np.flatnonzero(segments == segment)
            ids = torch.from_numpy(rows["input_ids"][:, here].astype(int))
            inside = np.isin(places, here)
            with torch.no_grad():
                logits = model(ids).logits[0, places[inside] - here[0]]
            total += torch.nn.functional.cross_entropy(
                logits, torch.from_numpy(labels[inside]), reduction="sum"
            ).item()
    return total


def test_published_weights_are_trained_and_exported(shards, tmp_path, capsys):
    """BERT of 40 tokens into a set of 50, three steps, a resume, and out again."""
    sizes = BertConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=18,
        pad_token_id=1,
    )
    published = tmp_path / "published"
    AutoModelForMaskedLM.from_config(sizes).save_pretrained(published)
    run = [f"--shards={shards}", f"--output={tmp_path / 'run'}", "--steps=3"]
    run += [f"--init_from={published}", "--batch_size=4"]
    out = f"--export={tmp_path / 'out'}"
    main([*run, out, "--stop_after=2"])
    assert "note: the vocabulary grows from 40 tokens" in capsys.readouterr().err
    first = AutoModelForMaskedLM.from_pretrained(tmp_path / "out").state_dict()
    with pytest.raises(UsageError, match="--export=.*exists already"):
        main([*run, out, "--resume"])
    main([*run, f"--export={tmp_path / 'last'}", "--resume"])
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "last").eval()
    moved = model.state_dict()
    assert any(not torch.equal(first[name], moved[name]) for name in moved)
    logged = lines_of(tmp_path / "run", "evaluation")[-1]
    due = loss_by_torch(model, shards) / logged["masked"]
    assert logged["step"] == 3 and logged["loss"] == pytest.approx(due, rel=1e-5)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "last")
    assert tokenizer("w7 w9")["input_ids"] == [0, 7, 9, 2]
    assert tokenizer.model_max_length == 18
