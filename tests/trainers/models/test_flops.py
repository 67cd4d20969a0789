"""Operations of a step against PyTorch's count of those of transformers' models; devices' peaks."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
)

from tests.tools.class_factory import class_schema
from tests.tools.clm_factory import clm_schema
from tests.tools.shard_factory import mlm_schema
from textmill.trainers.flags.command_line import make_flags
from textmill.trainers.flax_clm import FlaxClmFlags
from textmill.trainers.flax_mlm import FlaxMlmFlags
from textmill.trainers.models.plan_model import peak_flops, plan_model, training_flops
from textmill.trainers.tasks.classification import ClassificationTask
from textmill.trainers.tf_classifier import TfClassifierFlags

SIZES = {"layers": 3, "hidden_size": 24, "heads": 4, "intermediate_size": 40}
LENGTH, ROWS = 32, 2


def counted_by_torch(config, schema, kind):
    """Operations of a step's matrix products in transformers' model, for each token."""
    content = config.to_json(schema.special_ids, ())
    theirs = AutoConfig.for_model(**content)
    model = kind.from_config(theirs, attn_implementation="eager")
    ids = torch.randint(5, config.vocab_size, (ROWS, LENGTH))
    with FlopCounterMode(display=False) as counter:
        model(input_ids=ids).logits.sum().backward()
    return counter.get_total_flops() / (ROWS * LENGTH)


DECODERS = ("gpt2", "opt", "llama", "qwen2", "qwen3", "mistral", "olmo2")


@pytest.mark.parametrize("family", [*DECODERS, "bert", "roberta", "electra", "modernbert"])
def test_a_model_needs_what_torch_counts(family):
    schema, flags, kind = mlm_schema(max_length=LENGTH), FlaxMlmFlags, AutoModelForMaskedLM
    if family in DECODERS:
        schema, flags, kind = clm_schema(max_length=LENGTH), FlaxClmFlags, AutoModelForCausalLM
    sizes = {**SIZES, "kv_heads": 2} if family in DECODERS[2:] else SIZES
    config = plan_model(make_flags(flags, shards="s", family=family, **sizes), schema).config
    due = counted_by_torch(config, schema, kind)
    assert training_flops(config, LENGTH) == pytest.approx(due, rel=1e-9)


def test_heads_of_some_positions():
    """The masked ones, or the first alone."""
    schema = mlm_schema(max_length=LENGTH)
    flags = make_flags(FlaxMlmFlags, shards="s", **SIZES)
    config = plan_model(flags, schema).config
    head = 24 * 24 + 24 * schema.vocab_size
    saved = training_flops(config, LENGTH) - training_flops(config, LENGTH, 0.25)
    assert saved == pytest.approx(6 * head * 0.75)

    schema = class_schema(max_length=LENGTH)
    flags = make_flags(TfClassifierFlags, shards="s", family="bert", **SIZES)
    config, task = plan_model(flags, schema).config, ClassificationTask(flags, schema)
    due = counted_by_torch(config, schema, AutoModelForSequenceClassification)
    assert training_flops(config, LENGTH, task.head_share) == pytest.approx(due, rel=1e-9)


def test_a_window_bounds_attention():
    schema = clm_schema(max_length=LENGTH)
    flags = make_flags(FlaxClmFlags, shards="s", family="mistral", **SIZES)
    config = plan_model(flags, schema).config
    assert config.window > LENGTH
    long = training_flops(config, 2 * config.window) - training_flops(config, config.window)
    assert long == 0
    assert training_flops(config, 16) - training_flops(config, 15) == 12 * 24 * 3


@pytest.mark.parametrize(
    "kind, peak",
    [
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA H100 NVL", 835e12),
        ("NVIDIA H200", 989e12),
        ("NVIDIA H200 NVL", 835e12),
        ("NVIDIA L4", 121e12),
        ("NVIDIA L40S", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("TPU v5 lite", 197e12),
        ("TPU v5", 459e12),
        ("cpu", None),
    ],
)
def test_peaks_of_devices(kind, peak):
    assert peak_flops(kind) == peak
