"""What one kind of trainer adds to the loop: its model, its rows and its loss.

Legend: B rows of a batch or microbatch.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

import jax

from trainers.on_flax.layers import Params

Batch: TypeAlias = dict[str, jax.Array]  # a batch of the reader's on the devices
Rows: TypeAlias = Any  # what a model reads and predicts: a pytree of arrays whose first axis is B


class Sums(NamedTuple):
    """Sums over the tokens that count, f32 on the device and floats on the host.

    Attributes:
      loss: of their weighted cross-entropies, nats.
      correct: of those whose likeliest prediction is right.
      counted: of their weights.
    """

    loss: jax.Array | float
    correct: jax.Array | float
    counted: jax.Array | float


class Task(Protocol):
    """A model with its loss.

    Attributes:
      unit: of the loss, on the picture: "nats a masked token".
      counts: what metrics.jsonl calls the number of tokens that count: "masked".
    """

    unit: str
    counts: str

    def fresh(self, key: jax.Array) -> Params:
        """Weights before the first step, f32; pure, so that it can be jitted and sharded."""
        ...

    def published(self) -> Params | None:
        """Weights to begin with instead, as numpy arrays; None where the fresh ones are meant."""
        ...

    def rows(self, batch: Batch, *, training: bool) -> Rows:
        """What the model reads of a batch; pure."""
        ...

    def weight(self, rows: Rows) -> jax.Array:
        """How many tokens of these rows count, f32; pure."""
        ...

    def sums(self, params: Params, rows: Rows, key: jax.Array | None) -> Sums:
        """Loss and hits on rows; `key` turns dropout on; pure, differentiable in `params`."""
        ...

    def evaluation(self, sums: Sums) -> dict[str, float]:
        """Measurements of a whole split for metrics.jsonl, `loss` among them."""
        ...

    def said(self, evaluation: Mapping[str, float]) -> str:
        """The same for people: "loss 2.1234, accuracy 51.20%, perplexity 8.4"."""
        ...

    def notes(self) -> list[str]:
        """What a user should know before the first step."""
        ...

    def export(self, path: str, params: Params) -> None:
        """Writes the weights as a directory that transformers opens."""
        ...
