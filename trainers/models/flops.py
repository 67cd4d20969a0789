"""Floating-point operations that training a model needs, and the share of a device's that it uses.

Python 3.8 syntax.
"""

import re
from typing import Optional

from trainers.models.model_config import ModelConfig

# Peak operations a second in bfloat16 without sparsity, by the name of a device in JAX; those of
# the makers' data sheets.
_PEAKS = {
    "A100": 312e12,
    "H100": 989e12,
    "H100 PCIe": 756e12,
    "H200": 989e12,
    "L4": 121e12,
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5e": 197e12,
    "TPU v5": 459e12,
    "TPU v5p": 459e12,
    "TPU v6 lite": 918e12,
    "TPU v6e": 918e12,
}


def training_flops(config: ModelConfig, length: int, head_share: float = 1.0) -> float:
    """Operations for each token of a step, forward and backward.

    Six for each parameter of a matrix product, and 12 * T for each head dimension of each layer's
    attention (Chowdhery et al., "PaLM", 2022, arXiv:2204.02311, appendix B). T is the row's length
    or the window of the layer, whatever the segments are. Embeddings count where they are the
    output layer. Operations that are repeated to save memory do not count.

    `head_share` is the share of positions that the head computes.
    """
    body = head = 0
    for module in config.modules:
        if module.kind in ("linear", "matrix") or module.ours == "head.table":
            is_head = module.ours.split(".")[0] == "head"
            head += is_head * sum(module.rows) * module.width
            body += (not is_head) * sum(module.rows) * module.width
    if config.tied and not config.classes:
        head += config.vocab_size * config.embedding_size
    windows = [config.window_of(layer) or length for layer in range(config.layers)]
    attended = config.heads * config.head_size * sum(min(window, length) for window in windows)
    return 6 * (body + head_share * head) + 12 * attended


def peak_flops(device_kind: str) -> Optional[float]:
    """The peak of a device in bfloat16: "NVIDIA H100 80GB HBM3" -> 989e12; None if not known."""
    kinds = [kind for kind in _PEAKS if re.search(rf"\b{kind}\b", device_kind)]
    if not kinds or "MIG" in device_kind:  # a part of a GPU
        return None
    return _PEAKS[max(kinds, key=len)]
