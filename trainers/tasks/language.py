"""What both language models share: defaults, and loss, accuracy and perplexity of tokens.

Numpy only, Python 3.8 syntax.
"""

import math
from dataclasses import dataclass
from typing import Iterator, Mapping, Optional, Tuple

import numpy as np

from trainers.data.batches import Batch
from trainers.run.program import Arrays, Measures

LOSS, CORRECT, COUNTED = "loss", "correct", "counted"  # sums over the tokens that count


@dataclass(frozen=True)
class PretrainingFlags:
    """What suits training from scratch; stands before the flags whose defaults it replaces."""

    learning_rate: float = 5e-4
    beta2: float = 0.98
    epsilon: float = 1e-6
    dropout: Optional[float] = 0.0


def add_up(found: Iterator[Tuple[Batch, Arrays]]) -> Tuple[Measures, int]:
    """Sums of LOSS, CORRECT and COUNTED over a split, and how many tokens are no padding.

    In float64: float32 cannot count beyond 2**24.
    """
    sums, tokens = {name: 0.0 for name in (LOSS, CORRECT, COUNTED)}, 0
    for batch, outputs in found:
        for name in sums:
            sums[name] += float(np.sum(outputs[name], dtype=np.float64))
        tokens += int(np.count_nonzero(batch["segment_ids"]))
    return sums, tokens


def token_measures(sums: Mapping[str, float]) -> Optional[Measures]:
    """Loss, accuracy and perplexity of the tokens that count; None if none does."""
    counted = sums[COUNTED]
    if not counted:
        return None
    loss = sums[LOSS] / counted
    return {"loss": loss, "accuracy": sums[CORRECT] / counted, "perplexity": exponential(loss)}


def exponential(value: float) -> float:
    """exp, but for what a float cannot hold: it ends at exp(709)."""
    return math.exp(min(value, 700.0))


def shown(value: float, digits: int) -> str:
    """A perplexity for people: "1,234.5", and "1.0e+304" where it would fill lines."""
    return f"{value:,.{digits}f}" if value < 1e9 else f"{value:.1e}"


def describe_tokens(measures: Mapping[str, float], digits: int) -> str:
    """Those measures in a few words: "loss 2.1234, accuracy 51.20%, perplexity 8.4"."""
    return (
        f"loss {measures['loss']:.4f}, accuracy {measures['accuracy']:.2%}, perplexity "
        f"{shown(measures['perplexity'], digits)}"
    )
