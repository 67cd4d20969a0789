"""The classifier equals PyTorch transformers' BERT, RoBERTa and ELECTRA for classification."""

import numpy as np
import pytest

from tests.tools.class_factory import class_rows, class_schema
from tests.tools.model_cases import CLASSES, DECAY, EPSILON, MODELS, RATE, differences, named
from tests.tools.torch_models import arrays_of, as_ours, compute, make_model, torch
from textmill.trainers.flags.command_line import make_flags
from textmill.trainers.metrics.attention import PADDING, verify_attention
from textmill.trainers.models.weights import to_published
from textmill.trainers.on_poptorch.classifier import (
    TEXT_INPUTS,
    Classifier,
    EncoderLayer,
    classifier_arrays,
)
from textmill.trainers.on_poptorch.module_program import torch_optimizer
from textmill.trainers.poptorch_classifier import PoptorchClassifierFlags

NAMES = [name for name, (_, head) in MODELS.items() if head == "SequenceClassification"]


def ours_of(model):
    """Our module with its weights, in evaluation mode."""
    config, weights = as_ours(model, "SequenceClassification")
    module = Classifier(config)
    module.load_state_dict(tensors_of(weights))
    return config, module.eval()


def tensors_of(arrays):
    return {name: torch.tensor(array) for name, array in arrays.items()}


def inputs_of(rows):
    return [torch.from_numpy(classifier_arrays(rows)[name]) for name in TEXT_INPUTS]


def rows_of(model):
    """Pairs of some length, with padding behind them, as far as a model has types and ids."""
    rows = class_rows(class_schema(classes=CLASSES, pairs=True, max_length=14), 6, seed=3)
    rows["input_ids"][rows["segment_ids"] == 0] = model.config.pad_token_id
    rows["token_type_ids"] = np.minimum(rows["token_type_ids"], model.config.type_vocab_size - 1)
    return rows


def arguments_of(rows):
    mask = (rows["segment_ids"] > 0).astype(np.int64)
    names = ("input_ids", "token_type_ids")
    return {"attention_mask": mask, **{name: rows[name] for name in names}}


@pytest.mark.parametrize("name", NAMES)
def test_logits_loss_gradients_and_a_step_are_theirs(name):
    """With attention in one operator and in several; `pytest -s` prints the differences."""
    model = make_model(name)
    config, module = ours_of(model)
    rows = rows_of(model)
    due = compute(model, arguments_of(rows), rows["label"])
    for layer in module.modules():
        if isinstance(layer, EncoderLayer):
            layer.fused_attention = True
    np.testing.assert_allclose(module(*inputs_of(rows)).detach(), due["logits"], rtol=0, atol=2e-6)
    for layer in module.modules():
        if isinstance(layer, EncoderLayer):
            layer.fused_attention = False
    logits = module(*inputs_of(rows)).detach()
    labels = torch.from_numpy(rows["label"].astype(np.int64))
    loss = torch.nn.functional.cross_entropy(module(*inputs_of(rows)), labels)
    loss.backward()
    gradients = {n: np.asarray(p.grad) for n, p in module.named_parameters()}
    rates = {"learning_rate": RATE, "weight_decay": DECAY, "epsilon": EPSILON}
    flags = make_flags(PoptorchClassifierFlags, shards="set", **rates)
    torch_optimizer(flags.optimization, module).step()
    trees = (to_published(tree, config) for tree in (gradients, arrays_of(module)))
    largest = differences(name, named(logits, loss.item(), *trees), due)
    assert all(value < 1e-6 for value in largest.values()), largest


def test_padding_changes_nothing():
    """A row's logits are those of its example alone, whatever stands in the padding."""
    theirs = make_model("electra narrow, classes")
    model, rows = ours_of(theirs)[1], rows_of(theirs)
    ids, segments, types = inputs_of(rows)
    whole = model(ids, segments, types).detach()
    report = verify_attention(lambda batch: model(*inputs_of(batch)), rows, causal=False)
    assert report.ok and report.largest()[PADDING].by == 0, report
    for row in range(len(ids)):
        length = int(segments[row].sum())
        alone = (part[row : row + 1, :length] for part in (ids, segments, types))
        np.testing.assert_allclose(model(*alone).detach()[0], whole[row], rtol=1e-5, atol=1e-6)
    zeros = torch.zeros((2, 16), dtype=torch.int32)
    assert torch.isfinite(model(zeros, zeros, zeros)).all(), "a row of padding"
