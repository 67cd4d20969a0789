"""GPT-2 in Keras layers, with attention that is causal, or bidirectional on a prefix.

Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, compatible with
published weights. The prefix is that of Raffel et al., "Exploring the Limits of Transfer Learning",
2019 (arXiv:1910.10683), section 3.2. A boolean matrix controls attention, so that one model reads
packed rows, prompts, and single tokens with a cache.

Legend: B rows, L tokens a row, H hidden, V vocabulary.
"""

from typing import Any

from textmill.schemas.errors import UsageError
from textmill.schemas.format.metadata import Schema
from textmill.trainers.models.model_config import ModelConfig
from textmill.trainers.on_tf.backend import keras, tf
from textmill.trainers.on_tf.tf_layers import (
    Attended,
    Seed,
    Tensors,
    TransformerLayer,
    dense,
    drop_out,
    float32_product,
    norm,
    table,
    through_blocks,
)
from textmill.trainers.on_tf.tf_program import Sums, TfObjective, TfProgram
from textmill.trainers.run.plan import TrainingPlan
from textmill.trainers.tasks.language_models import CORRECT, COUNTED, LOSS
from textmill.trainers.tasks.qa import ANSWER_IDS, ANSWER_LENGTHS, QaTask

PIECES = 16  # of a row, in few of which tokens count


def allowed_attention(segment_ids_BxL: Any, prefix_mask_BxL: Any = None) -> Any:
    """Whether token i may attend to token j in packed rows: bool [B, L, L].

    A token attends to its segment up to itself, and to its segment's whole prefix, where
    `prefix_mask` is 1. Segment 0 is padding, which attends only to padding.
    """
    segments = tf.cast(segment_ids_BxL, tf.int32)
    index_L = tf.range(segments.shape[1] or tf.shape(segments)[1])
    allowed = index_L[None, None, :] <= index_L[None, :, None]
    if prefix_mask_BxL is not None:
        allowed |= tf.not_equal(tf.cast(prefix_mask_BxL, tf.int32), 0)[:, None, :]
    return allowed & (segments[:, :, None] == segments[:, None, :])


class Decoder(keras.Model):
    """Packed rows to the logits of each next token; generation uses its parts, too."""

    def __init__(self, config: ModelConfig):
        """Makes layers with random weights; call it in the scope of a strategy.

        Raises:
          UsageError: the model is not a GPT-2.
        """
        if config.family != "gpt2":
            raise UsageError(
                f"the model is of family {config.family!r}, and the TensorFlow trainer supports "
                "gpt2 only: give weights of a gpt2, or use trainers.flax_clm"
            )
        super().__init__(name=config.family)
        self.config, hidden = config, config.hidden_size
        with keras.name_scope("embeddings"):
            self.tokens = table("tokens", config.vocab_size, hidden)
            self.positions = table("positions", config.position_rows, hidden)
        with keras.name_scope("layers"):
            self.blocks = [TransformerLayer(config, index) for index in range(config.layers)]
        self.final_norm = norm("final_norm", hidden, config.layer_norm_epsilon)
        if not config.tied:
            self.head = dense("head", hidden, config.vocab_size, use_bias=False)
        self.built = True

    def embed(self, input_ids_BxL: Any, positions_BxL: Any, seed: Seed = None) -> Any:
        """Hidden states [B, L, H] before the first layer."""
        x_BxLxH = self.tokens(tf.cast(input_ids_BxL, tf.int32)) + self.positions(positions_BxL)
        return drop_out(x_BxLxH, self.config.dropout, seed, 0)

    def hidden(
        self, input_ids_BxL: Any, positions_BxL: Any, allowed_BxLxL: Any, seed: Seed = None
    ) -> tuple[Any, list[Attended]]:
        """The input of the head, [B, L, H], and the keys and values of each layer."""
        x_BxLxH = self.embed(input_ids_BxL, positions_BxL, seed)
        x_BxLxH, attended = through_blocks(self.blocks, x_BxLxH, allowed_BxLxL, seed)
        return self.final_norm(x_BxLxH), attended

    @property
    def output_table(self) -> Any:
        """The weights of the head, [V, H]."""
        weights = self.tokens.embeddings if self.config.tied else tf.transpose(self.head.kernel)
        return tf.convert_to_tensor(weights)

    def logits(self, x_BxLxH: Any) -> Any:
        """Float32 logits [B, L, V] of each next token, from the result of `hidden`."""
        return logits_by(x_BxLxH, self.output_table)

    def call(self, input_ids_BxL, segment_ids_BxL, prefix_mask_BxL=None, seed: Seed = None) -> Any:
        """Float32 logits [B, L, V] of each next token in its segment.

        Segment 0 is padding; a seed turns dropout on.
        """
        return self.logits(
            self.packed_hidden(input_ids_BxL, segment_ids_BxL, prefix_mask_BxL, seed)
        )

    def packed_hidden(
        self, input_ids_BxL: Any, segment_ids_BxL: Any, prefix_mask_BxL: Any, seed: Seed
    ) -> Any:
        """The input of the head, [B, L, H], of packed rows."""
        allowed = allowed_attention(segment_ids_BxL, prefix_mask_BxL)
        # From 0 in each segment, as many as the tokens of it up to this one.
        earlier = tf.cast(allowed_attention(segment_ids_BxL), tf.int32)
        positions_BxL = tf.reduce_sum(earlier, axis=2) - 1
        return self.hidden(input_ids_BxL, positions_BxL, allowed, seed)[0]


def logits_by(x_BxLxH: Any, table_VxH: Any) -> Any:
    """Float32 logits [B, L, V]."""
    length = x_BxLxH.shape[1] or tf.shape(x_BxLxH)[1]
    # In two dimensions: else the gradient would be a table for each row, summed afterwards.
    flat = tf.reshape(x_BxLxH, (-1, x_BxLxH.shape[2]))
    logits = float32_product(flat, tf.cast(table_VxH, x_BxLxH.dtype))
    return tf.reshape(logits, (-1, length, table_VxH.shape[0]))


def sums_where_counted(
    x_BxTxH: Any, table_VxH: Any, target_BxT: Any, weight_BxT: Any
) -> tuple[Any, Any, Any]:
    """The loss over all tokens, f32; each row's loss and hits, f32 [B], without gradients.

    Tokens that count come first in each row, and pieces of a row in which none counts are skipped:
    in questions, 2 to 4 % of the tokens count. A piece's gradients follow its loss at once, so that
    one piece's logits are in memory.
    """
    order_BxT = tf.argsort(tf.cast(weight_BxT == 0, tf.int32), axis=1, stable=True)
    x, target, weight = (
        tf.gather(values, order_BxT, batch_dims=1) for values in (x_BxTxH, target_BxT, weight_BxT)
    )
    tokens = x.shape[1]
    size = -(-tokens // PIECES)
    most = tf.reduce_max(tf.reduce_sum(tf.cast(weight_BxT != 0, tf.int32), axis=1))
    used = (most + size - 1) // size
    ends = [(0, 0), (0, -tokens % size)]
    target, weight = tf.pad(target, ends), tf.pad(weight, ends)

    @tf.custom_gradient
    def total(x: Any, table: Any) -> Any:
        padded = tf.pad(x, [*ends, (0, 0)])

        def add(number: Any, loss_B: Any, hits_B: Any, of_x: Any, of_table: Any) -> Any:
            def piece(values: Any) -> Any:
                begin = [0, number * size] + [0] * (len(values.shape) - 2)
                return tf.slice(values, begin, [-1, size] + [-1] * (len(values.shape) - 2))

            here, due, weights = piece(padded), piece(target), piece(weight)
            with tf.GradientTape() as tape:
                tape.watch((here, table))
                logits = logits_by(here, table)
                each = tf.nn.sparse_softmax_cross_entropy_with_logits(due, logits)
                own_B = tf.reduce_sum(weights * each, axis=1)
                own = tf.reduce_sum(own_B)
            grad_x, grad_table = map(tf.convert_to_tensor, tape.gradient(own, (here, table)))
            best = tf.argmax(logits, axis=-1, output_type=tf.int32)
            hits = tf.reduce_sum(weights * tf.cast(best == due, tf.float32), axis=1)
            pieces = tf.tensor_scatter_nd_update(of_x, [[number]], grad_x[None])
            return number + 1, loss_B + own_B, hits_B + hits, pieces, of_table + grad_table

        rows = tf.shape(x)[0]
        nothing_B = tf.zeros((rows,))
        count = -(-tokens // size)
        pieces = tf.zeros((count, rows, size, x.shape[2]), x.dtype)
        begin = (tf.constant(0), nothing_B, nothing_B, pieces, tf.zeros_like(table))
        _, loss_B, hits_B, pieces, of_table = tf.while_loop(lambda n, *_: n < used, add, begin)
        of_x = tf.reshape(tf.transpose(pieces, (1, 0, 2, 3)), (rows, count * size, x.shape[2]))

        def grads(of_loss: Any, *_: Any) -> tuple[Any, Any]:
            of = tf.cast(of_loss, of_x.dtype) * of_x[:, :tokens]
            return of, tf.cast(of_loss, of_table.dtype) * of_table

        return (tf.reduce_sum(loss_B), loss_B, hits_B), grads

    loss, loss_B, hits_B = total(x, table_VxH)
    return loss, tf.stop_gradient(loss_B), tf.stop_gradient(hits_B)


def answer_prompts(
    model: Decoder, prompts_BxP: Any, lengths_B: Any, *, new_tokens: int, eos: int, prefix: bool
) -> Tensors:
    """Generates the likeliest tokens up to eos or `new_tokens`; for use in a tf.function.

    Args:
      model: with at least P + T positions.
      prompts_BxP: int32, padded at the right with any ids.
      lengths_B: int32, tokens of each prompt; for 0 the answer is meaningless.
      new_tokens: T.
      eos: the id that ends an answer.
      prefix: whether attention on the prompt is bidirectional.

    Returns:
      ANSWER_IDS int32 [B, T], eos after a row's end; ANSWER_LENGTHS int32 [B], tokens before eos.
    """
    rows, width = tf.shape(prompts_BxP)[0], prompts_BxP.shape[1] or tf.shape(prompts_BxP)[1]
    lengths_B = tf.maximum(tf.cast(lengths_B, tf.int32), 1)
    index_P = tf.range(width)
    is_prompt_Bx1xP = (index_P[None] < lengths_B[:, None])[:, None]
    allowed = is_prompt_Bx1xP if prefix else is_prompt_Bx1xP & (index_P[None] <= index_P[:, None])
    x_BxPxH, prompt = model.hidden(prompts_BxP, index_P[None], allowed)
    last_BxH = tf.gather(x_BxPxH, lengths_B - 1, batch_dims=1)
    config = model.config
    # Time is the first axis, so that one write adds the tokens of a step.
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

    def add_token(step: Any, done_B: Any, ids_TxB: Any, caches: Any) -> tuple[Any, ...]:
        newest = step - 1  # index of the token to read
        x = model.embed(ids_TxB[newest][:, None], (lengths_B + newest)[:, None])
        is_new_1x1xT = (tf.range(new_tokens) <= newest)[None, None]
        new_caches = []
        for block, of_prompt, cache in zip(model.blocks, prompt, caches, strict=True):
            queries, *keys_values = block.queries_keys_values(x)
            cache = tuple(
                tf.tensor_scatter_nd_update(old, [[newest]], value[None, :, :, 0])
                for old, value in zip(cache, keys_values, strict=True)
            )
            keys, values = (tf.transpose(part, (1, 2, 0, 3)) for part in cache)
            sources = (
                Attended(of_prompt.keys_BxNxMxD, of_prompt.values_BxNxMxD, is_prompt_Bx1xP),
                Attended(keys, values, is_new_1x1xT),
            )
            x = block.rest(x, queries, sources)
            new_caches.append(cache)
        return *take(model.final_norm(x)[:, 0], step, done_B, ids_TxB), new_caches

    ids_TxB = tf.fill((new_tokens, rows), eos)
    begin = take(last_BxH, tf.constant(0), tf.zeros((rows,), tf.bool), ids_TxB)
    _, _, ids_TxB, _ = tf.while_loop(goes_on, add_token, (*begin, caches))
    ids_BxT = tf.transpose(ids_TxB)
    lengths_B = tf.reduce_sum(tf.cast(ids_BxT != eos, tf.int32), axis=1)
    return {ANSWER_IDS: ids_BxT, ANSWER_LENGTHS: lengths_B}


class QaObjective(TfObjective):
    """Cross-entropy of the answers' tokens; evaluations also generate answers."""

    features = ("input_ids", "segment_ids", "loss_weights", "prefix_mask", "prompt_length")

    def __init__(self, config: ModelConfig, schema: Schema, *, answers: bool):
        """Makes the model, in the scope of a strategy; `answers` turns generation on."""
        self.model, self._schema, self._answers = Decoder(config), schema, answers

    def logits(self, batch: Tensors, seed: Seed = None) -> tf.Tensor:
        """Float32 logits [B, L, V] of a batch; a seed turns dropout on."""
        return self.model(
            batch["input_ids"], batch["segment_ids"], batch.get("prefix_mask"), seed=seed
        )

    def sums(self, batch: Tensors, seed: Seed) -> Sums:
        """Sums over the tokens of answers."""
        loss, rows = self._rows(batch, seed)
        return Sums(loss, *map(tf.reduce_sum, rows[1:]))

    def _rows(self, batch: Tensors, seed: Seed = None) -> tuple[tf.Tensor, Sums]:
        """The loss, and each row's sums over the tokens that count; f32 [B]."""
        # The logits at i predict the token at i + 1, in the same segment: the first token of a
        # segment has a loss weight of 0.
        x_BxLxH = self.model.packed_hidden(
            batch["input_ids"], batch["segment_ids"], batch.get("prefix_mask"), seed
        )
        target_BxL = tf.cast(batch["input_ids"], tf.int32)[:, 1:]
        weight_BxL = tf.cast(batch["loss_weights"], tf.float32)[:, 1:]
        loss, loss_B, hits_B = sums_where_counted(
            x_BxLxH[:, :-1], self.model.output_table, target_BxL, weight_BxL
        )
        counted_B = tf.reduce_sum(weight_BxL, axis=1)
        return loss, Sums(loss=loss_B, counted=counted_B, correct=hits_B, tried=counted_B)

    def outputs(self, batch: Tensors) -> Tensors:
        """Each row's sums, and the answer to its prompt."""
        _, rows = self._rows(batch)
        sums = {LOSS: rows.loss, CORRECT: rows.correct, COUNTED: rows.counted}
        if not self._answers:
            return sums
        # The schema guarantees that every prompt leaves room for the longest answer.
        width = batch["input_ids"].shape[1] - self._schema.parameters["max_answer_length"]
        prompts = tf.cast(batch["input_ids"], tf.int32)[:, :width]
        return {**sums, **self._answer(prompts, batch["prompt_length"], self._schema)}

    def _answer(self, prompts_BxP: Any, lengths_B: Any, schema: Schema) -> Tensors:
        return answer_prompts(
            self.model,
            prompts_BxP,
            lengths_B,
            new_tokens=schema.parameters["max_answer_length"],
            eos=schema.special_ids["eos"],
            prefix=schema.parameters["qa_form"] == "prefix",
        )

    def serve(self, schema: Schema) -> Any:
        """The function of a SavedModel, including generation.

        It takes int32 `input_ids` [rows, tokens], prompts padded at the right, and `prompt_lengths`
        [rows]; it returns int32 `answer_ids` [rows, longest answer], padded with eos, and
        `answer_lengths` [rows], the tokens before eos. A prompt may have max_length -
        max_answer_length tokens, see the schema.json in the SavedModel.
        """

        def serve(input_ids: Any, prompt_lengths: Any) -> Tensors:
            return self._answer(input_ids, prompt_lengths, schema)

        return tf.function(serve).get_concrete_function(
            input_ids=tf.TensorSpec((None, None), tf.int32, "input_ids"),
            prompt_lengths=tf.TensorSpec((None,), tf.int32, "prompt_lengths"),
        )


def make_program(plan: TrainingPlan, task: QaTask) -> TfProgram:
    """Question answering."""
    return TfProgram(plan, lambda: QaObjective(plan.model, plan.schema, answers=task.is_scored))
