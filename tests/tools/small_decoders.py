"""A small decoder of each family, whose next tokens depend on all that come before."""

from typing import Any

import numpy as np

from textmill.trainers.models.model_config import ModelConfig
from textmill.trainers.models.weights import init_weights

SIZES: Any = dict(vocab_size=60, max_positions=40, layers=2, hidden_size=32, heads=4)
LLAMA: Any = dict(**SIZES, intermediate_size=48, kv_heads=2, head_size=10)
CONFIGS = {
    "gpt2": ModelConfig.new(family="gpt2", intermediate_size=64, embedding_size=32, **SIZES),
    "opt-350m": ModelConfig.new(
        family="opt",
        intermediate_size=64,
        embedding_size=16,
        activation="relu",
        norm_first=False,
        final_norm=False,
        position_offset=2,
        **SIZES,
    ),
    "llama": ModelConfig.new(family="llama", **LLAMA),
    "mistral": ModelConfig.new(family="mistral", window=5, **LLAMA),
    "qwen2": ModelConfig.new(family="qwen2", tied=False, **LLAMA),
    "qwen3": ModelConfig.new(family="qwen3", **LLAMA),
    "olmo2": ModelConfig.new(family="olmo2", **LLAMA),
    "gemma2": ModelConfig.new(family="gemma2", window=5, tied=False, **LLAMA),
    "gemma3": ModelConfig.new(family="gemma3_text", window=4, **{**LLAMA, "layers": 6}),
}


def large_weights(config: ModelConfig, seed: int = 3) -> dict[str, np.ndarray]:
    """Weights ten times as large as fresh ones: each token changes what comes next."""
    weights = init_weights(config, seed)
    return {name: value * 10 if value.ndim > 1 else value for name, value in weights.items()}
