"""The trainer as a command, on plain PyTorch: runs, resuming to the bit, interruption, refusals."""

import ast
import itertools
import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from class_factory import write_class_set
from poptorch_stub import installed
from shard_factory import write_mlm_set

from schemas.errors import DataError, TextmillError, UsageError
from trainers.models.encoder import EncoderConfig
from trainers.models.hf_files import read_directory
from trainers.on_poptorch.checkpoints import Checkpoints
from trainers.on_poptorch.model import Classifier
from trainers.on_poptorch.plain import PlainRunner
from trainers.on_poptorch.runner import tensors_of
from trainers.poptorch_classifier import main
from trainers.reader import ShardSet
from trainers.run.journal import read_metrics

ROOT = Path(__file__).parent.parent
SMALL = [
    "--layers=1",
    "--hidden_size=16",
    "--heads=2",
    "--intermediate_size=24",
    "--embedding_size=8",
    "--batch_size=8",
    "--learning_rate=0.01",
    "--device=cpu",
]


@pytest.fixture(autouse=True)
def one_thread():
    """Models are too small for more, which other tests need."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """64 training rows and 24 of validation, two classes."""
    directory = tmp_path_factory.mktemp("classes") / "set"
    write_class_set(directory)
    return directory


def train(shards, output, *more):
    main([f"--shards={shards}", f"--output={output}", *SMALL, *more])


def lines_of(output):
    return read_metrics(str(output / "metrics.jsonl"))


def state_of(output, step):
    return Checkpoints(output, 9).restore(step)


def assert_same(a, b):
    """Two checkpoints, to the bit."""
    assert a["progress"] == b["progress"] and a["schedule"] == b["schedule"]
    for name, value in a["model"].items():
        assert torch.equal(b["model"][name], value), name
    for index, moments in a["optimizer"]["state"].items():
        for name, value in moments.items():
            assert torch.equal(b["optimizer"]["state"][index][name], value), (index, name)


@pytest.fixture(scope="module")
def whole(shards, tmp_path_factory):
    """An unbroken run of 12 steps, with dropout."""
    torch.set_num_threads(1)
    output = tmp_path_factory.mktemp("whole") / "run"
    more = ["--steps=12", "--evaluate_every=4", "--checkpoint_every=3", f"--export={output}-out"]
    train(shards, output, *more, "--accumulation=2")
    return output


def test_a_run_leaves_all_that_it_promises(whole):
    found = {path.name for path in whole.iterdir()}
    assert found >= {
        "config.json",
        "config.yaml",
        "schema.json",
        "tokenizer.json",
        "metrics.jsonl",
        "loss.png",
        "best.pt",
        "checkpoints",
    }
    assert (whole / "loss.png").read_bytes()[:4] == b"\x89PNG"
    assert Checkpoints(whole, 9).steps == [9, 12]  # two are kept
    lines = lines_of(whole)
    steps = [line for line in lines if line["kind"] == "train"]
    assert [line["step"] for line in steps] == list(range(1, 13))
    # A warm-up of a tenth, one step, then linearly down: 12/12, 11/12, ... of 0.01.
    np.testing.assert_allclose(
        [line["learning_rate"] for line in steps], [0.01 * n / 12 for n in (12, *range(11, 0, -1))]
    )
    assert all(line["tokens_per_second"] > 0 and 0 <= line["waiting"] <= 1 for line in steps)
    evaluations = [line for line in lines if line["kind"] == "evaluation"]
    assert [line["step"] for line in evaluations] == [4, 8, 12]
    assert set(evaluations[0]) >= {"loss", "accuracy", "auc", "f1", "rows"}
    best = Checkpoints(whole, 9).best() or {}
    highest = max(evaluations, key=lambda line: line["accuracy"])
    assert best["step"] == highest["step"]
    assert best["measures"]["accuracy"] == highest["accuracy"]


def test_the_best_weights_are_exported(whole):
    config, tensors = read_directory(f"{whole}-out")
    assert config["architectures"] == ["ElectraForSequenceClassification"]
    best = Checkpoints(whole, 9).best() or {}
    weight = best["model"]["head.out.weight"].numpy()
    np.testing.assert_array_equal(tensors["classifier.out_proj.weight"], weight)


def test_texts_are_classified(shards, whole, tmp_path, capsys):
    """As the rows of the same words are, by the best weights; on the stand-in's IPUs too."""
    rows = next(ShardSet(str(shards)).in_order("validation", batch_size=24, prefetch=0))
    texts = [
        " ".join(f"w{number}" for number in row[segment > 0][1:-1])
        for row, segment in zip(rows["input_ids"], rows["segment_ids"], strict=True)
    ]
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(texts))
    main([f"--output={whole}", f"--predict={file}", "--device=cpu", "--batch_size=5"])
    said = capsys.readouterr()
    best = Checkpoints(whole, 9).best() or {}
    assert f"the weights after step {best['step']}, on PyTorch on cpu" in said.err
    model = Classifier(EncoderConfig(**json.loads((whole / "config.json").read_text())["model"]))
    model.load_state_dict(best["model"])
    logits = model.eval()(*tensors_of(rows, length=16)[:3]).detach()
    chances = torch.softmax(logits.double(), dim=1)
    found = [line.split("\t") for line in said.out.splitlines()]
    assert [label for label, _ in found] == [("neg", "pos")[n] for n in chances.argmax(1)]
    np.testing.assert_allclose(
        [float(chance) for _, chance in found], chances.max(1).values, atol=2e-6
    )
    with installed() as poptorch:
        more = ["--batch_size=6", "--precision=float32", f"--predictions={tmp_path / 'out.txt'}"]
        main([f"--output={whole}", f"--predict={file}", *more])
    assert not [call for call in poptorch.calls if call.startswith("training")]
    lines = [line.split("\t") for line in (tmp_path / "out.txt").read_text().splitlines()]
    assert [label for label, _ in lines] == [label for label, _ in found]


def test_a_resumed_run_has_the_same_bits(shards, whole, tmp_path):
    flags = ["--steps=12", "--evaluate_every=4", "--checkpoint_every=3", "--accumulation=2"]
    train(shards, tmp_path / "run", *flags, "--stop_after=6")
    train(shards, tmp_path / "run", *flags, "--resume")
    assert_same(state_of(whole, 12), state_of(tmp_path / "run", 12))
    timed = ("tokens_per_second", "waiting")
    for before, after in zip(
        [line for line in lines_of(whole) if line["kind"] == "train"],
        [line for line in lines_of(tmp_path / "run") if line["kind"] == "train"],
        strict=True,
    ):
        assert {k: v for k, v in before.items() if k not in timed} == {
            k: v for k, v in after.items() if k not in timed
        }


def test_another_number_of_steps_has_its_own_schedule_from_the_first_on(shards, tmp_path):
    """After 2 of 12 steps it goes on as a run of 4: a warm-up of one step, then 4/4, 3/4, 2/4."""
    train(shards, tmp_path / "run", "--steps=12", "--stop_after=2")
    train(shards, tmp_path / "run", "--steps=4", "--resume")
    rates = [line["learning_rate"] for line in lines_of(tmp_path / "run") if "epoch" in line]
    np.testing.assert_allclose(rates, [0.01, 0.01 * 11 / 12, 0.01 * 2 / 4, 0.01 * 1 / 4])


def test_a_run_killed_while_it_writes_a_checkpoint(shards, whole, tmp_path):
    """It goes on from the last whole one, and what was half written is gone."""
    flags = ["--steps=12", "--evaluate_every=4", "--checkpoint_every=3", "--accumulation=2"]
    arguments = [f"--shards={shards}", f"--output={tmp_path / 'run'}", *SMALL, *flags]
    code = f"""
import os, signal, torch
torch.set_num_threads(1)
real = os.replace
def replace(source, target):
    if "step-00000009" in str(target):
        os.truncate(source, 100)
        os.kill(os.getpid(), signal.SIGKILL)
    real(source, target)
os.replace = replace
from trainers.poptorch_classifier import main
main({arguments!r})
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    checkpoints = tmp_path / "run" / "checkpoints"
    assert "step-00000009.pt.partial" in os.listdir(checkpoints)
    main([*arguments, "--resume"])
    kept = ["step-00000009.pt", "step-00000012.pt"]
    assert sorted(os.listdir(checkpoints)) == sorted(kept + [f"{name}.sha256" for name in kept])
    assert_same(state_of(whole, 12), state_of(tmp_path / "run", 12))


@pytest.mark.parametrize("evaluation", [1, 3])
def test_ctrl_c_saves_and_says_how_to_go_on(
    shards, whole, tmp_path, monkeypatch, capsys, evaluation
):
    """The signal comes in the first evaluation or in the last; a resumed run makes up for it."""
    batches, real = itertools.count(1), PlainRunner.evaluate

    def evaluate(self, placed):
        if next(batches) == 3 * evaluation - 1:  # the second of the three of an evaluation
            signal.raise_signal(signal.SIGINT)
        return real(self, placed)

    monkeypatch.setattr(PlainRunner, "evaluate", evaluate)
    flags = ["--steps=12", "--evaluate_every=4", "--checkpoint_every=3", "--accumulation=2"]
    with pytest.raises(SystemExit) as stopped:
        train(shards, tmp_path / "run", *flags)
    assert stopped.value.code == 130
    said = capsys.readouterr().err
    assert f"the state after step {4 * evaluation} is in" in said
    monkeypatch.undo()
    [again] = [line for line in said.splitlines() if line.startswith("  python -m trainers.")]
    main(shlex.split(again)[3:])
    assert_same(state_of(whole, 12), state_of(tmp_path / "run", 12))
    evaluated = [line["step"] for line in lines_of(tmp_path / "run") if line["kind"] != "train"]
    assert evaluated == [4, 8, 12]


def test_a_loss_that_is_no_number_stops_the_run(shards, tmp_path):
    """With the step, its rows, and the batch; a learning rate of 1e30 sees to it."""
    with pytest.raises(DataError, match=r"step \d: the loss is .*on rows \d") as stopped:
        train(shards, tmp_path / "run", "--steps=8", "--learning_rate=1e30", "--clip_norm=0")
    [saved] = (tmp_path / "run").glob("stopped-at-step-*.npz")
    assert saved.name in str(stopped.value)
    with np.load(saved) as batch:
        assert batch["input_ids"].shape == (8, 16) and len(batch["row_index"]) == 8


def test_early_stopping(shards, tmp_path, capsys):
    """With a learning rate of next to nothing the second evaluation is no better than the first."""
    flags = ["--steps=12", "--evaluate_every=2", "--learning_rate=1e-12", "--patience=2"]
    train(shards, tmp_path / "run", *flags, f"--export={tmp_path / 'out'}")
    assert "no better accuracy in 2 evaluations: stopping after step 6" in capsys.readouterr().err
    assert (tmp_path / "out" / "model.safetensors").exists()
    train(shards, tmp_path / "run", *flags, "--resume")
    assert "nothing to do: step 6 of 12 is done" in capsys.readouterr().err


def test_pairs_and_published_weights(tmp_path):
    """A set of pairs, from an exported model of two classes to one of three."""
    write_class_set(tmp_path / "two")
    write_class_set(tmp_path / "pairs", classes=("a", "b", "c"), pairs=True)
    train(tmp_path / "two", tmp_path / "run", "--steps=2", f"--export={tmp_path / 'out'}")
    small = ["--batch_size=8", "--device=cpu", "--steps=2", f"--init_from={tmp_path / 'out'}"]
    main([f"--shards={tmp_path / 'pairs'}", f"--output={tmp_path / 'next'}", *small])
    weights = state_of(tmp_path / "next", 2)["model"]
    assert weights["head.out.weight"].shape == (3, 16)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--hidden_size=15"], "--hidden_size=15 is no multiple of --heads=2"),
        (["--architecture=bert"], "an embedding of 8 beside hidden states of 16 is ELECTRA's"),
        (["--optimizer=lion"], "has no torch.optim.Lion"),
        (["--precision=float16"], "float16 is for IPUs"),
        (["--device=cuda"], "PyTorch finds no GPU"),
        (["--patience=0"], "--patience=0: must be at least 1"),
        (["--init_from=here"], "--layers=1 is decided by the weights"),
        (["--accumulation=3"], "cannot be cut into --accumulation=3"),
        (["--predictions=file"], "--predictions=file needs --predict=FILE"),
        (["--predict=file"], "holds no run"),
    ],
)
def test_refusals(shards, tmp_path, more, said):
    if more == ["--device=cuda"] and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(UsageError, match=said):
        train(shards, tmp_path / "run", *more)
    assert not (tmp_path / "run").exists()


def test_a_set_of_another_task_is_refused(tmp_path):
    write_mlm_set(tmp_path / "set")
    with pytest.raises(UsageError, match=r"task 'mlm'; this trainer takes 'classification'"):
        train(tmp_path / "set", tmp_path / "run")


def test_a_broken_checkpoint_says_what_to_do(shards, tmp_path):
    train(shards, tmp_path / "run", "--steps=4", "--stop_after=2")
    path = tmp_path / "run" / "checkpoints" / "step-00000002.pt"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match="no checkpoint is whole: .*002.pt is not what was written"):
        train(shards, tmp_path / "run", "--steps=4", "--resume")
    path.with_name("step-00000002.pt.sha256").unlink()  # as of an older version
    with pytest.raises(DataError, match="cannot be read .* and give another --output"):
        train(shards, tmp_path / "run", "--steps=4", "--resume")


def test_best_weights_of_later_than_the_checkpoint_are_forgotten(tmp_path):
    """They will be measured again; with them --predict would be ahead of the run."""
    checkpoints = Checkpoints(tmp_path, 9)
    checkpoints.save_best(6, {"loss": 1.0}, {})
    checkpoints.forget_best_after(6)
    assert (checkpoints.best() or {})["step"] == 6
    checkpoints.forget_best_after(4)
    assert checkpoints.best() is None and not list(tmp_path.iterdir())


def test_using_a_run_leaves_what_training_writes(whole, tmp_path):
    """A checkpoint that a run is just writing is not taken for one that was left."""
    shutil.copytree(whole, tmp_path / "run")
    partial = tmp_path / "run" / "checkpoints" / "step-00000015.pt.partial"
    partial.write_bytes(b"half")
    (tmp_path / "texts.txt").write_text("w7 w8\n")
    main([f"--output={tmp_path / 'run'}", f"--predict={tmp_path / 'texts.txt'}", "--device=cpu"])
    assert partial.exists()


USED = ("config.json", "schema.json", "tokenizer.json", "best.pt")
WRITTEN = ("config.yaml", "metrics.jsonl", "loss.png", "checkpoints/step-00000012.pt")


@pytest.mark.parametrize("name", [*USED, *WRITTEN])
def test_files_that_cannot_be_read_or_written_are_named(shards, whole, tmp_path, name):
    """Directories stand for those of another user, which root may read."""
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    (run / name).unlink()
    (run / name).mkdir()
    (tmp_path / "texts.txt").write_text("w7 w8\n")
    flags = ["--steps=14", "--accumulation=2", "--resume"]
    with pytest.raises(TextmillError, match=name):
        train(shards, run, *flags)
    if name in USED:
        with pytest.raises(TextmillError, match=name):
            main([f"--output={run}", f"--predict={tmp_path / 'texts.txt'}", "--device=cpu"])


def test_a_disk_that_is_full_while_metrics_are_written(shards, tmp_path):
    """Files may grow to 16 KiB: metrics.jsonl reaches that before a checkpoint is due."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16384, before[1]))
    try:
        with pytest.raises(DataError, match="run: .*File too large. Finished checkpoints are kept"):
            train(shards, tmp_path / "run", "--steps=200")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    done = len(lines_of(tmp_path / "run"))
    assert 20 < done < 200
    train(shards, tmp_path / "run", "--steps=200", "--stop_after=3", "--resume")


def test_refusals_cost_no_pytorch():
    code = "import sys, json, trainers.poptorch_classifier; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = {name.split(".")[0] for name in json.loads(done.stdout)}
    assert not loaded & {"torch", "poptorch", "transformers", "tensorflow", "jax", "apache_beam"}


@pytest.mark.parametrize(
    "path",
    [ROOT / "trainers/poptorch_classifier.py", *sorted((ROOT / "trainers/on_poptorch").glob("*"))],
    ids=lambda path: path.stem,
)
def test_python_3_8_can_read_it(path):
    if path.suffix == ".py":
        ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
