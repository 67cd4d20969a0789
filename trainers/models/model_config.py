"""Dimensions and switches of a model, and config.json of Hugging Face, in and out.

What a config.json leaves out is as in transformers; what it asks for and is not built here ends in
a UsageError, and a value that is not of its type in a DataError. Both begin with `where`, such as
"--init_from=DIR".
"""

from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Dict, List, Mapping, Sequence, Tuple, get_type_hints

from schemas.errors import DataError, UsageError
from schemas.metadata import Schema
from schemas.typed_json import quote
from trainers.flags.run_flags import DIMENSIONS, at_least, share
from trainers.models.families import ACTIVATIONS, FAMILIES, Family, Module, head_modules

RATES = ("dropout", "attention_dropout", "classifier_dropout")
_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
_ROLES = ("bos", "eos", "pad")


@dataclass(frozen=True)
class ModelConfig:
    """An encoder or a decoder with its head; `new` adds what is not given.

    Attributes:
      family: a row of FAMILIES, whose names and whose config.json the weights are exported with.
      vocab_size: V, rows of the embedding.
      max_positions: the longest segment it can place.
      layers: how many.
      hidden_size: H, a multiple of `heads`.
      heads: N.
      intermediate_size: I, width of the feed-forward block.
      embedding_size: E; where it is not H, a projection leads in, and one out.
      activation: of the feed-forward block, by Hugging Face's name.
      tied: the output layer is the embedding.
      dropout: on embeddings and both residual branches.
      attention_dropout: on attention probabilities.
      classifier_dropout: before the head that classifies.
      layer_norm_epsilon: RoBERTa's, GPT-2's and OPT's 1e-5, BERT's and ELECTRA's 1e-12.
      position_offset: rows of the position table before that of position 0; RoBERTa's table starts
        after its padding id, and OPT's at 2.
      token_types: rows of the token type table, which encoders have.
      norm_first: LayerNorm before attention and feed-forward, not after (encoders, OPT-350m).
      final_norm: LayerNorm after the last layer.
      scale_attention: logits of attention are divided by sqrt(H / N).
      scale_by_layer: and by the layer's number, from 1.
      classes: their names, in the order of their numbers; without any, the head is that of a
        language model.
    """

    family: str
    vocab_size: int
    max_positions: int
    layers: int
    hidden_size: int
    heads: int
    intermediate_size: int
    embedding_size: int
    activation: str
    tied: bool = True
    dropout: float = 0.0
    attention_dropout: float = 0.0
    classifier_dropout: float = 0.0
    layer_norm_epsilon: float = 1e-5
    position_offset: int = 0
    token_types: int = 0
    norm_first: bool = False
    final_norm: bool = False
    scale_attention: bool = True
    scale_by_layer: bool = False
    classes: Tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuses dimensions that make no model, and switches that its family does not have."""
        at_least(self, 1, "vocab_size", *DIMENSIONS)
        at_least(self, 0, "position_offset")
        if self.hidden_size % self.heads:
            raise UsageError(
                f"--hidden_size={self.hidden_size} is no multiple of --heads={self.heads}: every "
                "head takes an equal share of it"
            )
        if self.activation not in ACTIVATIONS:
            raise UsageError(
                f"--activation={self.activation} is not known: {', '.join(ACTIVATIONS)} are"
            )
        share(self, *RATES)
        if self.family not in FAMILIES:
            raise UsageError(f"{self.family} is none of {', '.join(FAMILIES)}")
        at_least(self, int("token_types" in self._row.fields), "token_types")
        self._check_switches()
        if self.final_norm and not self.norm_first:
            raise UsageError("a last LayerNorm after post-norm layers: no model has that")

    def _check_switches(self) -> None:
        row = self._row
        has = {*row.fields, *RATES, *(["classes"] if row.class_head else [])}
        fixed = {f.name: f.default for f in fields(self) if f.default is not MISSING}
        fixed.update({"embedding_size": self.hidden_size, **row.always})
        for name, value in fixed.items():
            if name not in has and getattr(self, name) != value:
                flag = "--norm=post" if name == "norm_first" else f"--{name}={getattr(self, name)}"
                others = [other for other, its in FAMILIES.items() if name in its.fields]
                raise UsageError(
                    f"{flag}: {name} is always {value} in {self.family} models"
                    + (f"; it may differ in {', '.join(others)}" if others else "")
                )

    @property
    def _row(self) -> Family:
        return FAMILIES[self.family]

    @property
    def is_projected(self) -> bool:
        """Whether embeddings have another width than hidden states."""
        return self.embedding_size != self.hidden_size

    @property
    def position_rows(self) -> int:
        """Rows of the position table."""
        return self.max_positions + self.position_offset

    @property
    def head_activation(self) -> str:
        """Of a masked language model's head: BERT's is that of its layers, the others' is GELU."""
        return self.activation if self.family == "bert" else "gelu"

    def attention_scale(self, layer: int) -> float:
        """What the logits of attention in a layer (from 0) are multiplied with."""
        scale = (self.hidden_size // self.heads) ** -0.5 if self.scale_attention else 1.0
        return scale / (layer + 1) if self.scale_by_layer else scale

    @property
    def modules(self) -> List[Module]:
        """All that have weights."""
        return self._row.body(self) + head_modules(self)

    @property
    def base(self) -> str:
        """What names begin with in files; left out where the model was saved without its head."""
        return self._row.base

    @property
    def doubles(self) -> Dict[str, str]:
        """Tensors of theirs that files may hold and no model reads -> which of ours they repeat.

        A tied output layer is the embedding; one of its own has its own bias, and the head's is
        dead then.
        """
        if self.classes:
            return {}
        *before, table = self._row.head
        doubles = {}
        if before and before[-1] != table:
            doubles[f"{table if self.tied else before[-1]}.bias"] = "head.bias"
        if self.tied:
            doubles[f"{table}.weight"] = "embeddings.tokens.weight"
        return doubles

    @property
    def other_heads(self) -> Tuple[str, ...]:
        """Beginnings of names of heads that this model has no use for."""
        return self._row.other_heads[bool(self.classes)]

    @classmethod
    def new(cls, family: str, **given: Any) -> "ModelConfig":
        """A model of these fields, and of what its family has where nothing is said."""
        row = FAMILIES[family]
        return cls(family=family, **row.complete({**row.new, **given}))

    @classmethod
    def from_json(
        cls, content: Mapping[str, Any], *, classes: Sequence[str] = (), where: str
    ) -> "ModelConfig":
        """The model that a config.json describes, with a head for these classes."""
        values = _read_fields(content, where)
        row = FAMILIES[values["family"]]
        if values["family"] == "roberta":  # theirs are the padding's id, and all rows of the table
            values["position_offset"] += 1
            values["max_positions"] -= values["position_offset"]
        if not values.get("norm_first", True):  # nothing follows post-norm layers, whatever is said
            values["final_norm"] = False
        try:
            return cls(**values, classes=tuple(classes) if row.class_head else ())
        except UsageError as error:
            raise UsageError(f"{where}: config.json: {error}") from None

    @classmethod
    def find_published(
        cls, content: Mapping[str, Any], *, where: str
    ) -> Tuple["ModelConfig", Tuple[int, ...], Tuple[int, ...]]:
        """What a config.json describes: the model, and what texts begin with and end with."""
        classes = published_classes(content, where=where)
        return cls.from_json(content, classes=classes, where=where), *text_ids(content, where=where)

    def to_json(
        self, special_ids: Mapping[str, int], prefix_ids: Sequence[int] = ()
    ) -> Dict[str, Any]:
        """The config.json that transformers opens as this model; roles to ids are the contract's.

        `prefix_ids` are what texts begin with, where the model goes on with texts: a key of ours.
        """
        row = self._row
        content = {
            "model_type": self.family,
            "architectures": [row.classes[bool(self.classes)]],
            **{key.theirs: key.turn(getattr(self, key.ours)) for key in row.keys},
            **dict.fromkeys(row.dropout_keys, self.dropout),
            **{f"{role}_token_id": special_ids.get(role) for role in _ROLES},
            "initializer_range": 0.02,
            "dtype": "float32",
        }
        if self.family == "roberta":  # transformers derives positions from this id
            content["pad_token_id"] = self.position_offset - 1
            content["max_position_embeddings"] = self.position_rows
        if row.ids is not None:
            content["prefix_ids"] = [int(number) for number in prefix_ids]
            if prefix_ids:
                content["bos_token_id"] = content["prefix_ids"][0]
        if self.classes:
            content["problem_type"] = "single_label_classification"
            content["id2label"] = {str(number): name for number, name in enumerate(self.classes)}
            content["label2id"] = {name: number for number, name in enumerate(self.classes)}
        return content

    def check_fits(self, schema: Schema, *, where: str, shards: str) -> None:
        """Refuses a model, which comes from `where`, that cannot read the rows of --shards."""
        if self.max_positions < schema.max_length:
            raise UsageError(
                f"{where} places {self.max_positions} tokens, fewer than the {schema.max_length} "
                f"of a row of {shards}: build a set with --max_length={self.max_positions}, or "
                "take a model of more --max_positions"
            )
        if self.vocab_size < schema.vocab_size:
            raise UsageError(
                f"{where} has a vocabulary of {self.vocab_size:,}, but the rows of {shards} were "
                f"written with one of {schema.vocab_size:,}: build a set with the model's tokenizer"
            )
        pad = schema.special_ids.get("pad", -1)
        if self.family == "roberta" and self.position_offset != pad + 1:
            raise UsageError(
                f"{where}: its pad_token_id is {self.position_offset - 1} and that of {shards} "
                f"{pad}; RoBERTa counts positions from it. Build the set with the "
                "tokenizer of these weights"
            )
        has_pairs = any(feature.name == "token_type_ids" for feature in schema.features)
        if has_pairs and self.token_types < 2 and self.family != "roberta":  # RoBERTa has no types
            raise UsageError(
                f"{where} knows one token type, and the pairs of {shards} have two: "
                "give other weights"
            )


def with_dropout(config: ModelConfig, rate: float) -> ModelConfig:
    """The same model with one rate of dropout everywhere."""
    return replace(config, **dict.fromkeys(RATES, rate))


def _read_fields(content: Mapping[str, Any], where: str) -> Dict[str, Any]:
    """The fields of a configuration that config.json says, or transformers where it does not."""
    family = content.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        raise UsageError(
            f"{where}: config.json says model_type {quote(family)}, and {', '.join(FAMILIES)} are "
            "built here: give weights of one of these"
        )
    row = FAMILIES[family]
    for name, ours in row.fixed.items():
        if content.get(name) not in (None, ours):
            raise UsageError(f"{where}: its {name} is {quote(content[name])}; here it is {ours!r}")
    kinds = get_type_hints(ModelConfig)
    values: Dict[str, Any] = {"family": family}
    for key in row.keys:
        value, kind = content.get(key.theirs), kinds[key.ours]
        if value is None and (key.theirs not in content or callable(key.absent)):
            continue
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise DataError(
                f"{where}: config.json says that {key.theirs} is {quote(value)}, and it has to be "
                f"{_KINDS[kind]}: copy it again"
            )
        values[key.ours] = key.turn(value)
    return row.complete(values)


def published_classes(content: Mapping[str, Any], *, where: str) -> Tuple[str, ...]:
    """Names of the classes that a published encoder tells apart, if it is a classifier."""
    if "SequenceClassification" not in str(content.get("architectures")):
        return ()
    labels = content.get("id2label", {"0": "LABEL_0", "1": "LABEL_1"})
    names = labels if isinstance(labels, dict) else {}
    classes = [names.get(str(number)) for number in range(len(names))]
    texts = tuple(name for name in classes if isinstance(name, str))
    if not texts or len(texts) < len(names):
        raise DataError(
            f"{where}: config.json says that id2label is {quote(labels)}, and it has to name every "
            'class by its number: {"0": "no", "1": "yes"}'
        )
    return texts


def text_ids(content: Mapping[str, Any], *, where: str) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    """What a published decoder's texts begin with, and which end them, by its config.json."""
    row = FAMILIES[content["model_type"]]
    if row.ids is None:  # an encoder goes on with no text
        return (), ()
    bos, eos = (content.get(f"{role}_token_id", n) for role, n in zip(_ROLES, row.ids))
    ids = []
    for value in (content.get("prefix_ids", bos if row.begins_with_bos else None), eos):
        numbers = [] if value is None else value if isinstance(value, list) else [value]
        if not all(type(number) is int for number in numbers):
            raise DataError(f"{where}: config.json names a token {quote(value)}, which is no id")
        ids.append(tuple(numbers))
    return ids[0], ids[1]
