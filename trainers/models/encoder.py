"""BERT, RoBERTa and ELECTRA: dimensions and switches, and a row for each of what they differ in."""

from dataclasses import dataclass, replace
from typing import Any, Dict, List, Mapping, NamedTuple, Tuple

from schemas.errors import UsageError
from trainers.data.flag_values import at_least, share
from trainers.models.modules import Key, ModelConfig, Module, modules_at

ELECTRA_EMBEDDING = 128  # of ELECTRA's small model; wider ones have it as wide as hidden states
_KEYS = (
    Key("vocab_size", "vocab_size", 30522),
    Key("hidden_size", "hidden_size", 768),
    Key("layers", "num_hidden_layers", 12),
    Key("heads", "num_attention_heads", 12),
    Key("intermediate_size", "intermediate_size", 3072),
    Key("max_positions", "max_position_embeddings", 512),  # theirs counts the position offset in
    Key("token_types", "type_vocab_size", 2),
    Key("activation", "hidden_act", "gelu"),
    Key("layer_norm_epsilon", "layer_norm_eps", 1e-12),
    Key("tied", "tie_word_embeddings", True),
    Key("dropout", "hidden_dropout_prob", 0.1),
    Key("attention_dropout", "attention_probs_dropout_prob", 0.1),
    Key("classifier_dropout", "classifier_dropout", lambda fields: fields["dropout"]),
)
_FIXED = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}


class EncoderFamily(NamedTuple):
    """What the families differ in.

    Attributes:
      class_name: that transformers' names of its classes begin with.
      masked_head: their dense layer, norm, bias, and output layer where it is not tied.
      class_head: their dense layer and output layer.
      keys: its fields in config.json; of two for one field the first says what it is when absent.
      fixed: settings of theirs that would make another model than ours, and the value ours has.
      new: fields of a new model, where they are not what config.json may leave out.
    """

    class_name: str
    masked_head: Tuple[str, str, str, str]
    class_head: Tuple[str, str]
    keys: Tuple[Key, ...] = _KEYS
    fixed: Mapping[str, Any] = _FIXED
    new: Mapping[str, Any] = {}


_BERT, _ELECTRA = "cls.predictions", "generator_predictions"
FAMILIES = {
    "bert": EncoderFamily(
        "Bert",
        (f"{_BERT}.transform.dense", f"{_BERT}.transform.LayerNorm", _BERT, f"{_BERT}.decoder"),
        ("bert.pooler.dense", "classifier"),
    ),
    "roberta": EncoderFamily(
        "Roberta",
        ("lm_head.dense", "lm_head.layer_norm", "lm_head", "lm_head.decoder"),
        ("classifier.dense", "classifier.out_proj"),
        keys=(
            Key("vocab_size", "vocab_size", 50265),
            Key("position_offset", "pad_token_id", 1),  # theirs is one less
            *_KEYS,
        ),
        new={"token_types": 1, "layer_norm_epsilon": 1e-5},
    ),
    "electra": EncoderFamily(
        "Electra",
        (f"{_ELECTRA}.dense", f"{_ELECTRA}.LayerNorm", "generator_lm_head", "generator_lm_head"),
        ("classifier.dense", "classifier.out_proj"),
        keys=(
            Key("hidden_size", "hidden_size", 256),
            Key("heads", "num_attention_heads", 4),
            Key("intermediate_size", "intermediate_size", 1024),
            Key("embedding_size", "embedding_size", ELECTRA_EMBEDDING),
            *_KEYS,
        ),
    ),
}
# Beginnings of names of other heads than that for masked language modeling, or classification.
_BESIDES_BOTH = ("roberta.pooler.", "discriminator_predictions.", "qa_outputs.")
_BESIDES_MASKED = (*_BESIDES_BOTH, "bert.pooler.", "cls.seq_relationship.", "classifier.")
_BESIDES_CLASSES = (*_BESIDES_BOTH, "cls.", "lm_head.", "generator_")


@dataclass(frozen=True)
class EncoderConfig(ModelConfig):
    """An encoder with a head: for masked language modeling, or for classification.

    Attributes:
      token_types: rows of the token type table.
      attention_dropout: on attention probabilities.
      classifier_dropout: before the head that classifies.
      classes: their names, in the order of their numbers; without any, the head is that of a masked
        language model.
    """

    token_types: int = 2
    attention_dropout: float = 0.0
    classifier_dropout: float = 0.0
    layer_norm_epsilon: float = 1e-12
    classes: Tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuses dimensions that make no model."""
        super().__post_init__()
        at_least(self, "token_types", 1)
        for name in ("attention_dropout", "classifier_dropout"):
            share(self, name)
        if self.family not in FAMILIES:
            raise UsageError(f"{self.family} is none of {', '.join(FAMILIES)}")
        if self.is_projected and self.family != "electra":
            raise UsageError(
                f"--embedding_size={self.embedding_size} is not --hidden_size={self.hidden_size}: "
                f"only --family=electra has a projection between them, not {self.family}"
            )

    @property
    def head_activation(self) -> str:
        """Of a masked language model's head: BERT's is that of its layers, the others' is GELU."""
        return self.activation if self.family == "bert" else "gelu"

    @property
    def modules(self) -> List[Module]:
        """All that have weights."""
        return _body(self) + _head(self)

    @property
    def base(self) -> str:
        """What names of the encoder begin with; left out where it was saved without a head."""
        return f"{self.family}."

    @property
    def doubles(self) -> Dict[str, str]:
        """Tensors of theirs that files may hold and no model reads -> which of ours they repeat.

        A tied output layer is the embedding; one of its own has its own bias, and the head's is
        dead then.
        """
        if self.classes:
            return {}
        *_, bias, table = FAMILIES[self.family].masked_head
        doubles = {f"{table if self.tied else bias}.bias": "head.bias"} if bias != table else {}
        if self.tied:
            doubles[f"{table}.weight"] = "embeddings.tokens.weight"
        return doubles

    @property
    def other_heads(self) -> Tuple[str, ...]:
        """Beginnings of names of heads that this model has no use for."""
        return _BESIDES_CLASSES if self.classes else _BESIDES_MASKED


def with_dropout(config: EncoderConfig, rate: float) -> EncoderConfig:
    """The same model with one rate of dropout everywhere."""
    return replace(config, dropout=rate, attention_dropout=rate, classifier_dropout=rate)


def _body(config: EncoderConfig) -> List[Module]:
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
    modules = modules_at("embeddings.", config.base, embeddings)
    for n in range(config.layers):
        modules += modules_at(f"layers.{n}.", f"{config.base}encoder.layer.{n}.", layer)
    return modules


def _head(config: EncoderConfig) -> List[Module]:
    row, hidden = FAMILIES[config.family], config.hidden_size
    if config.classes:
        dense, out = row.class_head
        return [
            Module("head.dense", (dense,), "linear", (hidden,), hidden, part=dense),
            Module("head.out", (out,), "linear", (len(config.classes),), hidden, part=out),
        ]
    tokens, width = config.vocab_size, config.embedding_size
    dense, norm, bias, table = row.masked_head
    modules = [
        Module("head.dense", (dense,), "linear", (width,), hidden),
        Module("head.norm", (norm,), "norm", (width,)),
        Module("head", (bias if config.tied else table,), "vector", (tokens,)),
    ]
    if not config.tied:
        modules.append(Module("head.table", (table,), "table", (tokens,), width))
    return [module._replace(part="the output head") for module in modules]
