"""BERT, RoBERTa and ELECTRA: dimensions and switches, and where they differ, one row for each.

Letters of sizes: V vocabulary, P rows of the position table, T token types, E embedding, H hidden
states, I feed-forward block, C classes. No framework; Python 3.8 syntax.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, NamedTuple, Tuple

from schemas.errors import UsageError
from trainers.models.modules import Key, Module, Row, check_sizes, modules_of
from trainers.run.flags import at_least, share

ELECTRA_EMBEDDING = 128  # of ELECTRA's small model; wider ones have it as wide as hidden states


class EncoderFamily(NamedTuple):
    """What the families differ in.

    Attributes:
      class_name: that transformers' names of its classes begin with.
      masked_head: their dense layer, norm, bias, and output layer where it is not tied.
      class_head: their dense layer and output layer.
      token_types: of a new model.
      layer_norm_epsilon: of a new model.
      absent: what transformers takes where config.json leaves a key out, if not as the others.
    """

    class_name: str
    masked_head: Tuple[str, str, str, str]
    class_head: Tuple[str, str]
    token_types: int = 2
    layer_norm_epsilon: float = 1e-12
    absent: Mapping[str, Any] = {}


FAMILIES = {
    "bert": EncoderFamily(
        class_name="Bert",
        masked_head=(
            "cls.predictions.transform.dense",
            "cls.predictions.transform.LayerNorm",
            "cls.predictions",
            "cls.predictions.decoder",
        ),
        class_head=("bert.pooler.dense", "classifier"),
    ),
    "roberta": EncoderFamily(
        class_name="Roberta",
        masked_head=("lm_head.dense", "lm_head.layer_norm", "lm_head", "lm_head.decoder"),
        class_head=("classifier.dense", "classifier.out_proj"),
        token_types=1,
        layer_norm_epsilon=1e-5,
        absent={"vocab_size": 50265, "pad_token_id": 1},
    ),
    "electra": EncoderFamily(
        class_name="Electra",
        masked_head=(
            "generator_predictions.dense",
            "generator_predictions.LayerNorm",
            "generator_lm_head",
            "generator_lm_head",
        ),
        class_head=("classifier.dense", "classifier.out_proj"),
        absent={"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024},
    ),
}
KEYS = (
    Key("vocab_size", "vocab_size", 30522),
    Key("hidden_size", "hidden_size", 768),
    Key("layers", "num_hidden_layers", 12),
    Key("heads", "num_attention_heads", 12),
    Key("intermediate_size", "intermediate_size", 3072),
    Key("max_positions", "max_position_embeddings", 512),  # there with the position offset
    Key("token_types", "type_vocab_size", 2),
    Key("activation", "hidden_act", "gelu"),
    Key("layer_norm_epsilon", "layer_norm_eps", 1e-12),
    Key("tied", "tie_word_embeddings", True),
    Key("dropout", "hidden_dropout_prob", 0.1),
    Key("attention_dropout", "attention_probs_dropout_prob", 0.1),
    Key("classifier_dropout", "classifier_dropout", None),  # None: as `dropout`
)
EMBEDDING_KEY = Key("embedding_size", "embedding_size", ELECTRA_EMBEDDING)  # ELECTRA's alone
# Settings of theirs that would make another model than ours, and the value that ours has.
FIXED = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}
# Beginnings of names of heads for other work than masked language modeling, or classification.
_BESIDES_MASKED = (
    *("bert.pooler.", "roberta.pooler.", "cls.seq_relationship."),
    *("discriminator_predictions.", "classifier.", "qa_outputs."),
)
_BESIDES_CLASSES = (
    *("roberta.pooler.", "cls.", "lm_head.", "generator_predictions.", "generator_lm_head."),
    *("discriminator_predictions.", "qa_outputs."),
)


@dataclass(frozen=True)
class EncoderConfig:
    """An encoder with a head: for masked language modeling, or for classification.

    Attributes:
      family: bert, roberta or electra: whose names and config.json weights are exported with.
      vocab_size: V, rows of the embedding.
      max_positions: the longest segment it can place.
      position_offset: rows of the position table before that of position 0; RoBERTa's table starts
        after its padding id, at 2.
      layers: encoder layers.
      hidden_size: H, a multiple of `heads`.
      heads: N.
      intermediate_size: I, width of the feed-forward block.
      embedding_size: E; where it is not H, a projection leads in, and a masked-language-model head
        leads out (ELECTRA).
      token_types: T, rows of the token type table.
      activation: of the feed-forward block, by Hugging Face's name.
      tied: the output layer of a masked language model is the embedding.
      dropout: on embeddings and both residual branches.
      attention_dropout: on attention probabilities.
      classifier_dropout: before the head that classifies.
      layer_norm_epsilon: RoBERTa's 1e-5, BERT's 1e-12.
      classes: their names, in the order of their numbers; without any, the head is that of a masked
        language model.
    """

    family: str
    vocab_size: int
    max_positions: int
    position_offset: int
    layers: int
    hidden_size: int
    heads: int
    intermediate_size: int
    embedding_size: int
    token_types: int = 2
    activation: str = "gelu"
    tied: bool = True
    dropout: float = 0.0
    attention_dropout: float = 0.0
    classifier_dropout: float = 0.0
    layer_norm_epsilon: float = 1e-12
    classes: Tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuses dimensions that make no model."""
        if self.family not in FAMILIES:
            raise UsageError(f"family {self.family!r}: one of {', '.join(FAMILIES)}")
        check_sizes(self)
        at_least(self, "token_types", 1)
        at_least(self, "position_offset", 0)
        for name in ("attention_dropout", "classifier_dropout"):
            share(self, name)
        if self.is_projected and self.family != "electra":
            raise UsageError(
                f"--embedding_size={self.embedding_size} is not --hidden_size={self.hidden_size}: "
                f"only electra has a projection between them, not {self.family}"
            )

    @property
    def position_rows(self) -> int:
        """Rows of the position table (Hugging Face: `max_position_embeddings`)."""
        return self.max_positions + self.position_offset

    @property
    def is_projected(self) -> bool:
        """Whether embeddings have another width than hidden states."""
        return self.embedding_size != self.hidden_size

    @property
    def is_untied(self) -> bool:
        """Whether the output layer of a masked language model is a table of its own."""
        return not self.tied

    @property
    def head_activation(self) -> str:
        """Of a masked language model's head: BERT's is that of its layers, the others' is GELU."""
        return self.activation if self.family == "bert" else "gelu"

    @property
    def sizes(self) -> Dict[str, int]:
        """The letters of the rows."""
        return {
            "V": self.vocab_size,
            "P": self.position_rows,
            "T": self.token_types,
            "E": self.embedding_size,
            "H": self.hidden_size,
            "I": self.intermediate_size,
            "C": len(self.classes),
        }

    @property
    def modules(self) -> List[Module]:
        """All that have weights."""
        head = _class_head if self.classes else _masked_head
        return modules_of(self, (*_body(self.family), *head(self)))

    @property
    def base(self) -> str:
        """What names of the encoder begin with; left out where it was saved without a head."""
        return f"{self.family}."

    @property
    def doubles(self) -> Dict[str, str]:
        """Tensors of theirs that files may hold and no model reads, and which of ours they repeat.

        A tied output layer is the embedding; one of its own has its own bias, and the head's is
        dead then.
        """
        if self.classes:
            return {}
        _, _, bias, table = FAMILIES[self.family].masked_head
        if not self.tied:
            return {f"{bias}.bias": "head.bias"} if bias != table else {}
        doubles = {f"{table}.weight": "embeddings.tokens.weight"}
        return doubles if bias == table else {**doubles, f"{table}.bias": "head.bias"}

    @property
    def other_heads(self) -> Tuple[str, ...]:
        """Beginnings of names of heads that this model has no use for."""
        return _BESIDES_CLASSES if self.classes else _BESIDES_MASKED


def with_dropout(config: EncoderConfig, rate: float) -> EncoderConfig:
    """The same model with one rate of dropout everywhere."""
    return dataclasses.replace(
        config, dropout=rate, attention_dropout=rate, classifier_dropout=rate
    )


def _body(family: str) -> Tuple[Row, ...]:
    """The rows that the families have in common, under each's name."""
    embeddings, layer = f"{family}.embeddings", f"{family}.encoder.layer.N"
    qkv = {f"{layer}.attention.self.{part}": "H" for part in ("query", "key", "value")}
    return (
        Row("embeddings.tokens", "table", {f"{embeddings}.word_embeddings": "V"}, "E"),
        Row("embeddings.positions", "table", {f"{embeddings}.position_embeddings": "P"}, "E"),
        Row("embeddings.token_types", "table", {f"{embeddings}.token_type_embeddings": "T"}, "E"),
        Row("embeddings.norm", "norm", {f"{embeddings}.LayerNorm": "E"}),
        Row(
            "embeddings.projection",
            "linear",
            {f"{family}.embeddings_project": "H"},
            "E",
            when="is_projected",
        ),
        Row("layers.N.qkv", "linear", qkv, "H"),
        Row("layers.N.attention_out", "linear", {f"{layer}.attention.output.dense": "H"}, "H"),
        Row("layers.N.attention_norm", "norm", {f"{layer}.attention.output.LayerNorm": "H"}),
        Row("layers.N.mlp_in", "linear", {f"{layer}.intermediate.dense": "I"}, "H"),
        Row("layers.N.mlp_out", "linear", {f"{layer}.output.dense": "H"}, "I"),
        Row("layers.N.mlp_norm", "norm", {f"{layer}.output.LayerNorm": "H"}),
    )


def _masked_head(config: EncoderConfig) -> Tuple[Row, ...]:
    dense, norm, bias, table = FAMILIES[config.family].masked_head
    part = "the output head"
    return (
        Row("head.dense", "linear", {dense: "E"}, "H", part=part),
        Row("head.norm", "norm", {norm: "E"}, part=part),
        Row("head", "vector", {bias if config.tied else table: "V"}, part=part),
        Row("head.table", "table", {table: "V"}, "E", when="is_untied", part=part),
    )


def _class_head(config: EncoderConfig) -> Tuple[Row, ...]:
    dense, out = FAMILIES[config.family].class_head
    return (
        Row("head.dense", "linear", {dense: "H"}, "H", part=dense),
        Row("head.out", "linear", {out: "C"}, "H", part=out),
    )
