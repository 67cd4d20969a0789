"""Decoders with a causal language-model head, for packed rows; generation.py continues texts.

GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019), OPT (Zhang et
al., 2022, arXiv:2205.01068), Llama (Touvron et al., 2023, arXiv:2302.13971), Mistral (Jiang et al.,
2023, arXiv:2310.06825), Qwen 2 and 3 (arXiv:2407.10671, arXiv:2505.09388), OLMo 2
(arXiv:2501.00656), Gemma 2 and 3 (arXiv:2408.00118, arXiv:2503.19786). All are one module with the
modules of their family and the switches of `ModelConfig`. OPT-350m normalizes after each residual
and has no last LayerNorm; its embeddings have a different width than its hidden states, with a
projection in and one out.

Legend: B rows, L tokens a row, H hidden, E embedding, V vocabulary.
"""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx

from textmill.trainers.flags.framework_flags import FlaxComputeFlags
from textmill.trainers.models.model_config import ModelConfig
from textmill.trainers.on_flax.flax_attention import Context, attention_kind, packed_context
from textmill.trainers.on_flax.flax_program import DeviceBatch, FlaxProgram
from textmill.trainers.on_flax.layers import (
    Embeddings,
    KVCache,
    Params,
    add_parts,
    graph_of,
    head_logits,
    layers_of,
    split_keys,
)
from textmill.trainers.on_flax.precision import compute_dtype
from textmill.trainers.on_flax.token_loss import Sums, sums_in_chunks
from textmill.trainers.run.plan import TrainingPlan
from textmill.trainers.run.training_task import TrainingTask


class DecoderForCausalLM(nnx.Module):
    """Packed rows to the logits of each next token."""

    final_norm: nnx.LayerNorm | None = None
    project_out: nnx.Linear | None = None
    head: nnx.Linear | None = None

    def __init__(self, config: ModelConfig, dtype: jnp.dtype, rngs: nnx.Rngs):
        self.config = config
        self.embeddings = Embeddings(config, dtype, rngs)
        self.layers = layers_of(config, dtype, rngs)
        add_parts(self, "", config, dtype, rngs)

    def hidden(
        self,
        input_ids_BxL: jax.Array,
        context: Context,
        *,
        caches: Sequence[KVCache] | None = None,
        key: jax.Array | None = None,
        remat: bool = False,
    ) -> tuple[jax.Array, list[KVCache]]:
        """The input of the head, [B, L, E], and every layer's cache; a key turns dropout on.

        With `remat` the backward pass computes each layer again instead of keeping its activations.
        """
        keys = split_keys(key, 1 + len(self.layers))
        x_BxLxH = self.embeddings(input_ids_BxL, context.positions_BxL, keys[0])
        new_caches = []
        old_caches = [None] * len(self.layers) if caches is None else caches
        for layer, old_cache, layer_key in zip(self.layers, old_caches, keys[1:], strict=True):
            call = partial(layer, context=context, cache=old_cache, key=layer_key)
            x_BxLxH, cache = (jax.checkpoint(call) if remat else call)(x_BxLxH)
            new_caches.append(cache)
        if self.final_norm is not None:
            x_BxLxH = self.final_norm(x_BxLxH)
        return x_BxLxH if self.project_out is None else self.project_out(x_BxLxH), new_caches

    def logits(self, x_BxLxE: jax.Array) -> jax.Array:
        """Float32 logits [B, L, V] from the result of `hidden`."""
        tokens, softcap = self.embeddings.tokens, self.config.logit_softcap
        table_VxE = tokens.embedding[...] if self.head is None else self.head.kernel[...].T
        logits_BxLxV = head_logits(x_BxLxE, table_VxE)
        return softcap * jnp.tanh(logits_BxLxV / softcap) if softcap else logits_BxLxV

    def __call__(
        self,
        input_ids_BxL: jax.Array,
        segment_ids_BxL: jax.Array,
        dropout_key: jax.Array | None = None,
    ) -> jax.Array:
        """Float32 logits [B, L, V] of each next token in its segment; segment 0 is padding."""
        context = packed_context(segment_ids_BxL, causal=True)
        return self.logits(self.hidden(input_ids_BxL, context, key=dropout_key)[0])


class ClmObjective:
    """A `trainers.on_flax.flax_program.FlaxObjective`."""

    def __init__(self, plan: TrainingPlan):
        compute = plan.flags.compute
        assert isinstance(compute, FlaxComputeFlags)
        dtype = compute_dtype(compute.precision)
        self._graph = graph_of(DecoderForCausalLM, plan.model, dtype)
        self._compute, self.attention = compute, attention_kind(plan, dtype)
        schema = plan.schema
        self._sparse = schema.task == "chat" and schema.parameters["train_on"] != "all"

    def rows(self, batch: DeviceBatch, *, training: bool) -> DeviceBatch:
        """Rows as they are stored; `loss_weights[:, i]` weighs the prediction of the token at i."""
        dtypes = {"input_ids": jnp.int32, "segment_ids": jnp.int32, "loss_weights": jnp.float32}
        return {name: batch[name].astype(dtype) for name, dtype in dtypes.items()}

    def weight(self, rows: DeviceBatch) -> jax.Array:
        """The number of predicted tokens."""
        return rows["loss_weights"][:, 1:].sum()

    def sums(self, params: Params, rows: DeviceBatch, key: jax.Array | None) -> Sums:
        """Sums over every token given those before it in its segment.

        The logits at i predict the token at i + 1, whose weight is `loss_weights[:, i + 1]`.
        """
        model, ids, compute = nnx.merge(self._graph, params), rows["input_ids"], self._compute
        context = packed_context(rows["segment_ids"], causal=True, kind=self.attention)
        x_BxLxE, _ = model.hidden(ids, context, key=key, remat=compute.remat)
        predicted = x_BxLxE[:, :-1], ids[:, 1:], rows["loss_weights"][:, 1:]
        size, chunks = model.config.vocab_size, compute.loss_chunks
        return sums_in_chunks(model.logits, *predicted, chunks, size, sparse=self._sparse)


def make_program(plan: TrainingPlan, task: TrainingTask) -> FlaxProgram:
    """Causal language modeling."""
    return FlaxProgram(plan, ClmObjective(plan))
