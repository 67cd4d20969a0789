"""The classifier on plain PyTorch: a run and its use, its program, optimizers and dropout.

tests/trainers/run, flags and use/test_uses.py test the code that all five trainers share.
"""

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.tools.class_factory import write_class_set
from tests.tools.poptorch_programs import make_program
from tests.tools.python_process import run_python
from tests.tools.snapshots import state_in, weights_in
from textmill.schemas.errors import DataError, UsageError
from textmill.trainers import evaluate, predict
from textmill.trainers.on_poptorch.classifier import TEXT_INPUTS, Classifier, classifier_arrays
from textmill.trainers.on_poptorch.module_program import choose_device, dropout_seed
from textmill.trainers.poptorch_classifier import main
from textmill.trainers.reader import ShardSet
from textmill.trainers.run.checkpoints import Checkpoints
from textmill.trainers.run.trained import find_trained

DIMENSIONS = {
    "layers": 1,
    "hidden_size": 16,
    "heads": 2,
    "intermediate_size": 24,
    "embedding_size": 8,
    "family": "electra",
    "batch_size": 8,
    "learning_rate": 0.01,
    "device": "cpu",
}
SMALL = [f"--{name}={value}" for name, value in DIMENSIONS.items()]


def train(shards, output, *more):
    main([f"--shards={shards}", f"--output={output}", *SMALL, *more])


def tensors(arrays):
    return {name: torch.tensor(array) for name, array in arrays.items()}


def assert_same(a, b):
    """Two arrays of names, to the bit."""
    assert a.keys() == b.keys()
    for name, value in a.items():
        np.testing.assert_array_equal(b[name], value, err_msg=name)


def test_texts_are_classified(shards, tmp_path, capsys, monkeypatch):
    """As the rows of the same words are, by the best weights."""
    whole = tmp_path / "run"
    train(shards, whole, "--steps=12", "--evaluate_every=4", "--checkpoint_every=3")
    capsys.readouterr()
    rows = next(ShardSet(str(shards)).sequential_batches("validation", batch_size=24, prefetch=0))
    texts = [
        " ".join(f"w{number}" for number in row[segment > 0][1:-1])
        for row, segment in zip(rows["input_ids"], rows["segment_ids"], strict=True)
    ]
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(texts))
    predict.main([str(whole), f"--input={file}", "--device=cpu", "--batch_size=5"])
    said = capsys.readouterr()
    trained = find_trained(str(whole), "best")
    [(best, read)] = trained.weights
    assert f"the weights after step {best}" in said.err
    model = Classifier(trained.config)
    model.load_state_dict(tensors(read()))
    inputs = tensors(classifier_arrays(rows))
    logits = model.eval()(*(inputs[name] for name in TEXT_INPUTS)).detach()
    chances = torch.softmax(logits.double(), dim=1)
    found = [line.split("\t") for line in said.out.splitlines()]
    assert [label for label, _ in found] == [("neg", "pos")[n] for n in chances.argmax(1)]
    np.testing.assert_allclose(
        [float(chance) for _, chance in found], chances.max(1).values, atol=2e-6
    )
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="WORLD_SIZE=2: a trained model is used in one process"):
        evaluate.main([str(whole)])


def test_pairs_and_published_weights(tmp_path):
    """A set of pairs, from an exported model of two classes to one of three."""
    write_class_set(tmp_path / "two")
    write_class_set(tmp_path / "pairs", classes=("a", "b", "c"), pairs=True)
    train(tmp_path / "two", tmp_path / "run", "--steps=2", f"--export={tmp_path / 'out'}")
    small = ["--batch_size=8", "--device=cpu", "--steps=2", f"--init_from={tmp_path / 'out'}"]
    main([f"--shards={tmp_path / 'pairs'}", f"--output={tmp_path / 'next'}", *small])
    weights = Checkpoints(tmp_path / "next").read(2).weights
    assert weights["head.out.weight"].shape == (3, 16)


def test_what_pytorch_cannot_do_here_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match="float16 works on IPUs only, and this run is on cpu"):
        choose_device("auto", "float16")
    with pytest.raises(UsageError, match="PyTorch finds no GPU"):
        choose_device("cuda", "auto")


@pytest.mark.parametrize("accumulation", [1, 2, 4])
def test_class_weights(shards, accumulation):
    """The mean over the whole batch, whatever the microbatches: sum(w * l) / sum(w)."""
    settings = {**DIMENSIONS, "dropout": 0.0, "clip_norm": 0.0, "optimizer": "sgd_momentum"}
    program = make_program(
        shards,
        **settings,
        class_weights="1,2.5",
        gradient_accumulation_steps=accumulation,
        weight_decay=0.0,
    )
    assert program.evaluation_rows == 8 // accumulation
    before = weights_in(program)
    rows = next(ShardSet(str(shards)).batches("train", batch_size=8, seed=0, prefetch=0))
    inputs = tensors(classifier_arrays(rows))
    module = program.module
    logits, label = module(*(inputs[name] for name in TEXT_INPUTS)), inputs["label"].long()
    loss = functional.cross_entropy(logits, label, weight=torch.tensor([1.0, 2.5]))
    wanted = torch.autograd.grad(loss, list(module.parameters()))
    norm = torch.linalg.vector_norm(torch.cat([part.flatten() for part in wanted]))
    [found] = program.train(program.put(rows), 0)()
    assert found["loss"] == pytest.approx(loss.item(), rel=1e-6)
    assert found["counted"] == np.array([1.0, 2.5])[rows["label"]].sum()
    assert found["gradient_norm"] == pytest.approx(norm.item(), rel=1e-5)
    for (name, parameter), gradient in zip(module.named_parameters(), wanted, strict=True):
        moved = torch.from_numpy(before[name]) - parameter.detach()
        torch.testing.assert_close(moved / found["learning_rate"], gradient, rtol=1e-4, atol=1e-5)


def test_a_batch_of_classes_without_weight(shards):
    """The step changes no weight, and nothing is divided by 0."""
    program = make_program(shards, **DIMENSIONS, class_weights="0,1", weight_decay=0.0)
    before = weights_in(program)
    rows = next(ShardSet(str(shards)).batches("train", batch_size=8, seed=0, prefetch=0))
    rows["label"] = np.zeros_like(rows["label"])
    [found] = program.train(program.put(rows), 0)()
    assert (found["loss"], found["counted"], found["gradient_norm"]) == (0, 0, 0)
    assert_same(before, weights_in(program))


def test_logits_are_float32_where_all_else_is_bfloat16(shards):
    """Sums of the last layer are not rounded to the 8 bits of bfloat16."""
    program = make_program(shards, **DIMENSIONS, precision="bfloat16")
    assert program.description == "PyTorch on cpu, bfloat16"
    head, seen = program.module.head, []
    head.out.register_forward_hook(lambda _, inputs, output: seen.append((inputs[0], output)))
    head.dense.register_forward_hook(lambda _, inputs, output: seen.append(output.dtype))
    rows = next(ShardSet(str(shards)).sequential_batches("validation", batch_size=8, prefetch=0))
    logits = program.evaluate(program.put(rows))()["logits"]
    dense_dtype, (given, given_back) = seen
    assert dense_dtype == torch.bfloat16
    assert logits.dtype == np.float32 and given_back.dtype == given.dtype == torch.float32
    exact = given.double() @ head.out.weight.double().T + head.out.bias.double()
    np.testing.assert_allclose(logits, exact.detach(), rtol=1e-5, atol=1e-7)
    assert (torch.tensor(logits).bfloat16().float().numpy() != logits).any()
    assert all(weight.dtype == torch.float32 for weight in program.module.parameters())


def test_dropout_has_numbers_of_its_own_for_every_seed_and_step():
    """In the lower 32 bits alone, too, which are all that PyTorch takes on the CPU."""
    seeds = {dropout_seed(seed, step) for seed in range(100) for step in range(100)}
    assert len(seeds) == len({seed % 2**32 for seed in seeds}) == 10_000


def program_of(shards, **settings):
    return make_program(shards, **{**DIMENSIONS, "steps": 6, **settings})


def batches_of(shards):
    reader = ShardSet(str(shards))
    return list(reader.batches("train", batch_size=8, seed=0, stop_step=6, prefetch=0))


@pytest.mark.slow
def test_a_compiled_program_computes_the_same(shards):
    batch, found = batches_of(shards)[0], []
    for compiled in (False, True):
        program = program_of(shards, dropout=0.0, torch_compile=compiled)
        [first], [second] = (program.train(program.put(batch), step)() for step in (0, 1))
        logits = program.evaluate(program.put(batch))()["logits"]
        found.append([first["loss"], first["gradient_norm"], second["loss"], *logits.ravel()])
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)


def test_where_pytorch_cannot_compile(shards, monkeypatch):
    monkeypatch.setattr("torch._inductor.config.cpp.cxx", ("no-such-compiler",))
    with pytest.raises(UsageError, match="cannot compile: .*no-such-compiler.*: install a C.*out$"):
        program_of(shards, torch_compile=True)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd_momentum"])
def test_a_program_goes_on_to_the_bit(shards, optimizer):
    batches = batches_of(shards)
    whole = program_of(shards, optimizer=optimizer, dropout=0.5)
    found = []
    for step, batch in enumerate(batches):
        found += whole.train(whole.put(batch), step)()
        if step == 2:
            weights, state = weights_in(whole), state_in(whole)
    again = program_of(shards, optimizer=optimizer, dropout=0.5)
    again.load(weights, state)
    assert_same(state, state_in(again))
    losses = [again.train(again.put(batches[step]), step)()[0] for step in (3, 4, 5)]
    assert losses == found[3:]
    assert_same(weights_in(whole), weights_in(again))
    assert_same(state_in(whole), state_in(again))
    assert found[0].keys() == {"loss", "counted", "learning_rate", "gradient_norm"}
    other = "adamw" if optimizer == "sgd_momentum" else "sgd_momentum"
    with pytest.raises(DataError, match=f"does not fit --optimizer={other} and .* 0.exp_avg is"):
        program_of(shards, optimizer=other).load(weights, state)


def test_hyperparameters_are_the_flags_and_not_the_checkpoints(shards):
    """A run that resumes with other ones equals one that has them from there on."""
    first = program_of(shards, weight_decay=0.5, beta1=0.5, learning_rate=0.1)
    [batch, *_] = batches_of(shards)
    first.train(first.put(batch), 0)()
    again = program_of(shards, weight_decay=0.1)
    again.load(weights_in(first), state_in(first))
    [found] = again.train(again.put(batch), 1)()
    assert found["learning_rate"] == pytest.approx(0.01 * 5 / 6)
    [matrices, vectors] = again._optimizer.param_groups
    assert (matrices["weight_decay"], vectors["weight_decay"]) == (0.1, 0.0)
    assert matrices["betas"] == (0.9, 0.999)


@pytest.mark.slow
def test_a_process_with_pytorch_ends_without_a_word():
    """nanobind would print thirty lines of objects of triton that were not collected."""
    code = """
import torch
from textmill.schemas.commands.entry import run_entry

def main(argv):
    weight = torch.nn.Parameter(torch.zeros(2))
    weight.grad = torch.ones(2)
    torch.optim.AdamW([weight]).step()

run_entry(main)
"""
    done = run_python("-c", code, check=True)
    assert (done.stdout, done.stderr) == ("", "")
