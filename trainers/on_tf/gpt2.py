"""GPT-2 in Keras layers, with attention that is causal or bidirectional on a prefix.

Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, as published weights
expect it; the prefix is Raffel et al.'s, "Exploring the Limits of Transfer Learning", 2019
(arXiv:1910.10683), section 3.2. What may be attended is a matrix of booleans, so that one model
reads packed rows, prompts, and token after token from a cache.

Legend: B rows, L tokens a row, M tokens that are attended, H hidden, N heads, D = H / N,
V vocabulary.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from trainers.on_tf.backend import keras, tf
from trainers.on_tf.encoder import ACTIVATION, MASKED, Seed, dropped, layer_norm
from trainers.on_tf.gpt2_config import Gpt2Config


class Seen(NamedTuple):
    """Tokens that are attended.

    Attributes:
      keys_BxNxMxD: of the computation's dtype.
      values_BxNxMxD: likewise.
      allowed_BxLxM: bool, whether a query may attend a key; B or L may be 1.
    """

    keys_BxNxMxD: Any
    values_BxNxMxD: Any
    allowed_BxLxM: Any


def allowed_attention(segment_ids_BxL: Any, prefix_mask_BxL: Any = None) -> Any:
    """Bool [B, L, L]: who attends whom in packed rows.

    A token sees its own segment up to itself; and all of its segment's prefix, where there is one.

    Args:
      segment_ids_BxL: any integers; 0 is padding, which sees padding only.
      prefix_mask_BxL: any integers, 1 on a segment's prefix; None is causal.
    """
    segments = tf.cast(segment_ids_BxL, tf.int32)
    places = tf.range(segments.shape[1] or tf.shape(segments)[1])
    seen = places[None, None, :] <= places[None, :, None]
    if prefix_mask_BxL is not None:
        seen |= tf.not_equal(tf.cast(prefix_mask_BxL, tf.int32), 0)[:, None, :]
    return seen & (segments[:, :, None] == segments[:, None, :])


def positions_of(segment_ids_BxL: Any) -> Any:
    """Int32 [B, L], from 0 in each segment: [[1, 1, 1, 2, 2]] -> [[0, 1, 2, 0, 1]]."""
    before = tf.cast(allowed_attention(segment_ids_BxL), tf.int32)
    return tf.reduce_sum(before, axis=2) - 1


class Gpt2Layer(keras.layers.Layer):
    """Self-attention and a feed-forward block, each after a LayerNorm and with a residual."""

    def __init__(self, config: Gpt2Config, index: int):
        """Makes the parts of layer `index`, from 0."""
        super().__init__(name=f"layer_{index}")
        self.sizes, self.scale = config, config.attention_scale(index)
        hidden, epsilon = config.hidden_size, config.layer_norm_epsilon
        # Query, key and value in one product: columns 0..H-1, H..2H-1, 2H..3H-1.
        self.qkv = keras.layers.Dense(3 * hidden, name="qkv")
        self.attention_out = keras.layers.Dense(hidden, name="attention_out")
        self.attention_norm = layer_norm(epsilon, "attention_norm")
        self.mlp_in = keras.layers.Dense(config.intermediate_size, name="mlp_in")
        self.mlp_out = keras.layers.Dense(hidden, name="mlp_out")
        self.mlp_norm = layer_norm(epsilon, "mlp_norm")

    def build(self, input_shape: Any = None) -> None:
        """Makes the weights for hidden states [B, L, H]."""
        hidden = self.sizes.hidden_size
        for part in (self.qkv, self.attention_out, self.attention_norm, self.mlp_in, self.mlp_norm):
            part.build((None, None, hidden))
        self.mlp_out.build((None, None, self.sizes.intermediate_size))
        self.built = True

    def queries_keys_values(self, x_BxLxH: Any) -> tuple[Any, Any, Any]:
        """What attention takes of hidden states, each [B, N, L, D]."""
        qkv = self.qkv(self.attention_norm(x_BxLxH))
        heads, hidden = self.sizes.heads, self.sizes.hidden_size
        shape = (tf.shape(qkv)[0], qkv.shape[1] or tf.shape(qkv)[1], 3, heads, hidden // heads)
        q, k, v = tf.unstack(tf.transpose(tf.reshape(qkv, shape), (2, 0, 3, 1, 4)))
        return q, k, v

    def rest(self, x_BxLxH: Any, queries: Any, seen: Sequence[Seen], seed: Seed = None) -> Any:
        """The layer from attention on: [B, L, H].

        Args:
          x_BxLxH: what came into the layer.
          queries: of it, [B, N, L, D].
          seen: what they attend, in one softmax.
          seed: turns dropout on.
        """
        sizes = self.sizes
        mixed = attend(queries * self.scale, seen, sizes.dropout, seed)
        x_BxLxH += dropped(self.attention_out(mixed), sizes.dropout, seed, 1)
        grown = ACTIVATION[sizes.activation](self.mlp_in(self.mlp_norm(x_BxLxH)))
        return x_BxLxH + dropped(self.mlp_out(grown), sizes.dropout, seed, 2)


def attend(queries_BxNxLxD: Any, seen: Sequence[Seen], dropout: float, seed: Seed) -> Any:
    """Attention over all that is seen: [B, L, H], heads side by side; queries come scaled."""
    logits = [
        tf.where(
            allowed[:, None],
            tf.cast(tf.matmul(queries_BxNxLxD, keys, transpose_b=True), tf.float32),
            MASKED,
        )
        for keys, _, allowed in seen
    ]
    # The softmax is f32 whatever the computation is: bf16 cannot tell close logits apart.
    probabilities = tf.nn.softmax(tf.concat(logits, axis=-1))
    probabilities = tf.cast(probabilities, queries_BxNxLxD.dtype)
    probabilities = dropped(probabilities, dropout, seed, 0)
    # Split where one kind of tokens ends and the next begins.
    widths = [keys.shape[2] or tf.shape(keys)[2] for keys, _, _ in seen]
    shares = tf.split(probabilities, widths, axis=-1) if len(seen) > 1 else [probabilities]
    mixed_BxNxLxD: Any = sum(
        tf.matmul(share, values) for share, (_, values, _) in zip(shares, seen, strict=True)
    )
    mixed_BxLxNxD = tf.transpose(mixed_BxNxLxD, (0, 2, 1, 3))
    rows, length, heads, size = (
        known or tf.shape(mixed_BxLxNxD)[axis] for axis, known in enumerate(mixed_BxLxNxD.shape)
    )
    return tf.reshape(mixed_BxLxNxD, (rows, length, heads * size))


class Gpt2(keras.Model):
    """Packed rows to the logits of each next token; its parts serve generation too."""

    def __init__(self, config: Gpt2Config):
        """Makes the parts; `build_gpt2` makes their weights too."""
        super().__init__(name="gpt2")
        self.sizes = config
        hidden = config.hidden_size
        self.tokens = keras.layers.Embedding(config.vocab_size, hidden, name="tokens")
        self.positions = keras.layers.Embedding(config.max_positions, hidden, name="positions")
        self.blocks = [Gpt2Layer(config, index) for index in range(config.layers)]
        self.final_norm = layer_norm(config.layer_norm_epsilon, "final_norm")
        if not config.tied:
            self.head = keras.layers.Dense(config.vocab_size, use_bias=False, name="head")

    def build(self, input_shape: Any = None) -> None:
        """Makes all weights, without running anything."""
        for table in (self.tokens, self.positions):
            table.build((None, None))
        for block in self.blocks:
            block.build()
        self.final_norm.build((None, None, self.sizes.hidden_size))
        if not self.sizes.tied:
            self.head.build((None, None, self.sizes.hidden_size))
        self.built = True

    def embed(self, input_ids_BxL: Any, positions_BxL: Any, seed: Seed = None) -> Any:
        """Hidden states [B, L, H] before the first layer."""
        x_BxLxH = self.tokens(tf.cast(input_ids_BxL, tf.int32)) + self.positions(positions_BxL)
        return dropped(x_BxLxH, self.sizes.dropout, seed, 0)

    def hidden(
        self, input_ids_BxL: Any, positions_BxL: Any, allowed_BxLxL: Any, seed: Seed = None
    ) -> tuple[Any, list[Seen]]:
        """What the head reads, [B, L, H], and what each layer's tokens have been seen as.

        Args:
          input_ids_BxL: any integers.
          positions_BxL: int32.
          allowed_BxLxL: bool.
          seed: int32 [2], turns dropout on.
        """
        fold: Any = tf.random.fold_in
        x_BxLxH, made = self.embed(input_ids_BxL, positions_BxL, seed), []
        for index, block in enumerate(self.blocks):
            queries, keys, values = block.queries_keys_values(x_BxLxH)
            made.append(Seen(keys, values, allowed_BxLxL))
            block_seed = None if seed is None else fold(seed, 100 + index)
            x_BxLxH = block.rest(x_BxLxH, queries, made[-1:], block_seed)
        return self.final_norm(x_BxLxH), made

    def logits(self, x_BxLxH: Any) -> Any:
        """What `hidden` gave to f32 logits [B, L, V] of the token after each."""
        if not self.sizes.tied:
            return tf.cast(self.head(x_BxLxH), tf.float32)
        table = tf.cast(tf.convert_to_tensor(self.tokens.embeddings), x_BxLxH.dtype)
        return tf.cast(tf.matmul(x_BxLxH, table, transpose_b=True), tf.float32)

    def call(
        self,
        input_ids_BxL: Any,
        segment_ids_BxL: Any,
        prefix_mask_BxL: Any = None,
        seed: Seed = None,
    ) -> Any:
        """Logits f32 [B, L, V] of the token after each, within its segment.

        Args:
          input_ids_BxL: any integers.
          segment_ids_BxL: any integers; 0 is padding.
          prefix_mask_BxL: 1 where attention is bidirectional; None is causal.
          seed: turns dropout on.
        """
        allowed = allowed_attention(segment_ids_BxL, prefix_mask_BxL)
        x_BxLxH, _ = self.hidden(input_ids_BxL, positions_of(segment_ids_BxL), allowed, seed)
        return self.logits(x_BxLxH)


def build_gpt2(config: Gpt2Config) -> Gpt2:
    """A GPT-2 with weights of no meaning yet; under a strategy call this in its scope."""
    model = Gpt2(config)
    model.build()
    return model
