"""Causal language modeling for the loop: the decoder, its loss and what is measured of a split.

Legend: B rows, L tokens a row, V vocabulary.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from schemas.sidecar import Schema
from schemas.statistics import ShardStatistics
from trainers.data.batches import BatchReader
from trainers.models.hf_files import tokenizer_settings, write_directory
from trainers.models.set_tokenizer import TOKENIZER, set_file, sets_of
from trainers.on_flax.clm_config import ClmPlan
from trainers.on_flax.decoder import DecoderForCausalLM, graph_of, init_params
from trainers.on_flax.decoder_config import DecoderConfig
from trainers.on_flax.decoder_files import config_json
from trainers.on_flax.decoder_weights import from_hugging_face, to_hugging_face
from trainers.on_flax.layers import Params
from trainers.on_flax.task import Batch, Sums


class CausalRows(NamedTuple):
    """What the model reads and is to predict.

    Attributes:
      input_ids: int32 [B, L].
      segment_ids: int32 [B, L].
      weights: f32 [B, L], 1 where predicting THIS token counts.
    """

    input_ids: jax.Array
    segment_ids: jax.Array
    weights: jax.Array


def rows_of(batch: Batch) -> CausalRows:
    """A batch in the dtypes of the computation."""
    return CausalRows(
        batch["input_ids"].astype(jnp.int32),
        batch["segment_ids"].astype(jnp.int32),
        batch["loss_weights"].astype(jnp.float32),
    )


def causal_sums(model: DecoderForCausalLM, rows: CausalRows, key: jax.Array | None) -> Sums:
    """Loss and hits of every token given those before it in its segment; pure.

    Args:
      model: with weights.
      rows: to predict.
      key: turns dropout on.
    """
    logits_BxLxV = model(rows.input_ids, rows.segment_ids, key)[:, :-1]
    labels, weights = rows.input_ids[:, 1:], rows.weights[:, 1:]
    losses = optax.softmax_cross_entropy_with_integer_labels(logits_BxLxV, labels)
    hits = (logits_BxLxV.argmax(-1) == labels) * weights
    return Sums((losses * weights).sum(), hits.sum(), weights.sum())


def measured(sums: Sums, text: ShardStatistics) -> dict[str, float]:
    """What sums over a whole split say.

    Bits per byte and perplexity per word spread the loss over the text, whatever its tokens are:
    they compare models of different tokenizers. A segment's first token is given, not predicted.

    Args:
      sums: of all rows of the split.
      text: its counts, of bytes and words.
    """
    nats = float(sums.loss)
    loss = nats / float(sums.counted)
    found = {
        "loss": loss,
        "accuracy": float(sums.correct / sums.counted),
        "perplexity": _exp(loss),
        "predicted": float(sums.counted),
    }
    if text.text_bytes:
        found["bits_per_byte"] = nats / math.log(2) / text.text_bytes
    if text.words:
        found["word_perplexity"] = _exp(nats / text.words)
    return found


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))  # a float ends at exp(709)


def said_of(found: Mapping[str, float]) -> str:
    """Measurements for people: "loss 2.1, accuracy 51.20%, perplexity 8.2, 1.234 bits per byte"."""
    said = (
        f"loss {found['loss']:.4f}, accuracy {found['accuracy']:.2%}, perplexity "
        f"{found['perplexity']:,.2f}"
    )
    if "bits_per_byte" in found:
        said += f", {found['bits_per_byte']:.4f} bits per byte"
    if "word_perplexity" in found:
        said += f", perplexity per word {found['word_perplexity']:,.1f}"
    return said


def text_of(shards: BatchReader, split: str) -> ShardStatistics:
    """Counts of a split in all sets that have it."""
    parts = [part.stats.split(split) for part in sets_of(shards) if split in part.splits]
    return sum(parts, ShardStatistics())


def export_decoder(
    path: str, params: Params, model: DecoderConfig, schema: Schema, tokenizer_json: bytes
) -> None:
    """Writes a directory that transformers opens, with the set's tokenizer.

    Args:
      path: not there yet, or empty.
      params: f32 weights.
      model: of the weights.
      schema: of the set they were trained on.
      tokenizer_json: of that set.
    """
    prefix = [int(number) for number in schema.parameters["prefix_ids"]]
    write_directory(
        path,
        config_json(model, schema.special_ids, prefix),
        to_hugging_face(params, model),
        tokenizer_json,
        tokenizer_settings(tokenizer_json, schema.special_ids, max_length=model.max_positions),
    )


class ClmTask:
    """A `trainers.on_flax.task.Task`."""

    unit = "nats a token"
    counts = "predicted"

    def __init__(self, plan: ClmPlan, shards: BatchReader, dtype: jnp.dtype):
        """Takes the plan; no weights yet."""
        self.plan = plan
        self._tokenizer = set_file(shards, TOKENIZER)
        self._text = ShardStatistics()
        if plan.config.validation_split in shards.splits:
            self._text = text_of(shards, plan.config.validation_split)
        self._graph = graph_of(plan.model, dtype)

    def fresh(self, key: jax.Array) -> Params:
        """Weights before the first step."""
        return init_params(self.plan.model, key)

    def published(self) -> Params | None:
        """Those of --init_from."""
        if self.plan.published is None:
            return None
        config = self.plan.config
        return from_hugging_face(
            self.plan.published,
            self.plan.model,
            jax.eval_shape(partial(init_params, self.plan.model), jax.random.key(0)),
            place=f"--init_from={config.init_from}",
            seed=config.seed,
        )

    def rows(self, batch: Batch, *, training: bool) -> CausalRows:
        """Rows as they are stored."""
        return rows_of(batch)

    def weight(self, rows: CausalRows) -> jax.Array:
        """Tokens that are predicted."""
        return rows.weights[:, 1:].sum()

    def sums(self, params: Params, rows: CausalRows, key: jax.Array | None) -> Sums:
        """Of all tokens that count."""
        return causal_sums(nnx.merge(self._graph, params), rows, key)

    def evaluation(self, sums: Sums) -> dict[str, float]:
        """Loss, accuracy, perplexity, bits per byte, perplexity per word, tokens predicted."""
        return measured(sums, self._text)

    def said(self, evaluation: Mapping[str, float]) -> str:
        """The same for people."""
        return said_of(evaluation)

    def notes(self) -> list[str]:
        """Where the vocabulary grew."""
        rows, wanted = self.plan.published_vocabulary, self.plan.model.vocab_size
        if self.plan.published is None or rows == wanted:
            return []
        return [
            f"the vocabulary grows from {rows:,} tokens of --init_from to the set's {wanted:,}: "
            "the new ones begin near the mean of the old ones"
        ]

    def export(self, path: str, params: Params) -> None:
        """Writes the weights as a directory that transformers opens, with the tokenizer."""
        params = jax.tree.map(np.asarray, params)
        export_decoder(path, params, self.plan.model, self.plan.schema, self._tokenizer)
