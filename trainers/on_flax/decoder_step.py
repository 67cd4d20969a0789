"""What a step computes of causal rows: the loss of every next token.

Legend: B rows, L tokens a row, V vocabulary.
"""

import jax
import jax.numpy as jnp
import optax

from trainers.on_flax.decoder import DecoderForCausalLM


def next_token_losses(
    model: DecoderForCausalLM,
    input_ids_BxL: jax.Array,
    segment_ids_BxL: jax.Array,
    loss_weights_BxL: jax.Array,
    dropout_key: jax.Array | None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Cross-entropy of every token given those before it in its segment.

    Args:
      model: with weights.
      input_ids_BxL: any integers.
      segment_ids_BxL: any integers; 0 is padding.
      loss_weights_BxL: 1 where predicting THIS token counts; never so for a segment's first.
      dropout_key: turns dropout on.

    Returns:
      For tokens 1 to L - 1, f32 [B, L - 1] each: weighted losses in nats, weighted hits, weights.
    """
    logits_BxLxV = model(input_ids_BxL, segment_ids_BxL, dropout_key)[:, :-1]
    labels = input_ids_BxL[:, 1:].astype(jnp.int32)
    weights = loss_weights_BxL[:, 1:].astype(jnp.float32)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits_BxLxV, labels)
    return losses * weights, (logits_BxLxV.argmax(-1) == labels) * weights, weights
