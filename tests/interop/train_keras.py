"""50 steps of Keras `fit` on a set's rows; the first loss beside PyTorch's of each document alone.

    python -m tests.interop.train_keras shards

The rows come from ShardSet in the layout of MaxText, whose targets are shifted, as Keras wants
them; `targets_segmentation` gives the weights. A small decoder of random weights; KERAS_BACKEND
chooses what runs it. It ends with 1 if the losses differ by more than 1e-4.
"""

import importlib.metadata
import math
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from textmill.schemas.format.layouts import maxtext
from textmill.trainers.reader import ShardSet

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, at import
    import keras
    from keras import layers

STEPS, ROWS, WIDTH, HEADS = 50, 8, 64, 4
BLOCKS = range(2)


class DocumentMask(layers.Layer):
    """Segments [B, L] -> bool [B, L, L]: a token sees its own document up to itself."""

    def call(self, segments: Any) -> Any:
        """Returns the mask of each pair of tokens."""
        places: Any = keras.ops.arange(segments.shape[1])
        same = segments[:, :, None] == segments[:, None, :]
        return keras.ops.logical_and(same, places[:, None] >= places[None, :])


def make_model(vocab_size: int, length: int) -> Any:
    """A decoder whose layers have names."""
    ids, positions, segments = (
        keras.Input((length,), dtype="int32", name=name)
        for name in ("inputs", "inputs_position", "inputs_segmentation")
    )
    mask = DocumentMask()(segments)
    x = layers.Embedding(vocab_size, WIDTH, name="ids")(ids)
    x = x + layers.Embedding(length, WIDTH, name="places")(positions)
    for block in BLOCKS:
        y = layers.LayerNormalization(name=f"norm{block}")(x)
        attention = layers.MultiHeadAttention(HEADS, WIDTH // HEADS, name=f"attention{block}")
        x = x + attention(y, y, attention_mask=mask)
        y = layers.LayerNormalization(name=f"inner_norm{block}")(x)
        y = layers.Dense(4 * WIDTH, activation="gelu", name=f"up{block}")(y)
        x = x + layers.Dense(WIDTH, name=f"down{block}")(y)
    return keras.Model([ids, positions, segments], layers.Dense(vocab_size, name="logits")(x))


def batches(shards: ShardSet) -> Iterator[tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]]:
    """Arguments of `fit`: inputs, targets and weights of endless shuffled batches."""
    for batch in shards.batches("train", batch_size=ROWS, seed=0):
        rows = maxtext(batch)
        inputs = {name: rows[name] for name in rows if name.startswith("inputs")}
        yield inputs, rows["targets"], (rows["targets_segmentation"] > 0).astype(np.float32)


def loss_alone(model: Any, batch: dict[str, np.ndarray]) -> float:
    """The mean loss of a batch by PyTorch, each document by itself."""
    weights = {
        layer.name: [torch.from_numpy(np.array(value)) for value in layer.get_weights()]
        for layer in model.layers
    }
    nats, counted = 0.0, 0
    for row, segments in zip(batch["input_ids"], batch["segment_ids"], strict=True):
        for number in range(1, segments.max() + 1):
            ids = torch.from_numpy(row[segments == number].astype(np.int64))
            logits = forward(weights, ids)
            nats += functional.cross_entropy(logits[:-1], ids[1:], reduction="sum").item()
            counted += len(ids) - 1
    return nats / counted


def forward(weights: dict[str, list[torch.Tensor]], ids: torch.Tensor) -> torch.Tensor:
    """Logits of one document, with the layers as Keras documents them."""

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return functional.layer_norm(x, (WIDTH,), *weights[name], eps=1e-3)

    x = weights["ids"][0][ids] + weights["places"][0][: len(ids)]
    for block in BLOCKS:
        y, (q, q_bias, k, k_bias, v, v_bias, o, o_bias) = (
            norm(x, f"norm{block}"),
            weights[f"attention{block}"],
        )
        query, key, value = (
            torch.einsum("ld,dhk->hlk", y, kernel) + bias[:, None]
            for kernel, bias in ((q, q_bias), (k, k_bias), (v, v_bias))
        )
        scores = query @ key.transpose(1, 2) / math.sqrt(WIDTH // HEADS)
        hidden = torch.ones(len(ids), len(ids), dtype=torch.bool).triu(1)
        seen = scores.masked_fill(hidden, -math.inf).softmax(-1) @ value
        x = x + torch.einsum("hlk,hkd->ld", seen, o) + o_bias
        up, down = weights[f"up{block}"], weights[f"down{block}"]
        y = functional.gelu(norm(x, f"inner_norm{block}") @ up[0] + up[1])
        x = x + y @ down[0] + down[1]
    return x @ weights["logits"][0] + weights["logits"][1]


class Log(keras.callbacks.Callback):
    """Notes the mean loss so far, which after the first step is that of the first batch."""

    def __init__(self, found: list[float]):
        super().__init__()
        self._found = found

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Notes it."""
        self._found.append(logs["loss"])


def main(directory: str) -> None:
    """Trains, and prints the losses."""
    shards = ShardSet(directory)
    keras.utils.set_random_seed(0)
    model = make_model(shards.schema.vocab_size, shards.schema.max_length)
    loss = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="mean_with_sample_weight"
    )
    model.compile(optimizer=keras.optimizers.Adam(1e-3), loss=loss)
    due = loss_alone(model, next(shards.batches("train", batch_size=ROWS, seed=0)))
    found: list[float] = []
    model.fit(batches(shards), steps_per_epoch=STEPS, callbacks=[Log(found)], verbose=0)
    torch_version = importlib.metadata.version("torch")
    print(f"keras {keras.__version__} on {keras.backend.backend()}, torch {torch_version}")
    print(f"first loss {found[0]:.5f}, PyTorch's of each document alone {due:.5f}")
    print(f"mean of {STEPS} steps {found[-1]:.5f}")
    sys.exit(abs(found[0] - due) > 1e-4)


if __name__ == "__main__":
    main(*sys.argv[1:])
