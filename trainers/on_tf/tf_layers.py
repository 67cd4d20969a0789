"""Parts of encoder and decoder: a layer of attention and feed-forward block.

Weights, statistics of norms, logits and softmax are float32 for any dtype of the computation.
Dropout is a function of a seed, so a resumed run drops the same as an unbroken one.

Legend: B rows, L tokens a row, M attended tokens, H hidden, N heads, D = H / N.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from textmill.trainers.models.families import ACTIVATIONS, Weights
from textmill.trainers.models.model_config import ModelConfig
from textmill.trainers.models.weights import Layout, from_layout, to_layout
from textmill.trainers.on_tf.backend import keras, tf

Tensors: TypeAlias = dict[str, tf.Tensor]
Seed: TypeAlias = Any  # int32 [2], or None for no dropout

MASKED = -1e9  # the logit of tokens that must not be attended; exp() of it is 0 in f32
KERAS = Layout(
    leaves={
        "table": {"weight": "embeddings"},
        "norm": {"weight": "gamma", "bias": "beta"},
        "linear": {"weight": "kernel", "bias": "bias"},
        "matrix": {"weight": "kernel"},
    },
    is_turned=True,
)
FORMULAS: dict[str, Callable[[Any], Any]] = {
    "relu": tf.nn.relu,
    "tanh": tf.tanh,
    "silu": tf.nn.silu,
    "gelu": partial(tf.nn.gelu, approximate=False),
    "tanh_gelu": partial(tf.nn.gelu, approximate=True),
}
fold: Any = tf.random.fold_in


class Attended(NamedTuple):
    """Tokens to attend to, and whether each query may; B or L of `allowed` may be 1."""

    keys_BxNxMxD: Any
    values_BxNxMxD: Any
    allowed_BxLxM: Any


def table(name: str, rows: int, width: int) -> keras.layers.Embedding:
    """Embeddings, with their weights."""
    return _build(keras.layers.Embedding(rows, width, name=name), None)


def norm(name: str, width: int, epsilon: float) -> keras.layers.LayerNormalization:
    """LayerNorm over the last axis, with its weights."""
    return _build(keras.layers.LayerNormalization(epsilon=epsilon, name=name), width)


def dense(name: str, inputs: int, outputs: int, **how: Any) -> keras.layers.Dense:
    """A linear layer, with its weights; `how` as of `keras.layers.Dense`."""
    return _build(keras.layers.Dense(outputs, name=name, **how), inputs)


def _build(layer: Any, width: int | None) -> Any:
    layer.build((None, None, width))
    return layer


def name_variables(model: Any) -> dict[str, keras.Variable]:
    """A model's variables by our names in Keras' layout: "layers.0.qkv.kernel"."""
    return {variable.path.replace("/", "."): variable for variable in model.variables}


def fill(model: Any, weights: Weights) -> None:
    """Puts weights into an `Encoder` or a `Decoder`."""
    values = to_layout(weights, model.config, KERAS)
    for name, variable in name_variables(model).items():
        variable.assign(values[name])


def read(model: Any) -> Weights:
    """The weights of an `Encoder` or a `Decoder`; later steps do not change them."""
    values = {name: variable.numpy() for name, variable in name_variables(model).items()}
    return from_layout(values, model.config, KERAS)


def drop_out(x: tf.Tensor, rate: float, seed: Seed, use: int) -> tf.Tensor:
    """Dropout; without a seed, `x` itself. `use` is a different number for each use of a seed."""
    if seed is None or rate == 0.0:
        return x
    uniform = tf.random.stateless_uniform(tf.shape(x), fold(seed, use))
    return tf.where(uniform >= rate, x / (1.0 - rate), tf.zeros((), x.dtype))


def float32_product(a: Any, b: Any) -> Any:
    """Float32 products a @ b.T: [.., L, D] and [.., M, D] of any float dtype -> [.., L, M].

    A float32 holds the product of two bfloat16 numbers exactly, and a GPU's TF32 the numbers.
    """
    return tf.matmul(tf.cast(a, tf.float32), tf.cast(b, tf.float32), transpose_b=True)


def attend(
    queries_BxNxLxD: Any, sources: Sequence[Attended], *, scale: float, dropout: float, seed: Seed
) -> Any:
    """Attention over all sources, in one softmax: [B, L, H], heads concatenated.

    Keras' `dot_product_attention` rounds logits to the computation's dtype before its softmax, and
    has no dropout.

    Sources are groups of tokens, such as a prompt and the tokens generated after it. A seed turns
    dropout of the probabilities on.
    """
    logits = []
    for keys, _, allowed in sources:
        part = float32_product(queries_BxNxLxD, keys) * scale
        logits.append(tf.where(allowed[:, None], part, MASKED))
    probabilities = tf.nn.softmax(tf.concat(logits, axis=-1))
    probabilities = tf.cast(probabilities, queries_BxNxLxD.dtype)
    probabilities = drop_out(probabilities, dropout, seed, 0)
    widths = [part.shape[3] or tf.shape(part)[3] for part in logits]
    shares = tf.split(probabilities, widths, axis=-1) if len(sources) > 1 else [probabilities]
    mixed_BxNxLxD: Any = sum(
        tf.matmul(share, values) for share, (_, values, _) in zip(shares, sources, strict=True)
    )
    mixed_BxLxNxD: Any = tf.transpose(mixed_BxNxLxD, (0, 2, 1, 3))
    _, length, heads, size = mixed_BxLxNxD.shape
    return tf.reshape(mixed_BxLxNxD, (-1, length or tf.shape(mixed_BxLxNxD)[1], heads * size))


class TransformerLayer(keras.layers.Layer):
    """Self-attention and a feed-forward block, each with a residual and a LayerNorm."""

    def __init__(self, config: ModelConfig, index: int):
        super().__init__(name=str(index))
        self.config, self.scale = config, config.attention_scale(index)
        hidden, wide = config.hidden_size, config.intermediate_size
        epsilon = config.layer_norm_epsilon
        with keras.name_scope(str(index)):
            self.qkv = dense("qkv", hidden, 3 * hidden)
            self.attention_out = dense("attention_out", hidden, hidden)
            self.attention_norm = norm("attention_norm", hidden, epsilon)
            self.mlp_in = dense("mlp_in", hidden, wide)
            self.mlp_out = dense("mlp_out", wide, hidden)
            self.mlp_norm = norm("mlp_norm", hidden, epsilon)
        self.built = True

    def queries_keys_values(self, x_BxLxH: Any) -> tuple[Any, Any, Any]:
        """Queries, keys and values of hidden states, each [B, N, L, D]."""
        qkv = self.qkv(self.attention_norm(x_BxLxH) if self.config.norm_first else x_BxLxH)
        heads, hidden = self.config.heads, self.config.hidden_size
        shape = (-1, qkv.shape[1] or tf.shape(qkv)[1], 3, heads, hidden // heads)
        q, k, v = tf.unstack(tf.transpose(tf.reshape(qkv, shape), (2, 0, 3, 1, 4)))
        return q, k, v

    def rest(
        self, x_BxLxH: Any, queries: Any, sources: Sequence[Attended], seed: Seed = None
    ) -> Any:
        """The rest of the layer from attention on; returns hidden states [B, L, H]."""
        rate, activate = self.config.dropout, FORMULAS[ACTIVATIONS[self.config.activation]]
        attention_rate = self.config.attention_dropout
        mixed = attend(queries, sources, scale=self.scale, dropout=attention_rate, seed=seed)
        x_BxLxH += drop_out(self.attention_out(mixed), rate, seed, 1)
        if self.config.norm_first:
            wide = activate(self.mlp_in(self.mlp_norm(x_BxLxH)))
            return x_BxLxH + drop_out(self.mlp_out(wide), rate, seed, 2)
        x_BxLxH = self.attention_norm(x_BxLxH)
        wide = activate(self.mlp_in(x_BxLxH))
        return self.mlp_norm(x_BxLxH + drop_out(self.mlp_out(wide), rate, seed, 2))


def through_blocks(
    blocks: Sequence[TransformerLayer], x_BxLxH: Any, allowed_BxLxL: Any, seed: Seed = None
) -> tuple[Any, list[Attended]]:
    """Hidden states after all layers, and the keys and values of each."""
    tokens = []
    for index, block in enumerate(blocks):
        queries, keys, values = block.queries_keys_values(x_BxLxH)
        tokens.append(Attended(keys, values, allowed_BxLxL))
        block_seed = None if seed is None else fold(seed, 100 + index)
        x_BxLxH = block.rest(x_BxLxH, queries, tokens[-1:], block_seed)
    return x_BxLxH, tokens
