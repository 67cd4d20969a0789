"""GPT-2 and OPT: dimensions and switches, and one row for each that says all they differ in.

A family is an entry of FAMILIES: its modules by both names, its keys in config.json, and a few
constants. A field that a family has no key for keeps its default there.

Letters of sizes: V vocabulary, P rows of the position table, E embedding, H hidden states, Q query,
key and value together, I feed-forward block. No framework; Python 3.8 syntax.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, NamedTuple, Tuple

from schemas.errors import UsageError
from trainers.models.modules import Key, Module, Row, check_sizes, modules_of


class DecoderFamily(NamedTuple):
    """A kind of decoder.

    Attributes:
      class_name: of transformers, for `architectures`.
      base: what names begin with; left out where the model was saved without its head.
      rows: its modules.
      keys: its fields in config.json.
      dropout_keys: keys that all have `dropout`; theirs is not taken over.
      fixed: settings of theirs that would make another model than ours, and the value ours has.
      activation: of a new model.
      ids: the bos and eos token where config.json leaves them out.
      position_offset: rows of the position table before that of position 0.
      begins_with_bos: whether it was published with a tokenizer that begins every text so.
    """

    class_name: str
    base: str
    rows: Tuple[Row, ...]
    keys: Tuple[Key, ...]
    dropout_keys: Tuple[str, ...]
    fixed: Mapping[str, Any]
    activation: str
    ids: Tuple[int, int]
    position_offset: int = 0
    begins_with_bos: bool = False


GPT2 = DecoderFamily(
    class_name="GPT2LMHeadModel",
    base="transformer.",
    rows=(
        Row("embeddings.tokens", "table", {"transformer.wte": "V"}, "E"),
        Row("embeddings.positions", "table", {"transformer.wpe": "P"}, "H"),
        Row("layers.N.attention_norm", "norm", {"transformer.h.N.ln_1": "H"}),
        Row("layers.N.qkv", "linear", {"transformer.h.N.attn.c_attn": "Q"}, "H", is_turned=True),
        Row(
            "layers.N.attention_out",
            "linear",
            {"transformer.h.N.attn.c_proj": "H"},
            "H",
            is_turned=True,
            is_residual=True,
        ),
        Row("layers.N.mlp_norm", "norm", {"transformer.h.N.ln_2": "H"}),
        Row("layers.N.mlp_in", "linear", {"transformer.h.N.mlp.c_fc": "I"}, "H", is_turned=True),
        Row(
            "layers.N.mlp_out",
            "linear",
            {"transformer.h.N.mlp.c_proj": "H"},
            "I",
            is_turned=True,
            is_residual=True,
        ),
        Row("final_norm", "norm", {"transformer.ln_f": "H"}),
        Row("head", "matrix", {"lm_head": "V"}, "E", when="is_untied"),
    ),
    keys=(
        Key("vocab_size", "vocab_size", 50257),
        Key("max_positions", "n_positions", 1024),
        Key("layers", "n_layer", 12),
        Key("hidden_size", "n_embd", 768),
        Key("heads", "n_head", 12),
        Key("intermediate_size", "n_inner", None),
        Key("activation", "activation_function", "gelu_new"),
        Key("layer_norm_epsilon", "layer_norm_epsilon", 1e-5),
        Key("scale_attention", "scale_attn_weights", True),
        Key("scale_by_layer", "scale_attn_by_inverse_layer_idx", False),
        Key("tied", "tie_word_embeddings", True),
    ),
    dropout_keys=("embd_pdrop", "attn_pdrop", "resid_pdrop"),
    fixed={"add_cross_attention": False},
    activation="gelu_new",
    ids=(50256, 50256),
)
OPT = DecoderFamily(
    class_name="OPTForCausalLM",
    base="model.",
    rows=(
        Row("embeddings.tokens", "table", {"model.decoder.embed_tokens": "V"}, "E"),
        Row("embeddings.positions", "table", {"model.decoder.embed_positions": "P"}, "H"),
        Row(
            "embeddings.projection",
            "matrix",
            {"model.decoder.project_in": "H"},
            "E",
            when="is_projected",
        ),
        Row(
            "layers.N.qkv",
            "linear",
            {f"model.decoder.layers.N.self_attn.{part}_proj": "H" for part in "qkv"},
            "H",
        ),
        Row(
            "layers.N.attention_out",
            "linear",
            {"model.decoder.layers.N.self_attn.out_proj": "H"},
            "H",
        ),
        Row(
            "layers.N.attention_norm", "norm", {"model.decoder.layers.N.self_attn_layer_norm": "H"}
        ),
        Row("layers.N.mlp_in", "linear", {"model.decoder.layers.N.fc1": "I"}, "H"),
        Row("layers.N.mlp_out", "linear", {"model.decoder.layers.N.fc2": "H"}, "I"),
        Row("layers.N.mlp_norm", "norm", {"model.decoder.layers.N.final_layer_norm": "H"}),
        Row("final_norm", "norm", {"model.decoder.final_layer_norm": "H"}, when="final_norm"),
        Row("project_out", "matrix", {"model.decoder.project_out": "E"}, "H", when="is_projected"),
        Row("head", "matrix", {"lm_head": "V"}, "E", when="is_untied"),
    ),
    keys=(
        Key("vocab_size", "vocab_size", 50272),
        Key("max_positions", "max_position_embeddings", 2048),
        Key("layers", "num_hidden_layers", 12),
        Key("hidden_size", "hidden_size", 768),
        Key("embedding_size", "word_embed_proj_dim", None),
        Key("heads", "num_attention_heads", 12),
        Key("intermediate_size", "ffn_dim", 3072),
        Key("activation", "activation_function", "relu"),
        Key("norm_first", "do_layer_norm_before", True),
        Key("final_norm", "_remove_final_layer_norm", False, is_opposite=True),
        Key("tied", "tie_word_embeddings", True),
    ),
    dropout_keys=("dropout", "attention_dropout"),
    fixed={"enable_bias": True, "layer_norm_elementwise_affine": True},
    activation="relu",
    ids=(2, 2),
    position_offset=2,
    begins_with_bos=True,
)
FAMILIES = {"gpt2": GPT2, "opt": OPT}


@dataclass(frozen=True)
class DecoderConfig:
    """A GPT-2 or an OPT.

    Attributes:
      family: of FAMILIES: whose names and whose config.json the weights are exported with.
      vocab_size: V, rows of the embedding.
      max_positions: the longest segment it can place.
      layers: decoder layers.
      hidden_size: H, a multiple of `heads`.
      heads: N.
      intermediate_size: I, width of the feed-forward block.
      embedding_size: E; where it is not H, projections lead in and out (OPT-350m).
      activation: of the feed-forward block, by Hugging Face's name.
      norm_first: LayerNorm before attention and feed-forward, not after (OPT-350m).
      final_norm: LayerNorm after the last layer.
      tied: the output layer is the embedding.
      scale_attention: logits of attention are divided by sqrt(H / N).
      scale_by_layer: and by the layer's number, from 1.
      dropout: on embeddings, attention probabilities and both residual branches.
      layer_norm_epsilon: 1e-5 in both.
    """

    family: str
    vocab_size: int
    max_positions: int
    layers: int
    hidden_size: int
    heads: int
    intermediate_size: int
    embedding_size: int
    activation: str = "gelu_new"
    norm_first: bool = True
    final_norm: bool = True
    tied: bool = True
    scale_attention: bool = True
    scale_by_layer: bool = False
    dropout: float = 0.0
    layer_norm_epsilon: float = 1e-5

    def __post_init__(self) -> None:
        """Refuses dimensions that make no model, and switches that its family does not have."""
        if self.family not in FAMILIES:
            raise UsageError(f"family {self.family!r}: one of {', '.join(FAMILIES)}")
        check_sizes(self)
        theirs = {key.ours for key in FAMILIES[self.family].keys} | {"family", "dropout"}
        only = {f.name: f.default for f in dataclasses.fields(self) if f.name not in theirs}
        for name, value in {**only, "embedding_size": self.hidden_size}.items():
            if name in only and getattr(self, name) != value:
                raise UsageError(
                    f"{_FLAGS.get(name, name)}={getattr(self, name)}: a {self.family} has {value} "
                    "there always; leave it out, or take another --family"
                )
        if self.final_norm and not self.norm_first:
            raise UsageError("a last LayerNorm after post-norm layers: no family has that")

    @property
    def position_offset(self) -> int:
        """Rows of the position table before that of position 0: OPT's table begins at 2."""
        return FAMILIES[self.family].position_offset

    @property
    def position_rows(self) -> int:
        """Rows of the position table."""
        return self.max_positions + self.position_offset

    @property
    def is_projected(self) -> bool:
        """Whether embeddings have another width than hidden states."""
        return self.embedding_size != self.hidden_size

    @property
    def is_untied(self) -> bool:
        """Whether the output layer is a matrix of its own."""
        return not self.tied

    @property
    def sizes(self) -> Dict[str, int]:
        """The letters of the rows."""
        return {
            "V": self.vocab_size,
            "P": self.position_rows,
            "E": self.embedding_size,
            "H": self.hidden_size,
            "Q": 3 * self.hidden_size,
            "I": self.intermediate_size,
        }

    @property
    def modules(self) -> List[Module]:
        """All that have weights."""
        return modules_of(self, FAMILIES[self.family].rows)

    @property
    def base(self) -> str:
        """What names begin with; left out where the model was saved without its head."""
        return FAMILIES[self.family].base

    @property
    def doubles(self) -> Dict[str, str]:
        """Tensors of theirs that repeat one of ours: some files repeat the tied output layer."""
        return {"lm_head.weight": "embeddings.tokens.weight"} if self.tied else {}

    @property
    def other_heads(self) -> Tuple[str, ...]:
        """None: decoders are taken with the head for causal language modeling, or without."""
        return ()

    def attention_scale(self, layer: int) -> float:
        """What the logits of attention in a layer (from 0) are multiplied with."""
        scale = (self.hidden_size // self.heads) ** -0.5 if self.scale_attention else 1.0
        return scale / (layer + 1) if self.scale_by_layer else scale


_FLAGS = {"embedding_size": "--embedding_size", "norm_first": "--norm=post gives norm_first"}
