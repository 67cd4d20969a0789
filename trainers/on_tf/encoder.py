"""An encoder of BERT's family with a classification head, in Keras layers.

The architectures of Devlin et al., "BERT", 2018 (arXiv:1810.04805), Liu et al., "RoBERTa", 2019
(arXiv:1907.11692) and Clark et al., "ELECTRA", 2020 (arXiv:2003.10555), as published weights expect
them. Dropout is a function of a seed, so that a resumed run drops what the first would have.

Legend: B rows, L tokens a row, H hidden, N heads, D = H / N, C classes.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from trainers.models.encoder import EncoderConfig
from trainers.on_tf.backend import keras, tf

Activation: TypeAlias = Callable[[tf.Tensor], tf.Tensor]
Seed: TypeAlias = Any  # int32 [2], or None for no dropout

MASKED = -1e9  # the logit of what may not be attended; exp() of it is 0 in f32
ACTIVATION: dict[str, Activation] = {
    "gelu": lambda x: tf.nn.gelu(x, approximate=False),
    "gelu_new": lambda x: tf.nn.gelu(x, approximate=True),
    "gelu_pytorch_tanh": lambda x: tf.nn.gelu(x, approximate=True),
    "relu": tf.nn.relu,
    "silu": tf.nn.silu,
    "tanh": tf.tanh,
}


def dropped(x: tf.Tensor, rate: float, seed: Seed, place: int) -> tf.Tensor:
    """Dropout; without a seed, `x` itself.

    Args:
      x: of any shape.
      rate: share that is set to 0.
      seed: of the step.
      place: another number for each use in a step.
    """
    if seed is None or rate == 0.0:
        return x
    fold: Any = tf.random.fold_in
    uniform = tf.random.stateless_uniform(tf.shape(x), fold(seed, place))
    return tf.where(uniform >= rate, x / (1.0 - rate), tf.zeros((), x.dtype))


class EncoderLayer(keras.layers.Layer):
    """Self-attention and a feed-forward block, each followed by residual and LayerNorm."""

    def __init__(self, config: EncoderConfig, name: str):
        """Makes the parts."""
        super().__init__(name=name)
        self.sizes = config
        hidden, epsilon = config.hidden_size, config.layer_norm_epsilon
        # Query, key and value in one product: columns 0..H-1, H..2H-1, 2H..3H-1.
        self.qkv = keras.layers.Dense(3 * hidden, name="qkv")
        self.attention_out = keras.layers.Dense(hidden, name="attention_out")
        self.attention_norm = layer_norm(epsilon, "attention_norm")
        self.mlp_in = keras.layers.Dense(config.intermediate_size, name="mlp_in")
        self.mlp_out = keras.layers.Dense(hidden, name="mlp_out")
        self.mlp_norm = layer_norm(epsilon, "mlp_norm")

    def build(self, input_shape: Any) -> None:
        """Makes the weights for hidden states [B, L, H]."""
        hidden = self.sizes.hidden_size
        for part in (self.qkv, self.attention_out, self.attention_norm):
            part.build((None, None, hidden))
        for part in (self.mlp_in, self.mlp_norm):
            part.build((None, None, hidden))
        self.mlp_out.build((None, None, self.sizes.intermediate_size))
        self.built = True

    def call(self, x_BxLxH: Any, is_text_BxL: Any, seed: Seed = None) -> Any:
        """One layer: [B, L, H] -> [B, L, H]; a seed turns dropout on."""
        sizes = self.sizes
        mixed = attend(self.qkv(x_BxLxH), is_text_BxL, sizes.heads, sizes.attention_dropout, seed)
        mixed = dropped(self.attention_out(mixed), sizes.dropout, seed, 1)
        x_BxLxH = self.attention_norm(x_BxLxH + mixed)
        grown = ACTIVATION[sizes.activation](self.mlp_in(x_BxLxH))
        return self.mlp_norm(x_BxLxH + dropped(self.mlp_out(grown), sizes.dropout, seed, 2))


def layer_norm(epsilon: float, name: str) -> keras.layers.LayerNormalization:
    """LayerNorm over the hidden states; its statistics are f32 whatever the computation is."""
    return keras.layers.LayerNormalization(epsilon=epsilon, name=name)


def attend(qkv_BxLx3H: Any, is_text_BxL: Any, heads: int, dropout: float, seed: Seed) -> tf.Tensor:
    """Attention of every head: [B, L, H], heads side by side.

    Args:
      qkv_BxLx3H: queries, keys, values side by side.
      is_text_BxL: bool, whether a token may be attended. Keras would cast a bias to bf16.
      heads: N.
      dropout: of probabilities.
      seed: turns dropout on.
    """
    batch, length = tf.shape(qkv_BxLx3H)[0], qkv_BxLx3H.shape[1]
    hidden = qkv_BxLx3H.shape[2] // 3
    parts = tf.reshape(qkv_BxLx3H, (batch, length or -1, 3, heads, hidden // heads))
    q_BxNxLxD, k_BxNxLxD, v_BxNxLxD = tf.unstack(tf.transpose(parts, (2, 0, 3, 1, 4)))
    logits = tf.matmul(q_BxNxLxD * (hidden // heads) ** -0.5, k_BxNxLxD, transpose_b=True)
    # The softmax is f32 whatever the computation is: bf16 cannot tell close logits apart.
    logits = tf.where(is_text_BxL[:, None, None], tf.cast(logits, tf.float32), MASKED)
    probabilities = tf.nn.softmax(logits)
    probabilities = dropped(tf.cast(probabilities, v_BxNxLxD.dtype), dropout, seed, 0)
    mixed_BxLxNxD = tf.transpose(tf.matmul(probabilities, v_BxNxLxD), (0, 2, 1, 3))
    return tf.reshape(mixed_BxLxNxD, (batch, length or -1, hidden))


class Encoder(keras.Model):
    """Rows of one example each to logits of the classes."""

    def __init__(self, config: EncoderConfig):
        """Makes the parts; `build_encoder` makes their weights too."""
        super().__init__(name=config.architecture)
        self.sizes = config
        width, hidden = config.embedding_size, config.hidden_size
        self.tokens = keras.layers.Embedding(config.vocab_size, width, name="tokens")
        self.positions = keras.layers.Embedding(config.position_rows, width, name="positions")
        self.token_types = keras.layers.Embedding(config.type_rows, width, name="token_types")
        self.embedding_norm = layer_norm(config.layer_norm_epsilon, "embedding_norm")
        if config.is_projected:
            self.projection = keras.layers.Dense(hidden, name="projection")
        self.blocks = [EncoderLayer(config, f"layer_{index}") for index in range(config.layers)]
        self.head_dense = keras.layers.Dense(hidden, name="head_dense")
        self.head_out = keras.layers.Dense(len(config.classes), name="head_out")

    def build(self, input_shape: Any = None) -> None:
        """Makes all weights, without running anything."""
        config = self.sizes
        for table in (self.tokens, self.positions, self.token_types):
            table.build((None, None))
        self.embedding_norm.build((None, None, config.embedding_size))
        if config.is_projected:
            self.projection.build((None, None, config.embedding_size))
        for block in self.blocks:
            block.build((None, None, config.hidden_size))
        for part in (self.head_dense, self.head_out):
            part.build((None, config.hidden_size))
        self.built = True

    def encode(
        self, input_ids_BxL: Any, segment_ids_BxL: Any, token_types_BxL: Any, seed: Seed = None
    ) -> Any:
        """Hidden states [B, L, H] of the computation's dtype.

        Args:
          input_ids_BxL: any integers.
          segment_ids_BxL: any integers; 0 is padding.
          token_types_BxL: any integers, or None where all are 0; RoBERTa knows one type only.
          seed: turns dropout on.
        """
        config = self.sizes
        is_text_BxL = tf.not_equal(tf.cast(segment_ids_BxL, tf.int32), 0)
        length = input_ids_BxL.shape[1] or tf.shape(input_ids_BxL)[1]
        x_BxLxE = self.tokens(tf.cast(input_ids_BxL, tf.int32))
        # A row is one example and starts at position 0; padding is never attended.
        x_BxLxE += self.positions(tf.range(length) + config.position_offset)
        if token_types_BxL is None or config.type_rows == 1:
            x_BxLxE += self.token_types(tf.zeros((1, 1), tf.int32))
        else:
            x_BxLxE += self.token_types(tf.cast(token_types_BxL, tf.int32))
        x_BxLxH = dropped(self.embedding_norm(x_BxLxE), config.dropout, seed, 0)
        if config.is_projected:
            x_BxLxH = self.projection(x_BxLxH)
        fold: Any = tf.random.fold_in
        for index, block in enumerate(self.blocks):
            block_seed = None if seed is None else fold(seed, 100 + index)
            x_BxLxH = block(x_BxLxH, is_text_BxL, block_seed)
        return x_BxLxH

    def call(
        self,
        input_ids_BxL: Any,
        segment_ids_BxL: Any,
        token_types_BxL: Any = None,
        seed: Seed = None,
    ) -> Any:
        """Logits f32 [B, C]; arguments as of `encode`."""
        config = self.sizes
        x_BxH = self.encode(input_ids_BxL, segment_ids_BxL, token_types_BxL, seed)[:, 0]
        if config.architecture == "bert":  # the pooler, which is published with the encoder
            x_BxH = tf.tanh(self.head_dense(x_BxH))
        else:
            x_BxH = dropped(x_BxH, config.classifier_dropout, seed, 1)
            x_BxH = self.head_dense(x_BxH)
            is_roberta = config.architecture == "roberta"
            x_BxH = tf.tanh(x_BxH) if is_roberta else tf.nn.gelu(x_BxH, approximate=False)
        x_BxH = dropped(x_BxH, config.classifier_dropout, seed, 2)
        return tf.cast(self.head_out(x_BxH), tf.float32)


def build_encoder(config: EncoderConfig) -> Encoder:
    """An encoder with weights of no meaning yet; under a strategy call this in its scope."""
    model = Encoder(config)
    model.build()
    return model
