"""Small models of every family and switch, by config.json; how a trainer compares with PyTorch's.

`tests.tools.torch_models` computes what is due. TensorFlow and PyTorch cannot be in one process,
since both have an LLVM: tests of TensorFlow import this module alone.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.tools.places import ROOT
from textmill.trainers.models.families import FAMILIES
from textmill.trainers.models.model_config import ModelConfig

Arrays = dict[str, np.ndarray]
Fields = dict[str, Any]
CLASSES = ("neg", "neutral", "pos")
VOCABULARY, POSITIONS = 50, 20
# The step of AdamW. Its epsilon keeps gradients near 0, whose sign rounding decides, from counting
# in full.
RATE, DECAY, EPSILON = 0.01, 0.1, 1e-3

SIZES: Fields = dict(
    vocab_size=VOCABULARY,
    max_position_embeddings=POSITIONS,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=24,
)
UNTIED: Fields = dict(tie_word_embeddings=False)

GPT2: Fields = dict(
    model_type="gpt2",
    vocab_size=VOCABULARY,
    n_positions=POSITIONS,
    n_embd=16,
    n_layer=2,
    n_head=4,
    bos_token_id=0,
    eos_token_id=2,
)
OPT: Fields = dict(
    model_type="opt",
    vocab_size=VOCABULARY,
    max_position_embeddings=POSITIONS,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    ffn_dim=24,
)
POST: Fields = dict(do_layer_norm_before=False)
NARROW: Fields = dict(word_embed_proj_dim=8)
LLAMA: Fields = dict(
    **SIZES, model_type="llama", num_key_value_heads=2, head_dim=6, pad_token_id=None
)
THREE_HEADS: Fields = dict(num_attention_heads=3, num_key_value_heads=1)
MISTRAL: Fields = {**LLAMA, "model_type": "mistral", "sliding_window": 7}
GEMMA2: Fields = dict(
    LLAMA,
    model_type="gemma2",
    sliding_window=7,
    query_pre_attn_scalar=13,
    attn_logit_softcapping=0.5,
)
GEMMA3: Fields = {**LLAMA, "model_type": "gemma3_text", "sliding_window": 7}
LOCAL, GLOBAL = "sliding_attention", "full_attention"
LLAMA3: Fields = dict(
    rope_type="llama3",
    rope_theta=5e5,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=10,
)
YARN: Fields = dict(
    rope_type="yarn",
    rope_theta=500.0,
    factor=4.0,
    original_max_position_embeddings=5,
    beta_fast=32.0,
    beta_slow=1.0,
    attention_factor=1.25,
)
DECODERS = {
    "gpt2": GPT2,
    "gpt2 untied, wide, relu": dict(
        GPT2, **UNTIED, n_inner=40, activation_function="relu", layer_norm_epsilon=1e-3
    ),
    "gpt2 by layer, gelu": dict(
        GPT2, activation_function="gelu", scale_attn_by_inverse_layer_idx=True
    ),
    "gpt2 unscaled, one layer": dict(GPT2, n_layer=1, n_head=1, scale_attn_weights=False),
    "opt": OPT,
    "opt untied": {**OPT, **UNTIED},
    "opt post, silu": {**OPT, **POST, "activation_function": "silu"},
    "opt-350m": {**OPT, **POST, **NARROW},
    "opt-350m, untied": {**OPT, **POST, **NARROW, **UNTIED},
    "opt narrow, pre": {**OPT, **NARROW},
    "opt no last norm": {**OPT, "_remove_final_layer_norm": True},
    "opt no last norm, narrow, untied": dict(
        OPT, **NARROW, **UNTIED, _remove_final_layer_norm=True
    ),
    "opt wider embedding": {**OPT, "word_embed_proj_dim": 24},
    "llama": LLAMA,
    "llama tied, one kv head": dict(
        LLAMA, tie_word_embeddings=True, num_key_value_heads=1, rms_norm_eps=1e-3
    ),
    "llama no head_dim, gelu": dict(
        LLAMA, head_dim=None, num_key_value_heads=None, hidden_act="gelu"
    ),
    "llama linear": dict(
        LLAMA, rope_parameters=dict(rope_type="linear", rope_theta=500.0, factor=3.0)
    ),
    "llama llama3": {**LLAMA, "rope_parameters": LLAMA3},
    "llama yarn": {**LLAMA, "rope_parameters": YARN},
    "mistral": MISTRAL,
    "mistral no window": {**MISTRAL, "sliding_window": None},
    "qwen2": {**LLAMA, "model_type": "qwen2"},
    "qwen3": {**LLAMA, "model_type": "qwen3"},
    "olmo2": {**LLAMA, "model_type": "olmo2"},
    # Three heads of 6 do not divide the hidden size, 16.
    **{
        f"{name}, odd heads": {**LLAMA, **THREE_HEADS, "model_type": name}
        for name in ("mistral", "qwen2", "qwen3", "olmo2")
    },
    "gemma2": GEMMA2,
    "gemma2 untied, no caps": dict(
        GEMMA2, **UNTIED, attn_logit_softcapping=None, final_logit_softcapping=None
    ),
    "gemma3": GEMMA3,
    "gemma3 cap, linear": dict(
        GEMMA3,
        final_logit_softcapping=3.0,
        layer_types=[GLOBAL, LOCAL],
        rope_parameters={
            GLOBAL: dict(rope_type="linear", rope_theta=700.0, factor=8.0),
            LOCAL: dict(rope_type="default", rope_theta=90.0),
        },
    ),
}

BERT: Fields = {**SIZES, "model_type": "bert", "pad_token_id": 1}
ROBERTA: Fields = {**SIZES, "model_type": "roberta", "pad_token_id": 1}
ELECTRA: Fields = {**SIZES, "model_type": "electra", "pad_token_id": 1, "embedding_size": 16}
ENCODERS = {
    "bert": BERT,
    "bert untied, gelu_new": {**BERT, **UNTIED, "hidden_act": "gelu_new"},
    "bert three types, silu": dict(BERT, hidden_act="silu", type_vocab_size=3, layer_norm_eps=1e-3),
    "roberta": {**ROBERTA, "layer_norm_eps": 1e-5, "type_vocab_size": 1},
    "roberta untied, pad 4, relu, dropout": dict(
        ROBERTA, **UNTIED, pad_token_id=4, hidden_act="relu", hidden_dropout_prob=0.3
    ),
    "electra": ELECTRA,
    "electra untied, tanh gelu": {**ELECTRA, **UNTIED, "hidden_act": "gelu_pytorch_tanh"},
    "electra narrow": {**ELECTRA, "embedding_size": 8},
    "electra narrow, untied, tanh": dict(ELECTRA, **UNTIED, embedding_size=8, hidden_act="tanh"),
    "electra wider, silu": {**ELECTRA, "embedding_size": 24, "hidden_act": "silu"},
}
MODERN: Fields = dict(
    SIZES, model_type="modernbert", num_hidden_layers=4, local_attention=6, pad_token_id=1
)
MODERNS = {
    "modernbert": MODERN,
    "modernbert untied, silu, every 2": dict(
        MODERN,
        **UNTIED,
        hidden_activation="silu",
        norm_eps=1e-3,
        local_attention=7,
        layer_types=[GLOBAL, LOCAL] * 2,
    ),
    "modernbert yarn": dict(
        MODERN,
        layer_types=[LOCAL, GLOBAL, LOCAL, LOCAL],
        rope_parameters={LOCAL: {**YARN, "factor": 2.0}, GLOBAL: YARN},
    ),
    "modernbert global": {**MODERN, "layer_types": [GLOBAL] * 4},
}
# Name to config.json and the head for what a trainer does.
MODELS: dict[str, tuple[Fields, str]] = {
    **{name: (fields, "CausalLM") for name, fields in DECODERS.items()},
    **{f"{name}, masked": (fields, "MaskedLM") for name, fields in (ENCODERS | MODERNS).items()},
    **{
        f"{name}, classes": ({**fields, "num_labels": len(CLASSES)}, "SequenceClassification")
        for name, fields in ENCODERS.items()
    },
}


def read_config(found: Fields, head: str) -> ModelConfig:
    """Our configuration of a config.json."""
    classes = CLASSES if head == "SequenceClassification" else ()
    return ModelConfig.from_json(found, classes=classes, where="here")


def write_config(config: ModelConfig) -> Fields:
    """The config.json that we write; prompts begin with 0 and 7."""
    if FAMILIES[config.family].eos_ids is not None:
        return config.to_json({"eos": 2}, [0, 7])
    return config.to_json({"bos": 0, "pad": 1, "eos": 2})


def named(logits: Any, loss: Any, gradients: Mapping, after: Mapping) -> Arrays:
    """The form of `compute`: logits, loss, `gradient/WEIGHT`, and after a step `step/WEIGHT`."""
    found = {"logits": np.asarray(logits), "loss": np.asarray(loss)}
    found.update({f"gradient/{name}": np.asarray(value) for name, value in gradients.items()})
    return found | {f"step/{name}": np.asarray(value) for name, value in after.items()}


def differences(name: str, found: Arrays, due: Arrays) -> dict[str, float]:
    """The largest ones of logits, loss, gradients and weights after a step; `pytest -s` shows them.

    Args:
      name: of the model, to print.
      found: a trainer's; may have weights that are not in `due`.
      due: PyTorch's.
    """
    largest: dict[str, float] = dict.fromkeys(("logits", "loss", "gradient", "step"), 0.0)
    for key, value in due.items():
        part = key.partition("/")[0]
        difference = np.abs(found[key] - value).max()
        largest[part] = float(np.maximum(largest[part], difference))  # NaN stays
    print(
        f"\n{name}: " + ", ".join(f"{part} {value:.1e}" for part, value in largest.items()), end=""
    )
    return largest


def compute_apart(
    folder: Path, cases: Mapping[str, tuple[Fields | None, str]], rows: Mapping[str, Arrays]
) -> dict[str, Arrays]:
    """`torch_models.compute` of all cases, in a process of its own.

    Args:
      folder: gets a directory NAME with the weights of each case.
      cases: name to config.json and head, as in MODELS; None opens the directory that is there.
      rows: name to the model's arguments and `labels`; with `prompts` [N, P], `lengths` [N],
        `new_tokens` and `is_prefix` there are greedy `answers`, too.
    """
    (folder / "cases.json").write_text(json.dumps(dict(cases)))
    for name in cases:
        np.savez(folder / f"{name}.npz", **rows[name])  # pyright: ignore[reportArgumentType]
    command = [sys.executable, "-m", "tests.tools.torch_models", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = {}
    for name in cases:
        with np.load(folder / f"{name}-out.npz") as file:
            found[name] = dict(file)
    return found
