"""Answers from a GPT-2: prompts in, new tokens out, in one graph with a cache.

Each token's keys and values are computed once: those of the prompts stay as they are, those of new
tokens go into a small cache beside them. So prompts of different lengths share a batch, and the
loop writes nothing but what it adds.

Legend: B prompts, P places for a prompt, T new tokens at most, N heads, D size of a head,
V vocabulary.
"""

from typing import Any

from trainers.on_tf.backend import tf
from trainers.on_tf.tf_decoder import Decoder
from trainers.on_tf.tf_layers import Seen, Tensors
from trainers.tasks.qa import ANSWER_IDS, ANSWER_LENGTHS


def answer_prompts(
    model: Decoder, prompts_BxP: Any, lengths_B: Any, *, new_tokens: int, eos: int, prefix: bool
) -> Tensors:
    """The likeliest token after another, to eos or the longest answer; for use in a tf.function.

    Args:
      model: with room for P + T positions.
      prompts_BxP: int32, filled up at the right with anything.
      lengths_B: int32, tokens of each prompt; a row of 0 gives an answer without meaning.
      new_tokens: T.
      eos: the id that ends an answer.
      prefix: whether a prompt's tokens see all of the prompt, or those before them only.

    Returns:
      ANSWER_IDS int32 [B, T], eos after a row's end; ANSWER_LENGTHS int32 [B], tokens before eos.
    """
    rows, places = tf.shape(prompts_BxP)[0], prompts_BxP.shape[1] or tf.shape(prompts_BxP)[1]
    lengths_B = tf.maximum(tf.cast(lengths_B, tf.int32), 1)
    index_P = tf.range(places)
    is_prompt_Bx1xP = (index_P[None] < lengths_B[:, None])[:, None]
    is_seen = is_prompt_Bx1xP if prefix else is_prompt_Bx1xP & (index_P[None] <= index_P[:, None])
    x_BxPxH, prompt = model.hidden(prompts_BxP, index_P[None], is_seen)
    last_BxH = tf.gather(x_BxPxH, lengths_B - 1, batch_dims=1)
    config = model.config
    # Time comes first, so that one write at one place adds a step's tokens.
    shape = (new_tokens, rows, config.heads, config.hidden_size // config.heads)
    empty = tf.zeros(shape, x_BxPxH.dtype)
    caches = [(empty, empty) for _ in model.blocks]

    def take(x_BxH: Any, step: Any, done_B: Any, ids_TxB: Any) -> tuple[Any, Any, Any]:
        """Adds each row's likeliest token as number `step`."""
        logits_BxV = model.logits(x_BxH[:, None])[:, 0]
        best_B = tf.argmax(logits_BxV, axis=-1, output_type=tf.int32)
        chosen_B = tf.where(done_B, eos, best_B)
        ids_TxB = tf.tensor_scatter_nd_update(ids_TxB, [[step]], chosen_B[None])
        return step + 1, done_B | (chosen_B == eos), ids_TxB

    def goes_on(step: Any, done_B: Any, ids_TxB: Any, caches: Any) -> Any:
        return (step < new_tokens) & ~tf.reduce_all(done_B)

    def go_on(step: Any, done_B: Any, ids_TxB: Any, caches: Any) -> tuple[Any, ...]:
        place = step - 1  # of the token that is read now
        x = model.embed(ids_TxB[place][:, None], (lengths_B + place)[:, None])
        is_new_1x1xT = (tf.range(new_tokens) <= place)[None, None]
        kept = []
        for block, before, cache in zip(model.blocks, prompt, caches, strict=True):
            queries, *added = block.queries_keys_values(x)
            cache = tuple(
                tf.tensor_scatter_nd_update(old, [[place]], value[None, :, :, 0])
                for old, value in zip(cache, added, strict=True)
            )
            keys, values = (tf.transpose(part, (1, 2, 0, 3)) for part in cache)
            seen = (
                Seen(before.keys_BxNxMxD, before.values_BxNxMxD, is_prompt_Bx1xP),
                Seen(keys, values, is_new_1x1xT),
            )
            x = block.rest(x, queries, seen)
            kept.append(cache)
        return *take(model.final_norm(x)[:, 0], step, done_B, ids_TxB), kept

    ids_TxB = tf.fill((new_tokens, rows), eos)
    begin = take(last_BxH, tf.constant(0), tf.zeros((rows,), tf.bool), ids_TxB)
    _, _, ids_TxB, _ = tf.while_loop(goes_on, go_on, (*begin, caches))
    ids_BxT = tf.transpose(ids_TxB)
    lengths_B = tf.reduce_sum(tf.cast(ids_BxT != eos, tf.int32), axis=1)
    return {ANSWER_IDS: ids_BxT, ANSWER_LENGTHS: lengths_B}
