"""GPT-2 and OPT: dimensions and switches, and a row for each that says all they differ in.

A new family is a `DecoderFamily`: what its modules are and are called, and its keys in config.json.
Fields of DecoderConfig that it has no key for keep their default, or the value of `always`.
"""

from dataclasses import dataclass
from typing import (
    Any,
    Callable,
    Dict,
    List,
    Literal,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from schemas.errors import DataError, UsageError
from schemas.sidecar import Schema
from schemas.typed_json import quote
from trainers.models.hf_config import ROLES, Key, common_json, complete, make_config, read_fields
from trainers.models.model_flags import (
    DROPOUT,
    ModelFlags,
    PlannedModel,
    fit_to_set,
    must_agree,
    new_dimensions,
    read_published,
)
from trainers.models.modules import ModelConfig, Module, modules_at


@dataclass(frozen=True)
class DecoderConfig(ModelConfig):
    """A decoder with a causal language-model head.

    Attributes:
      norm_first: LayerNorm before attention and feed-forward, not after (OPT-350m).
      final_norm: LayerNorm after the last layer.
      scale_attention: logits of attention are divided by sqrt(H / N).
      scale_by_layer: and by the layer's number, from 1.
    """

    activation: str = "gelu_new"
    norm_first: bool = True
    final_norm: bool = True
    scale_attention: bool = True
    scale_by_layer: bool = False

    def __post_init__(self) -> None:
        """Refuses dimensions that make no model, and switches that its family does not have."""
        super().__post_init__()
        if self.family not in FAMILIES:
            raise UsageError(f"{self.family} is none of {', '.join(FAMILIES)}")
        row = FAMILIES[self.family]
        has = {key.ours for key in row.keys} | {"dropout"}
        due = {**self.defaults, "embedding_size": self.hidden_size, **row.always}
        for name, value in due.items():
            if name not in has and getattr(self, name) != value:
                asked = "--norm=post" if name == "norm_first" else f"--{name}={getattr(self, name)}"
                raise UsageError(f"{asked}: {name} is always {value} in {self.family} models")
        if self.final_norm and not self.norm_first:
            raise UsageError("a last LayerNorm after post-norm layers: no model has that")

    @property
    def modules(self) -> List[Module]:
        """All that have weights."""
        head = Module("head", ("lm_head",), "matrix", (self.vocab_size,), self.embedding_size)
        return FAMILIES[self.family].modules(self) + ([] if self.tied else [head])

    @property
    def base(self) -> str:
        """What names begin with; left out where the model was saved without its head."""
        return FAMILIES[self.family].base

    @property
    def doubles(self) -> Dict[str, str]:
        """Tensors of theirs that repeat one of ours: some files repeat the tied output layer."""
        return {"lm_head.weight": "embeddings.tokens.weight"} if self.tied else {}

    def attention_scale(self, layer: int) -> float:
        """What the logits of attention in a layer (from 0) are multiplied with."""
        scale = super().attention_scale(layer) if self.scale_attention else 1.0
        return scale / (layer + 1) if self.scale_by_layer else scale

    @classmethod
    def from_json(cls, found: Mapping[str, Any], *, dropout: float, place: str) -> "DecoderConfig":
        """The decoder that a config.json describes, but for its dropout."""
        values = read_fields(found, cls, FAMILIES, place)
        if not values.get("norm_first", True):  # nothing follows post-norm layers, whatever is said
            values["final_norm"] = False
        always = FAMILIES[values["family"]].always
        return make_config(cls, {**values, **always, "dropout": dropout}, place)

    @classmethod
    def find_published(
        cls, found: Mapping[str, Any], *, place: str
    ) -> Tuple["DecoderConfig", Tuple[int, ...], Tuple[int, ...]]:
        """What a config.json describes: the model, and what texts begin with and end with."""
        prefix_ids, eos_ids = decoder_ids(found, place=place)
        return cls.from_json(found, dropout=0.0, place=place), prefix_ids, eos_ids

    def to_json(
        self, special_ids: Mapping[str, int], prefix_ids: Sequence[int] = ()
    ) -> Dict[str, Any]:
        """The config.json that transformers opens as this model; prefix_ids is a key of our own."""
        row = FAMILIES[self.family]
        found = {
            **common_json(self, row, special_ids),
            **dict.fromkeys(row.dropout_keys, self.dropout),
            "architectures": [row.class_name],
            "prefix_ids": [int(number) for number in prefix_ids],
        }
        if prefix_ids:
            found["bos_token_id"] = found["prefix_ids"][0]
        return found


def _gpt2(config: DecoderConfig) -> List[Module]:
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
    modules = modules_at("embeddings.", "transformer.", embeddings)
    for n in range(config.layers):
        for module in modules_at(f"layers.{n}.", f"transformer.h.{n}.", layer):
            if module.ours.endswith("_out"):  # what is added up 2 * layers times begins smaller
                module = module._replace(deviation=0.02 * (2 * config.layers) ** -0.5)
            modules.append(module._replace(is_turned=module.kind == "linear"))
    return modules + modules_at("", "transformer.", [("final_norm", "norm", "ln_f", hidden)])


def _opt(config: DecoderConfig) -> List[Module]:
    width, hidden, wide = config.embedding_size, config.hidden_size, config.intermediate_size
    embeddings = [
        ("tokens", "table", "embed_tokens", config.vocab_size, width),
        ("positions", "table", "embed_positions", config.position_rows, hidden),
    ]
    layer = [
        ("qkv", "linear", tuple(f"self_attn.{part}_proj" for part in "qkv"), hidden, hidden),
        ("attention_out", "linear", "self_attn.out_proj", hidden, hidden),
        ("attention_norm", "norm", "self_attn_layer_norm", hidden),
        ("mlp_in", "linear", "fc1", wide, hidden),
        ("mlp_out", "linear", "fc2", hidden, wide),
        ("mlp_norm", "norm", "final_layer_norm", hidden),
    ]
    base = "model.decoder."
    modules = modules_at("embeddings.", base, embeddings)
    for n in range(config.layers):
        modules += modules_at(f"layers.{n}.", f"{base}layers.{n}.", layer)
    if config.final_norm:
        modules += modules_at("", base, [("final_norm", "norm", "final_layer_norm", hidden)])
    if config.is_projected:
        into = ("embeddings.projection", "matrix", "project_in", hidden, width)
        out = ("project_out", "matrix", "project_out", width, hidden)
        modules += modules_at("", base, [into, out])
    return modules


class DecoderFamily(NamedTuple):
    """A kind of decoder.

    Attributes:
      class_name: of transformers, for `architectures`.
      base: what names begin with; left out where the model was saved without its head.
      modules: a model's, but for an output layer that is not tied.
      keys: its fields in config.json.
      dropout_keys: keys that all have `dropout`; theirs is not taken over.
      fixed: settings of theirs that would make another model than ours, and the value ours has.
      ids: the bos and the eos token where config.json leaves them out.
      always: fields that have one value in all its models, which is not the default.
      begins_with_bos: whether it was published with a tokenizer that begins every text so.
    """

    class_name: str
    base: str
    modules: Callable[[DecoderConfig], List[Module]]
    keys: Tuple[Key, ...]
    dropout_keys: Tuple[str, ...]
    fixed: Mapping[str, Any]
    ids: Tuple[int, int]
    always: Mapping[str, Any] = {}
    begins_with_bos: bool = False


FAMILIES = {
    "gpt2": DecoderFamily(
        class_name="GPT2LMHeadModel",
        base="transformer.",
        modules=_gpt2,
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
        dropout_keys=("embd_pdrop", "attn_pdrop", "resid_pdrop"),
        fixed={"add_cross_attention": False},
        ids=(50256, 50256),
    ),
    "opt": DecoderFamily(
        class_name="OPTForCausalLM",
        base="model.",
        modules=_opt,
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
        dropout_keys=("dropout", "attention_dropout"),
        fixed={"enable_bias": True, "layer_norm_elementwise_affine": True},
        ids=(2, 2),
        always={"position_offset": 2},
        begins_with_bos=True,
    ),
}


def decoder_ids(found: Mapping[str, Any], *, place: str) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    """What a published decoder's texts begin with, and which end them, by its config.json."""
    row = FAMILIES[found["model_type"]]
    bos, eos = (found.get(f"{role}_token_id", n) for role, n in zip(ROLES, row.ids))
    ids = []
    for value in (found.get("prefix_ids", bos if row.begins_with_bos else None), eos):
        given = [] if value is None else value if isinstance(value, list) else [value]
        if not all(type(number) is int for number in given):
            raise DataError(f"{place}: config.json names a token {quote(value)}, which is no id")
        ids.append(tuple(given))
    return ids[0], ids[1]


@dataclass(frozen=True)
class DecoderFlags(ModelFlags):
    """Which decoder."""

    family: Literal["gpt2", "opt"] = "gpt2"
    model: Literal["tiny", "small", "base", "medium", "gpt2"] = "small"
    norm: Optional[Literal["pre", "post"]] = None
    """LayerNorm before each block, or after it (opt only, as OPT-350m). None: pre."""
    tied: Optional[bool] = None
    """Whether the output layer is the embedding. None: it is."""


def plan_decoder(flags: Any, schema: Schema) -> PlannedModel:
    """The decoder that flags, set and --init_from make."""
    dropout = DROPOUT if flags.dropout is None else flags.dropout
    if flags.init_from is not None:
        place, found, tensors = read_published(flags)
        config = DecoderConfig.from_json(found, dropout=dropout, place=place)
        must_agree("norm", flags.norm, "pre" if config.norm_first else "post", place)
        return fit_to_set(config, tensors, flags, schema)
    row, given = FAMILIES[flags.family], new_dimensions(flags, schema, DecoderConfig)
    if flags.norm == "post":
        given.update(norm_first=False, final_norm=False)
    config = DecoderConfig(**complete({**row.always, **given, "dropout": dropout}, row.keys))
    return fit_to_set(config, None, flags, schema)
