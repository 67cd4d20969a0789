"""The model families: their modules with weights, and their keys in config.json.

A new family is a row of FAMILIES. Fields of Dimensions without a key keep their default, or the
value of `always`.
"""

from __future__ import annotations

from functools import partial
from typing import (
    Any,
    Callable,
    Dict,
    Mapping,
    NamedTuple,
    Sequence,
    Tuple,
)

import numpy as np

from textmill.trainers.models.dimensions import Dimensions
from textmill.trainers.models.rope import Rope, RopeKey

Weights = Dict[str, np.ndarray]
"""Our name of each weight, "layers.0.qkv.weight", to a float32 array in PyTorch's layout: a linear
layer is [out, in]; query, key and value are concatenated along the first axis, in this order."""

NORMAL = None
LEAVES: dict[str, dict[str, float | None]] = {
    "table": {"weight": NORMAL},
    "norm": {"weight": 1.0, "bias": 0.0},
    "bare_norm": {"weight": 1.0},  # a LayerNorm without a bias
    "scale": {"weight": 1.0},  # an RMSNorm
    "offset_scale": {"weight": 0.0},  # an RMSNorm that multiplies by 1 + weight
    "linear": {"weight": NORMAL, "bias": 0.0},
    "matrix": {"weight": NORMAL},  # a linear layer without a bias
    "vector": {"bias": 0.0},
}
"""Kind of module -> its weights -> their initial value, or NORMAL for normal random numbers."""

ACTIVATIONS = {
    **{name: name for name in ("relu", "tanh", "silu", "gelu")},
    "swish": "silu",
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), "tanh_gelu"),
}
"""Hugging Face's names of activations -> the formulas that each framework implements."""


class Module(NamedTuple):
    """A module with weights."""

    ours: str  # "layers.0.qkv"
    theirs: tuple[str, ...]  # Hugging Face's names; several are concatenated along our first axis
    kind: str  # a key of LEAVES
    rows: tuple[int, ...]  # length of the first axis, for each of `theirs`
    width: int = 0  # length of the second axis; 0 if there is none
    deviation: float = 0.02  # standard deviation of new weights
    is_turned: bool = False  # whether Hugging Face stores [in, out] (GPT-2's Conv1D)
    part: str = ""  # a part that published weights may lack as a whole; "" if they may not
    joined: tuple[int, ...] = ()  # rows of each matrix, if one of theirs joins several (c_attn)

    @property
    def leaves(self) -> dict[str, tuple[int, ...]]:
        """Its weights and their shapes: {"weight": (out, in), "bias": (out,)}."""
        rows = (sum(self.rows),)
        shapes = {"weight": (*rows, self.width) if self.width else rows, "bias": rows}
        return {leaf: shapes[leaf] for leaf in LEAVES[self.kind]}

    @property
    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Hugging Face's names and the shapes in its files."""
        return {
            f"{name}.{leaf}": (rows, *shape[1:])[:: -1 if self.is_turned else 1]
            for leaf, shape in self.leaves.items()
            for name, rows in zip(self.theirs, self.rows)
        }


Table = Sequence[Tuple[Any, ...]]


def modules_at(ours: str, theirs: str, table: Table) -> list[Module]:
    """Modules whose names have a common prefix, such as those of a layer.

    modules_at("layers.0.", "h.0.", [("mlp_in", "linear", "mlp.c_fc", 512, 128)]) is [Module(
    "layers.0.mlp_in", ("h.0.mlp.c_fc",), "linear", rows=(512,), width=128)]. Names and rows of
    Hugging Face may be tuples.
    """
    modules = []
    for name, kind, names, rows, *width in table:
        names = (names,) if isinstance(names, str) else names
        rows = (rows,) * len(names) if isinstance(rows, int) else rows
        modules.append(Module(ours + name, tuple(theirs + n for n in names), kind, rows, *width))
    return modules


ELECTRA_EMBEDDING = 128  # in ELECTRA's small model; larger ones use the hidden size


class Key(NamedTuple):
    """A field of Dimensions in Hugging Face's config.json."""

    ours: str  # the field
    theirs: str  # the key
    # The field's value if config.json lacks the key, as in transformers; or a function of the
    # fields of earlier keys.
    absent: Any
    is_opposite: bool = False  # whether theirs is the negation of ours
    null: Any = None  # the field's value that null in config.json means

    def read(self, value: Any) -> Any:
        """Converts a value of theirs, not null, to ours."""
        return not value if self.is_opposite else value

    def write(self, value: Any) -> Any:
        """Converts a value of ours to theirs."""
        return None if value == self.null else self.read(value)


class LocalKey(NamedTuple):
    """Which layers are local in config.json: `layer_types`, or an older key, a number."""

    theirs: str  # the older key: one of so many layers is global
    every: int  # its default
    is_first: bool = False  # whether that is the first of them; else the last

    def pattern(self, layers: int, every: int) -> tuple[bool, ...]:
        """Whether each layer is local; if is_first, (5, 3) -> (False, True, True, False, True)."""
        index = 0 if self.is_first else every - 1
        # A hostile number of layers is refused later, as there are fewer tensors.
        return tuple(layer % every != index for layer in range(min(layers, 1 << 12)))


class ModelFamily(NamedTuple):
    """A model family."""

    classes: tuple[str, ...]  # in transformers: language model, and classifier if trainers have one
    base: str  # prefix of names in files; models saved without a head lack it
    body: Callable[[Dimensions], list[Module]]  # a model's modules without its head
    # Names of a language model's head. The last is the output layer if it is not tied; an encoder's
    # head has a dense layer, a norm and a bias before.
    head: tuple[str, ...]
    keys: tuple[Key, ...]  # in config.json; the first of two for one field decides its default
    fixed: Mapping[str, Any]  # keys that would make a different model, with the only value accepted
    head_kinds: tuple[str, str] = ("linear", "norm")  # of the dense layer and norm in that head
    class_head: tuple[str, ...] = ()  # names of a classifier's dense layer and output layer
    # Prefixes of names that a language model ignores, and that a classifier ignores.
    other_heads: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    local: LocalKey | None = None  # which of its layers are local
    ropes: tuple[RopeKey, ...] = ()  # its rotary positions; the first are those of `rope_scaling`
    always: Mapping[str, Any] = {}  # fields with one value in the family, not Dimensions' default
    # Whether `hidden_size` need not be a multiple of `heads`, as in the family of transformers.
    has_any_heads: bool = False
    new: Mapping[str, Any] = {}  # as `Key.absent`, of new models, where it differs
    dropout_keys: tuple[str, ...] = ()  # keys that are written from `dropout` and never read
    eos_ids: tuple[int, ...] | None = None  # default eos ids of config.json; None for encoders
    # Fields that depend on several keys, from the fields that `keys` gave.
    read_more: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda _: {}
    # Keys that depend on several fields or keys, from the model and the other keys.
    write_more: Callable[[Dimensions, Mapping[str, Any]], Mapping[str, Any]] = lambda *_: {}

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields in its config.json."""
        names = tuple(key.ours for key in (*self.keys, *self.ropes))
        return (*names, "local_layers") if self.local else names

    def complete(self, values: Mapping[str, Any], new: Mapping[str, Any] = {}) -> dict[str, Any]:
        """Adds the family's defaults to some fields, where `new` has none."""
        values = {**self.always, **{key.ours: Rope(key.theta) for key in self.ropes}, **values}
        defaults = [(key.ours, key.absent) for key in self.keys if key.ours not in new]
        for name, default in [*defaults, *new.items()]:
            if name not in values:
                values[name] = default(values) if callable(default) else default
        if self.local:
            values.setdefault(
                "local_layers", self.local.pattern(values["layers"], self.local.every)
            )
        return {**self.of_all_heads(values), **values}

    @staticmethod
    def of_all_heads(values: Mapping[str, Any]) -> dict[str, Any]:
        """The widths of models without keys for them."""
        hidden, heads = values["hidden_size"], values["heads"]
        return {"embedding_size": hidden, "kv_heads": heads, "head_size": _head_size(values)}


def _head_size(values: Mapping[str, Any]) -> int:
    return values["hidden_size"] // max(values["heads"], 1)


def _stack(
    config: Dimensions, embeddings: Table, at: str, layer: Table, last: Table = ()
) -> list[Module]:
    """Embeddings, the layers at "encoder.layer", and what follows them."""
    base = FAMILIES[config.family].base
    modules = modules_at("embeddings.", base, embeddings)
    for n in range(config.layers):
        modules += modules_at(f"layers.{n}.", f"{base}{at}.{n}.", layer)
    return modules + modules_at("", base, last)


def _encoder(config: Dimensions) -> list[Module]:
    width, hidden, wide = config.embedding_size, config.hidden_size, config.intermediate_size
    embeddings = [
        ("tokens", "table", "embeddings.word_embeddings", config.vocab_size, width),
        ("positions", "table", "embeddings.position_embeddings", config.position_rows, width),
        ("token_types", "table", "embeddings.token_type_embeddings", config.token_types, width),
        ("norm", "norm", "embeddings.LayerNorm", width),
    ]
    if config.is_projected:
        embeddings.append(("projection", "linear", "embeddings_project", hidden, width))
    qkv = tuple(f"attention.self.{part}" for part in ("query", "key", "value"))
    layer = [
        ("qkv", "linear", qkv, hidden, hidden),
        ("attention_out", "linear", "attention.output.dense", hidden, hidden),
        ("attention_norm", "norm", "attention.output.LayerNorm", hidden),
        ("mlp_in", "linear", "intermediate.dense", wide, hidden),
        ("mlp_out", "linear", "output.dense", hidden, wide),
        ("mlp_norm", "norm", "output.LayerNorm", hidden),
    ]
    return _stack(config, embeddings, "encoder.layer", layer)


def _refine(
    modules: list[Module], config: Dimensions, joined: Mapping[str, tuple[int, ...]]
) -> list[Module]:
    """Modules with `joined` by name; the residual stream sums 2 * layers outputs."""
    less = {"deviation": 0.02 * (2 * config.layers) ** -0.5}
    refined = []
    for module in modules:
        name = module.ours.rpartition(".")[2]
        module = module._replace(joined=joined.get(name, ()))
        refined.append(module._replace(**less) if name.endswith("_out") else module)
    return refined


def _modernbert(config: Dimensions) -> list[Module]:
    hidden, wide = config.hidden_size, config.intermediate_size
    embeddings = [
        ("tokens", "table", "embeddings.tok_embeddings", config.vocab_size, hidden),
        ("norm", "bare_norm", "embeddings.norm", hidden),
    ]
    layer = [
        ("attention_norm", "bare_norm", "attn_norm", hidden),
        ("qkv", "matrix", "attn.Wqkv", 3 * hidden, hidden),
        ("attention_out", "matrix", "attn.Wo", hidden, hidden),
        ("mlp_norm", "bare_norm", "mlp_norm", hidden),
        ("mlp_in", "matrix", "mlp.Wi", 2 * wide, hidden),
        ("mlp_out", "matrix", "mlp.Wo", hidden, wide),
    ]
    last = [("final_norm", "bare_norm", "final_norm", hidden)]
    modules = _stack(config, embeddings, "layers", layer, last)
    # The embeddings' norm is before the first attention.
    modules = [module for module in modules if module.ours != "layers.0.attention_norm"]
    return _refine(modules, config, {"qkv": (hidden,) * 3, "mlp_in": (wide, wide)})


def _gpt2(config: Dimensions) -> list[Module]:
    hidden, wide = config.hidden_size, config.intermediate_size
    embeddings = [
        ("tokens", "table", "wte", config.vocab_size, hidden),
        ("positions", "table", "wpe", config.position_rows, hidden),
    ]
    layer = [
        ("attention_norm", "norm", "ln_1", hidden),
        ("qkv", "linear", "attn.c_attn", 3 * hidden, hidden),
        ("attention_out", "linear", "attn.c_proj", hidden, hidden),
        ("mlp_norm", "norm", "ln_2", hidden),
        ("mlp_in", "linear", "mlp.c_fc", wide, hidden),
        ("mlp_out", "linear", "mlp.c_proj", hidden, wide),
    ]
    modules = _stack(config, embeddings, "h", layer, [("final_norm", "norm", "ln_f", hidden)])
    modules = _refine(modules, config, {"qkv": (hidden,) * 3})
    return [module._replace(is_turned=module.kind == "linear") for module in modules]


def _opt(config: Dimensions) -> list[Module]:
    width, hidden, wide = config.embedding_size, config.hidden_size, config.intermediate_size
    embeddings = [
        ("tokens", "table", "decoder.embed_tokens", config.vocab_size, width),
        ("positions", "table", "decoder.embed_positions", config.position_rows, hidden),
    ]
    layer = [
        ("qkv", "linear", tuple(f"self_attn.{part}_proj" for part in "qkv"), hidden, hidden),
        ("attention_out", "linear", "self_attn.out_proj", hidden, hidden),
        ("attention_norm", "norm", "self_attn_layer_norm", hidden),
        ("mlp_in", "linear", "fc1", wide, hidden),
        ("mlp_out", "linear", "fc2", hidden, wide),
        ("mlp_norm", "norm", "final_layer_norm", hidden),
    ]
    last = []
    if config.final_norm:
        last.append(("final_norm", "norm", "decoder.final_layer_norm", hidden))
    if config.is_projected:
        embeddings.append(("projection", "matrix", "decoder.project_in", hidden, width))
        last.append(("project_out", "matrix", "decoder.project_out", width, hidden))
    return _stack(config, embeddings, "decoder.layers", layer, last)


# Our names of the norms of a layer to those in Llama, in OLMo 2 and in Gemma.
_BEFORE = {"attention_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"}
_AFTER = {
    "attention_out_norm": "post_attention_layernorm",
    "mlp_out_norm": "post_feedforward_layernorm",
}
_AROUND = {
    "attention_norm": "input_layernorm",
    "mlp_norm": "pre_feedforward_layernorm",
    **_AFTER,
}


def _llama(
    config: Dimensions,
    *,
    norms: Mapping[str, str] = _BEFORE,
    norm: str = "scale",
    qkv: str = "matrix",
    qk_norm: str = "none",
) -> list[Module]:
    """Llama and its kin: kinds of the norms and of `qkv`, and what `qk_norm` is over."""
    hidden, wide, size = config.hidden_size, config.intermediate_size, config.head_size
    queries, keys = config.heads * size, config.kv_heads * size
    parts = tuple(f"self_attn.{part}_proj" for part in "qkv")
    layer = [(ours, norm, theirs, hidden) for ours, theirs in norms.items()]
    layer += [
        ("qkv", qkv, parts, (queries, keys, keys), hidden),
        ("attention_out", "matrix", "self_attn.o_proj", hidden, queries),
        ("mlp_in", "matrix", ("mlp.gate_proj", "mlp.up_proj"), wide, hidden),
        ("mlp_out", "matrix", "mlp.down_proj", hidden, wide),
    ]
    widths = {"head": (size, size), "all heads": (queries, keys), "none": ()}[qk_norm]
    for name, width in zip(("query", "key"), widths):
        layer.append((f"{name}_norm", norm, f"self_attn.{name[0]}_norm", width))
    tokens = [("tokens", "table", "embed_tokens", config.vocab_size, hidden)]
    return _stack(config, tokens, "layers", layer, [("final_norm", norm, "norm", hidden)])


def head_modules(config: Dimensions) -> list[Module]:
    """The modules of a model's head; a decoder's tied head has none."""
    row, hidden = FAMILIES[config.family], config.hidden_size
    if config.classes:
        dense, out = row.class_head
        return [
            Module("head.dense", (dense,), "linear", (hidden,), hidden, part=dense),
            Module("head.out", (out,), "linear", (len(config.classes),), hidden, part=out),
        ]
    tokens, width = config.vocab_size, config.embedding_size
    *before, table = row.head
    if not before:
        return [] if config.tied else [Module("head", (table,), "matrix", (tokens,), width)]
    dense, norm, bias = before
    modules = [
        Module("head.dense", (dense,), row.head_kinds[0], (width,), hidden),
        Module("head.norm", (norm,), row.head_kinds[1], (width,)),
        Module("head", (bias if config.tied else table,), "vector", (tokens,)),
    ]
    if not config.tied:
        modules.append(Module("head.table", (table,), "table", (tokens,), width))
    # A classifier of ModernBERT has the dense layer and the norm, too.
    layer = "the output head" if row.class_head else "the output layer"
    parts = ("the output head", "the output head", layer, layer)
    return [module._replace(part=part) for module, part in zip(modules, parts)]


_KEYS = (
    Key("vocab_size", "vocab_size", 30522),
    Key("hidden_size", "hidden_size", 768),
    Key("layers", "num_hidden_layers", 12),
    Key("heads", "num_attention_heads", 12),
    Key("intermediate_size", "intermediate_size", 3072),
    Key("max_positions", "max_position_embeddings", 512),
    Key("token_types", "type_vocab_size", 2),
    Key("activation", "hidden_act", "gelu"),
    Key("layer_norm_epsilon", "layer_norm_eps", 1e-12),
    Key("tied", "tie_word_embeddings", True),
    Key("dropout", "hidden_dropout_prob", 0.1),
    Key("attention_dropout", "attention_probs_dropout_prob", 0.1),
    Key("classifier_dropout", "classifier_dropout", lambda fields: fields["dropout"]),
)
_BESIDES_BOTH = ("roberta.pooler.", "discriminator_predictions.", "qa_outputs.")
_OF_ENCODERS: dict[str, Any] = {
    "body": _encoder,
    "fixed": {
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
    },
    "other_heads": (
        (*_BESIDES_BOTH, "bert.pooler.", "cls.seq_relationship.", "classifier."),
        (*_BESIDES_BOTH, "cls.", "lm_head.", "generator_"),
    ),
}
_BERT, _TRANSFORM = "cls.predictions", "cls.predictions.transform"
_ELECTRA = "generator_predictions"
FAMILIES = {
    "bert": ModelFamily(
        classes=("BertForMaskedLM", "BertForSequenceClassification"),
        base="bert.",
        head=(f"{_TRANSFORM}.dense", f"{_TRANSFORM}.LayerNorm", _BERT, f"{_BERT}.decoder"),
        class_head=("bert.pooler.dense", "classifier"),
        keys=_KEYS,
        **_OF_ENCODERS,
    ),
    "roberta": ModelFamily(
        classes=("RobertaForMaskedLM", "RobertaForSequenceClassification"),
        base="roberta.",
        head=("lm_head.dense", "lm_head.layer_norm", "lm_head", "lm_head.decoder"),
        class_head=("classifier.dense", "classifier.out_proj"),
        keys=(
            Key("vocab_size", "vocab_size", 50265),
            Key("position_offset", "pad_token_id", 1),
            *_KEYS,
        ),
        # Positions begin after the padding id, and their key counts all rows of the table.
        read_more=lambda fields: {
            "position_offset": fields["position_offset"] + 1,
            "max_positions": fields["max_positions"] - fields["position_offset"] - 1,
        },
        write_more=lambda config, _: {
            "pad_token_id": config.position_offset - 1,
            "max_position_embeddings": config.position_rows,
        },
        new={"token_types": 1, "layer_norm_epsilon": 1e-5},
        **_OF_ENCODERS,
    ),
    "electra": ModelFamily(
        classes=("ElectraForMaskedLM", "ElectraForSequenceClassification"),
        base="electra.",
        head=(f"{_ELECTRA}.dense", f"{_ELECTRA}.LayerNorm", *("generator_lm_head",) * 2),
        class_head=("classifier.dense", "classifier.out_proj"),
        keys=(
            Key("hidden_size", "hidden_size", 256),
            Key("heads", "num_attention_heads", 4),
            Key("intermediate_size", "intermediate_size", 1024),
            Key("embedding_size", "embedding_size", ELECTRA_EMBEDDING),
            *_KEYS,
        ),
        **_OF_ENCODERS,
    ),
    "modernbert": ModelFamily(
        classes=("ModernBertForMaskedLM",),
        base="model.",
        body=_modernbert,
        head=("head.dense", "head.norm", "decoder", "decoder"),
        head_kinds=("matrix", "bare_norm"),
        keys=(
            Key("vocab_size", "vocab_size", 50368),
            Key("hidden_size", "hidden_size", 768),
            Key("layers", "num_hidden_layers", 22),
            Key("heads", "num_attention_heads", 12),
            Key("intermediate_size", "intermediate_size", 1152),
            Key("max_positions", "max_position_embeddings", 8192),
            Key("activation", "hidden_activation", "gelu"),
            Key("layer_norm_epsilon", "norm_eps", 1e-5),
            Key("window", "local_attention", 128),
            Key("tied", "tie_word_embeddings", True),
        ),
        local=LocalKey("global_attn_every_n_layers", 3, is_first=True),
        ropes=(
            RopeKey("rope", "global_rope_theta", 160000.0, "full_attention"),
            RopeKey("local_rope", "local_rope_theta", 10000.0, "sliding_attention"),
        ),
        fixed={
            **dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), False),
            "decoder_bias": True,
            "classifier_activation": "gelu",
            "rope_scaling": None,
        },
        other_heads=(("classifier.",), ()),
        always={"norm_first": True, "final_norm": True, "is_gated": True},
        dropout_keys=("embedding_dropout", "attention_dropout", "mlp_dropout"),
        write_more=lambda _, content: {  # it has two names for each
            "cls_token_id": content["bos_token_id"],
            "sep_token_id": content["eos_token_id"],
        },
    ),
    "gpt2": ModelFamily(
        classes=("GPT2LMHeadModel",),
        base="transformer.",
        body=_gpt2,
        head=("lm_head",),
        keys=(
            Key("vocab_size", "vocab_size", 50257),
            Key("max_positions", "n_positions", 1024),
            Key("layers", "n_layer", 12),
            Key("hidden_size", "n_embd", 768),
            Key("heads", "n_head", 12),
            Key("intermediate_size", "n_inner", lambda fields: 4 * fields["hidden_size"]),
            Key("activation", "activation_function", "gelu_new"),
            Key("layer_norm_epsilon", "layer_norm_epsilon", 1e-5),
            Key("scale_attention", "scale_attn_weights", True),
            Key("scale_by_layer", "scale_attn_by_inverse_layer_idx", False),
            Key("tied", "tie_word_embeddings", True),
        ),
        fixed={"add_cross_attention": False},
        always={"norm_first": True, "final_norm": True},
        dropout_keys=("embd_pdrop", "attn_pdrop", "resid_pdrop"),
        eos_ids=(50256,),
    ),
    "opt": ModelFamily(
        classes=("OPTForCausalLM",),
        base="model.",
        body=_opt,
        head=("lm_head",),
        keys=(
            Key("vocab_size", "vocab_size", 50272),
            Key("max_positions", "max_position_embeddings", 2048),
            Key("layers", "num_hidden_layers", 12),
            Key("hidden_size", "hidden_size", 768),
            Key("embedding_size", "word_embed_proj_dim", lambda fields: fields["hidden_size"]),
            Key("heads", "num_attention_heads", 12),
            Key("intermediate_size", "ffn_dim", 3072),
            Key("activation", "activation_function", "relu"),
            Key("norm_first", "do_layer_norm_before", True),
            Key("final_norm", "_remove_final_layer_norm", True, is_opposite=True),
            Key("tied", "tie_word_embeddings", True),
        ),
        fixed={"enable_bias": True, "layer_norm_elementwise_affine": True},
        always={"position_offset": 2},
        # config.json may have the last norm for post-norm models, too.
        read_more=lambda fields: {"final_norm": fields["final_norm"] and fields["norm_first"]},
        dropout_keys=("dropout", "attention_dropout"),
        eos_ids=(2,),
    ),
}

_HEADS: Callable[[Mapping[str, Any]], Any] = lambda fields: fields["heads"]  # noqa: E731
_LLAMA_KEYS = (
    Key("vocab_size", "vocab_size", 32000),
    Key("max_positions", "max_position_embeddings", 2048),
    Key("layers", "num_hidden_layers", 32),
    Key("hidden_size", "hidden_size", 4096),
    Key("heads", "num_attention_heads", 32),
    Key("kv_heads", "num_key_value_heads", _HEADS),
    Key("head_size", "head_dim", _head_size),
    Key("intermediate_size", "intermediate_size", 11008),
    Key("layer_norm_epsilon", "rms_norm_eps", 1e-6),
    Key("tied", "tie_word_embeddings", False),
)
_OF_LLAMAS: dict[str, Any] = {
    "base": "model.",
    "head": ("lm_head",),
    "ropes": (RopeKey(),),
    "new": {"kv_heads": _HEADS, "head_size": _head_size, "tied": True},
    "dropout_keys": ("attention_dropout",),
}
_ALWAYS: dict[str, Any] = {"norm_first": True, "final_norm": True, "is_gated": True}
_SILU = Key("activation", "hidden_act", "silu")
_QWEN_KEYS = (
    Key("vocab_size", "vocab_size", 151936),
    Key("max_positions", "max_position_embeddings", 32768),
    Key("kv_heads", "num_key_value_heads", 32),
    Key("intermediate_size", "intermediate_size", 22016),
    _SILU,
    *_LLAMA_KEYS,
)
_GEMMA_KEYS = (
    Key("layers", "num_hidden_layers", 26),
    Key("hidden_size", "hidden_size", 2304),
    Key("heads", "num_attention_heads", 8),
    Key("kv_heads", "num_key_value_heads", 4),
    Key("head_size", "head_dim", 256),
    Key("intermediate_size", "intermediate_size", 9216),
    Key("activation", "hidden_activation", "gelu_pytorch_tanh"),
    Key("query_size", "query_pre_attn_scalar", 256),
    Key("window", "sliding_window", 4096),
    Key("tied", "tie_word_embeddings", True),
    *_LLAMA_KEYS,
)
_GEMMA3_ROPES = (
    RopeKey("rope", "rope_theta", 1e6, "full_attention"),
    RopeKey("local_rope", "rope_local_base_freq", 1e4, "sliding_attention"),
)
_OF_GEMMAS: dict[str, Any] = {
    **_OF_LLAMAS,
    "new": {**_OF_LLAMAS["new"], "query_size": lambda fields: fields["head_size"]},
    "always": {**_ALWAYS, "scale_embeddings": True},
    "eos_ids": (1,),
}
FAMILIES.update(
    llama=ModelFamily(
        classes=("LlamaForCausalLM",),
        body=_llama,
        keys=(*_LLAMA_KEYS, _SILU),
        fixed={"attention_bias": False, "mlp_bias": False},
        always=_ALWAYS,
        eos_ids=(2,),
        **_OF_LLAMAS,
    ),
    mistral=ModelFamily(
        classes=("MistralForCausalLM",),
        body=_llama,
        keys=(
            Key("kv_heads", "num_key_value_heads", 8),
            Key("intermediate_size", "intermediate_size", 14336),
            Key("max_positions", "max_position_embeddings", 131072),
            Key("window", "sliding_window", 4096, null=0),
            _SILU,
            *_LLAMA_KEYS,
        ),
        fixed={},
        always={**_ALWAYS, "local_layers": (True,)},
        has_any_heads=True,
        eos_ids=(2,),
        **_OF_LLAMAS,
    ),
    qwen2=ModelFamily(
        classes=("Qwen2ForCausalLM",),
        body=partial(_llama, qkv="linear"),
        keys=_QWEN_KEYS,
        fixed={"use_sliding_window": False},
        always=_ALWAYS,
        has_any_heads=True,
        eos_ids=(),
        **_OF_LLAMAS,
    ),
    qwen3=ModelFamily(
        classes=("Qwen3ForCausalLM",),
        body=partial(_llama, qk_norm="head"),
        keys=(Key("head_size", "head_dim", 128), *_QWEN_KEYS),
        fixed={"use_sliding_window": False, "attention_bias": False},
        always=_ALWAYS,
        has_any_heads=True,
        eos_ids=(),
        **_OF_LLAMAS,
    ),
    olmo2=ModelFamily(
        classes=("Olmo2ForCausalLM",),
        body=partial(_llama, norms=_AFTER, qk_norm="all heads"),
        keys=(
            Key("vocab_size", "vocab_size", 50304),
            Key("layer_norm_epsilon", "rms_norm_eps", 1e-5),
            _SILU,
            *_LLAMA_KEYS,
        ),
        fixed={"attention_bias": False},
        always=_ALWAYS,
        has_any_heads=True,
        eos_ids=(50279,),
        **_OF_LLAMAS,
    ),
    gemma2=ModelFamily(
        classes=("Gemma2ForCausalLM",),
        body=partial(_llama, norms=_AROUND, norm="offset_scale"),
        keys=(
            Key("vocab_size", "vocab_size", 256000),
            Key("max_positions", "max_position_embeddings", 8192),
            Key("attention_softcap", "attn_logit_softcapping", 50.0, null=0.0),
            Key("logit_softcap", "final_logit_softcapping", 30.0, null=0.0),
            *_GEMMA_KEYS,
        ),
        local=LocalKey("sliding_window_pattern", 2),
        fixed={"attention_bias": False, "use_bidirectional_attention": False},
        **_OF_GEMMAS,
    ),
    gemma3_text=ModelFamily(
        classes=("Gemma3ForCausalLM",),
        body=partial(_llama, norms=_AROUND, norm="offset_scale", qk_norm="head"),
        keys=(
            Key("vocab_size", "vocab_size", 262208),
            Key("max_positions", "max_position_embeddings", 131072),
            Key("logit_softcap", "final_logit_softcapping", 0.0, null=0.0),
            *_GEMMA_KEYS,
        ),
        local=LocalKey("sliding_window_pattern", 6),
        fixed={
            "attention_bias": False,
            "use_bidirectional_attention": False,
            "attn_logit_softcapping": None,
        },
        **{**_OF_GEMMAS, "ropes": _GEMMA3_ROPES},
    ),
)
