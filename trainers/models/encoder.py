"""BERT, RoBERTa and ELECTRA: dimensions and switches, and a row for each of what they differ in."""

from dataclasses import dataclass, replace
from typing import Any, Dict, List, Literal, Mapping, NamedTuple, Sequence, Tuple

from schemas.errors import DataError, UsageError
from schemas.sidecar import Schema
from schemas.typed_json import quote
from trainers.data.flag_values import at_least, share
from trainers.models.hf_config import Key, common_json, complete, make_config, read_fields
from trainers.models.model_flags import (
    DROPOUT,
    ModelFlags,
    PlannedModel,
    fit_to_set,
    new_dimensions,
    read_published,
)
from trainers.models.modules import ModelConfig, Module, modules_at

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

    @classmethod
    def from_json(
        cls, found: Mapping[str, Any], *, classes: Sequence[str] = (), place: str
    ) -> "EncoderConfig":
        """The encoder that a config.json describes, with a head for these classes."""
        values = read_fields(found, cls, FAMILIES, place)
        if "position_offset" in values:  # theirs are the padding's id, and all rows of the table
            values["position_offset"] += 1
            values["max_positions"] -= values["position_offset"]
        return make_config(cls, {**values, "classes": tuple(classes)}, place)

    @classmethod
    def find_published(
        cls, found: Mapping[str, Any], *, place: str
    ) -> Tuple["EncoderConfig", Tuple[int, ...], Tuple[int, ...]]:
        """What a config.json describes, with the head that it was published with."""
        classes = published_classes(found, place=place)
        return cls.from_json(found, classes=classes, place=place), (), ()

    def to_json(
        self, special_ids: Mapping[str, int], prefix_ids: Sequence[int] = ()
    ) -> Dict[str, Any]:
        """The config.json that transformers opens as this model."""
        row = FAMILIES[self.family]
        head = "ForSequenceClassification" if self.classes else "ForMaskedLM"
        found = {
            **common_json(self, row, special_ids),
            "architectures": [row.class_name + head],
            "max_position_embeddings": self.position_rows,
        }
        if self.family == "roberta":  # transformers derives positions from this id
            found["pad_token_id"] = self.position_offset - 1
        if self.classes:
            found["problem_type"] = "single_label_classification"
            found["id2label"] = {str(number): name for number, name in enumerate(self.classes)}
            found["label2id"] = {name: number for number, name in enumerate(self.classes)}
        return found

    def check_fits(self, schema: Schema, *, place: str, shards: str) -> None:
        """Refuses a model, which comes from `place`, that cannot read the rows of --shards."""
        super().check_fits(schema, place=place, shards=shards)
        pad = schema.special_ids.get("pad", -1)
        if self.family == "roberta" and self.position_offset != pad + 1:
            raise UsageError(
                f"{place}: its pad_token_id is {self.position_offset - 1} and that of {shards} "
                f"{pad}; RoBERTa counts positions from it. Build the set with the "
                "tokenizer of these weights"
            )
        has_pairs = any(feature.name == "token_type_ids" for feature in schema.features)
        if has_pairs and self.token_types < 2 and self.family != "roberta":  # RoBERTa has no types
            raise UsageError(
                f"{place} knows one token type, and the pairs of {shards} have two: "
                "give other weights"
            )


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


def published_classes(found: Mapping[str, Any], *, place: str) -> Tuple[str, ...]:
    """Names of the classes that a published encoder tells apart, if it is a classifier."""
    if "SequenceClassification" not in str(found.get("architectures")):
        return ()
    named = found.get("id2label", {"0": "LABEL_0", "1": "LABEL_1"})
    names = named if isinstance(named, dict) else {}
    classes = [names.get(str(number)) for number in range(len(names))]
    texts = tuple(name for name in classes if isinstance(name, str))
    if not texts or len(texts) < len(names):
        raise DataError(
            f"{place}: config.json says that id2label is {quote(named)}, and it has to name every "
            'class by its number: {"0": "no", "1": "yes"}'
        )
    return texts


@dataclass(frozen=True)
class EncoderFlags(ModelFlags):
    """Which encoder."""

    family: Literal["roberta", "bert", "electra"] = "roberta"
    model: Literal["tiny", "small", "base", "electra_small"] = "small"


def plan_encoder(flags: Any, schema: Schema) -> PlannedModel:
    """The encoder that flags, set and --init_from make; a set with classes gives it their head."""
    classes, rate = tuple(schema.parameters.get("classes", ())), flags.dropout
    if flags.init_from is not None:
        place, found, tensors = read_published(flags)
        config = EncoderConfig.from_json(found, classes=classes, place=place)
        config = config if rate is None else with_dropout(config, rate)
        return fit_to_set(config, tensors, flags, schema)
    row, given = FAMILIES[flags.family], new_dimensions(flags, schema, EncoderConfig)
    if flags.family == "roberta":
        given["position_offset"] = schema.special_ids.get("pad", -1) + 1
    if flags.family == "electra" and given["hidden_size"] > 2 * ELECTRA_EMBEDDING:
        given.setdefault("embedding_size", given["hidden_size"])
    config = EncoderConfig(classes=classes, **complete({**row.new, **given}, row.keys))
    config = with_dropout(config, DROPOUT if rate is None else rate)
    return fit_to_set(config, None, flags, schema)


def with_dropout(config: EncoderConfig, rate: float) -> EncoderConfig:
    """The same model with one rate of dropout everywhere."""
    return replace(config, dropout=rate, attention_dropout=rate, classifier_dropout=rate)
