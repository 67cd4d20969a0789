"""A model: its dimensions, checked, from and to Hugging Face's config.json.

Keys that config.json lacks have the defaults of transformers. A setting that trainers do not
implement is a UsageError, a value of a wrong type a DataError. Both begin with `where`, such as
"--init_from=DIR".
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Mapping, Sequence, get_type_hints

from textmill.schemas.errors import DataError, UsageError, as_keywords, flag
from textmill.schemas.format.metadata import Schema
from textmill.schemas.typed_json import quote
from textmill.trainers.flags.run_flags import DIMENSIONS, at_least, share
from textmill.trainers.models.dimensions import Dimensions
from textmill.trainers.models.families import (
    ACTIVATIONS,
    FAMILIES,
    LocalKey,
    ModelFamily,
    Module,
    head_modules,
)
from textmill.trainers.models.rope import Rope

RATES = ("dropout", "attention_dropout", "classifier_dropout")
_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
_ROLES = ("bos", "eos", "pad")
_IS_LOCAL = {"full_attention": False, "sliding_attention": True}  # layer_types of config.json
# Bounds of dimensions that no tensor bounds; float32 holds whole numbers up to 2**24 exactly.
_MOST: dict[str, float] = {
    **dict.fromkeys(("max_positions", "window"), 1 << 24),
    "head_size": 1 << 12,
    "query_size": 1 << 20,
    **dict.fromkeys(("attention_softcap", "logit_softcap"), 1e6),
    "layer_norm_epsilon": 1,
}


@dataclass(frozen=True)
class ModelConfig(Dimensions):
    """An encoder or a decoder with its head; `new` adds defaults."""

    def __post_init__(self) -> None:
        """Refuses impossible dimensions, and switches that the family does not have."""
        at_least(self, 1, "vocab_size", "kv_heads", "head_size", *DIMENSIONS)
        at_least(self, 0, "position_offset", "window", "layer_norm_epsilon")
        at_least(self, 0, "attention_softcap", "logit_softcap")
        for name, most in _MOST.items():
            if getattr(self, name) > most:
                raise UsageError(f"{flag(name, getattr(self, name))}: must be at most {most:,}")
        if self.heads % self.kv_heads:
            raise UsageError(
                f"{flag('heads', self.heads)} is not a multiple of "
                f"{flag('kv_heads', self.kv_heads)}: equal numbers of heads share keys and values"
            )
        if self.rope and self.head_size % 2:
            raise UsageError(
                f"{flag('head_size', self.head_size)} is odd: rotary positions turn pairs of "
                "numbers"
            )
        if self.activation not in ACTIVATIONS:
            raise UsageError(
                f"{flag('activation', self.activation)} is unknown: give one of "
                f"{', '.join(ACTIVATIONS)}"
            )
        share(self, *RATES)
        if self.family not in FAMILIES:
            raise UsageError(f"family {self.family} is unknown: give one of {', '.join(FAMILIES)}")
        if self.hidden_size % self.heads and not self._row.has_any_heads:
            raise UsageError(
                f"{flag('hidden_size', self.hidden_size)} is not a multiple of "
                f"{flag('heads', self.heads)}: all heads have equal width"
            )
        for name in ("token_types", "query_size"):
            at_least(self, int(name in self._row.fields), name)
        has_window = any(key.ours == "window" and key.null is None for key in self._row.keys)
        at_least(self, int(has_window), "window")
        self._check_switches()
        if self.final_norm and not self.norm_first:
            raise UsageError("final_norm needs norm_first: post-norm models have no last LayerNorm")

    def _check_switches(self) -> None:
        row = self._row
        has = {*row.fields, *RATES, *(["classes"] if row.class_head else [])}
        fixed = {f.name: f.default for f in fields(self) if f.default is not MISSING}
        fixed.update({**row.of_all_heads(vars(self)), **row.always})
        for name, value in fixed.items():
            if name not in has and getattr(self, name) != value:
                given = flag(name, str(getattr(self, name)))
                given = {"norm_first": flag("norm", "post"), "rope": flag("rope_theta")}.get(
                    name, given
                )
                others = [other for other, its in FAMILIES.items() if name in its.fields]
                raise UsageError(
                    f"{given}: {name} is always {value} in {self.family} models"
                    + (f"; it may differ in {', '.join(others)}" if others else "")
                )

    @property
    def _row(self) -> ModelFamily:
        return FAMILIES[self.family]

    @property
    def is_decoder(self) -> bool:
        """Whether it predicts the next token."""
        return self._row.eos_ids is not None

    @property
    def head_activation(self) -> str:
        """Activation of a masked language model's head: GELU, but in BERT that of the layers."""
        return self.activation if self.family == "bert" else "gelu"

    def attention_scale(self, layer: int) -> float:
        """The factor of the logits of attention in a layer (from 0)."""
        scale = (self.query_size or self.head_size) ** -0.5 if self.scale_attention else 1.0
        return scale / (layer + 1) if self.scale_by_layer else scale

    def is_local(self, layer: int) -> bool:
        """Whether a layer (from 0) has the window and the rotary positions of local ones."""
        return self.local_layers[layer % len(self.local_layers)]

    def window_of(self, layer: int) -> int:
        """The window of a layer (from 0); 0 for no limit."""
        return self.window if self.is_local(layer) else 0

    def rope_of(self, layer: int) -> Rope | None:
        """The rotary positions of a layer (from 0)."""
        return self.local_rope if self.local_rope and self.is_local(layer) else self.rope

    @property
    def modules(self) -> list[Module]:
        """All modules with weights."""
        return self._row.body(self) + head_modules(self)

    @property
    def base(self) -> str:
        """Prefix of names in files; models saved without a head lack it."""
        return self._row.base

    @property
    def doubles(self) -> dict[str, str]:
        """Tensors in files -> the tensor of this model that they repeat.

        {"lm_head.weight": "model.embed_tokens.weight"}: a tied output layer repeats the embedding,
        and its bias the head's. An untied one has its own bias, so the head's is unused.
        """
        if self.classes:
            return {}
        *before, table = self._row.head
        bias, other = f"{table}.bias", "".join(f"{name}.bias" for name in before[-1:])
        if not self.tied:
            return {other: bias} if other not in ("", bias) else {}
        [tokens] = [module for module in self.modules if module.ours == "embeddings.tokens"]
        doubles = {f"{table}.weight": f"{tokens.theirs[0]}.weight"}
        return {**doubles, bias: other} if other not in ("", bias) else doubles

    @property
    def other_heads(self) -> tuple[str, ...]:
        """Prefixes of names of heads that this model ignores."""
        return self._row.other_heads[bool(self.classes)]

    @classmethod
    def new(cls, family: str, **values: Any) -> ModelConfig:
        """A model of these fields, with the family's defaults for the others."""
        row = FAMILIES[family]
        return cls(family=family, **row.complete(values, row.new))

    @classmethod
    def from_settings(cls, values: Mapping[str, Any]) -> ModelConfig:
        """The inverse of `dataclasses.asdict` and JSON."""
        of: dict[type, Any] = {list: tuple, dict: lambda value: Rope(**value)}
        return cls(**{n: of.get(type(v), lambda v: v)(v) for n, v in values.items()})

    @classmethod
    def from_json(
        cls, content: Mapping[str, Any], *, classes: Sequence[str] = (), where: str
    ) -> ModelConfig:
        """The model of a config.json, with a head for these classes."""
        values = _read_fields(content, where)
        row = FAMILIES[values["family"]]
        values.update(row.read_more(values))
        try:
            return cls(**values, classes=tuple(classes) if row.class_head else ())
        except UsageError as error:
            keys = {key.ours: key.theirs for key in reversed(row.keys)}
            reason = as_keywords(error.marked, keys)
            raise UsageError(f"{where}: config.json: {reason}") from None

    def to_json(
        self, special_ids: Mapping[str, int], prefix_ids: Sequence[int] = ()
    ) -> dict[str, Any]:
        """The config.json for transformers; `special_ids` of a schema are roles to ids.

        `prefix_ids`, the start of a decoder's texts, is our own key.
        """
        row = self._row
        content = {
            "model_type": self.family,
            "architectures": [row.classes[bool(self.classes)]],
            **{key.theirs: key.write(getattr(self, key.ours)) for key in row.keys},
            **self._ropes_to_json(),
            **dict.fromkeys(row.dropout_keys, self.dropout),
            **{f"{role}_token_id": special_ids.get(role) for role in _ROLES},
            "initializer_range": 0.02,
            "dtype": "float32",
        }
        content.update(row.write_more(self, content))
        if row.local:
            names = {is_local: name for name, is_local in _IS_LOCAL.items()}
            content["layer_types"] = [names[self.is_local(n)] for n in range(self.layers)]
        if self.is_decoder:
            content["prefix_ids"] = [int(number) for number in prefix_ids]
            if prefix_ids:
                content["bos_token_id"] = content["prefix_ids"][0]
        if self.classes:
            content["problem_type"] = "single_label_classification"
            content["id2label"] = {str(number): name for number, name in enumerate(self.classes)}
            content["label2id"] = {name: number for number, name in enumerate(self.classes)}
        return content

    def _ropes_to_json(self) -> dict[str, Any]:
        """Rotary positions as transformers 5 reads them, and as 4 does."""
        content: dict[str, Any] = {"rope_parameters": {}} if self.rope else {}
        for key in self._row.ropes:
            parameters = getattr(self, key.ours).to_json()
            inner = {key.layers: parameters} if key.layers else parameters
            content["rope_parameters"].update(inner)
            content[key.theirs] = parameters["rope_theta"]
            is_default = parameters["rope_type"] == "default" or "rope_scaling" in self._row.fixed
            if key.ours == "rope" and not is_default:
                content["rope_scaling"] = parameters
        return content

    def check_fits(self, schema: Schema, *, where: str, shards: str) -> None:
        """Refuses a model from `where` that cannot read the rows of `shards`."""
        if self.max_positions < schema.max_length:
            raise UsageError(
                f"{where} has {self.max_positions} positions, but rows of {shards} have "
                f"{schema.max_length} tokens: build a dataset with "
                f"{flag('max_length', self.max_positions)}, or take a model with more positions"
            )
        if self.vocab_size < schema.vocab_size:
            raise UsageError(
                f"{where} has a vocabulary of {self.vocab_size:,}, but {shards} has one of "
                f"{schema.vocab_size:,}: build a dataset with the model's tokenizer"
            )
        own, classes = list(self.classes), list(schema.parameters.get("classes", ()))
        if len(own) != len(classes) or (own != classes and sorted(own) == sorted(classes)):
            raise UsageError(
                f"{where} has the classes {quote(own)}, and {shards} has {quote(classes)}: build "
                f"the dataset with {flag('classes')} in the model's order, or give other weights"
            )
        pad = schema.special_ids.get("pad", -1)
        if self.family == "roberta" and self.position_offset != pad + 1:
            raise UsageError(
                f"{where}: its pad_token_id is {self.position_offset - 1} and that of {shards} is "
                f"{pad}, from which RoBERTa counts positions: build the dataset with the tokenizer "
                "of these weights"
            )
        has_pairs = any(feature.name == "token_type_ids" for feature in schema.features)
        if has_pairs and self.token_types < 2 and self.family != "roberta":  # it uses no types
            raise UsageError(
                f"{where} has one token type, but pairs of {shards} have two: give other weights"
            )


def with_dropout(config: ModelConfig, rate: float) -> ModelConfig:
    """The model with one dropout rate everywhere."""
    return replace(config, **dict.fromkeys(RATES, rate))


def _read_fields(content: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The fields of ModelConfig from config.json, with the defaults of transformers."""
    family = content.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        raise UsageError(
            f"{where}: config.json has model_type {quote(family)}: give weights of one of "
            f"{', '.join(FAMILIES)}"
        )
    row = FAMILIES[family]
    for name, ours in row.fixed.items():
        if content.get(name) not in (None, ours):
            raise UsageError(
                f"{where}: its {name} is {quote(content[name])}, but trainers support {ours!r} "
                "only: give other weights"
            )
    kinds = get_type_hints(ModelConfig)
    values: dict[str, Any] = {"family": family}
    for key in row.keys:
        value, kind = content.get(key.theirs), kinds[key.ours]
        if value is None and (key.theirs not in content or callable(key.absent)):
            continue
        if value is None and key.null is not None:
            values[key.ours] = key.null
            continue
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise DataError(
                f"{where}: config.json has {quote(value)} for {key.theirs} instead of "
                f"{_KINDS[kind]}: copy it again"
            )
        values[key.ours] = key.read(value)
    for key in row.ropes:
        values[key.ours] = Rope.from_json(content, key, where=where)
    if row.local:
        layers = row.complete(values)["layers"]
        values["local_layers"] = _read_local_layers(content, row.local, layers, where)
    return row.complete(values)


def _read_local_layers(
    content: Mapping[str, Any], key: LocalKey, layers: int, where: str
) -> tuple[bool, ...]:
    types = content.get("layer_types")
    if types is not None:
        names = list(map(str, types)) if isinstance(types, list) else []
        if len(names) != layers or not _IS_LOCAL.keys() >= set(names):
            raise DataError(
                f"{where}: config.json has {quote(types)} for layer_types instead of "
                f"{' or '.join(_IS_LOCAL)} for each of {layers:,} layers: copy it again"
            )
        return tuple(_IS_LOCAL[name] for name in names)
    every = content.get(key.theirs, key.every)
    if type(every) is not int or every < 1:
        raise DataError(
            f"{where}: config.json has {quote(every)} for {key.theirs} instead of a whole number "
            "from 1 on: copy it again"
        )
    return key.pattern(layers, every)


def published_classes(content: Mapping[str, Any], *, where: str) -> tuple[str, ...]:
    """Names of the classes of a published classifier; none for other models."""
    if "SequenceClassification" not in str(content.get("architectures")):
        return ()
    labels = content.get("id2label", {"0": "LABEL_0", "1": "LABEL_1"})
    names = labels if isinstance(labels, dict) else {}
    classes = [names.get(str(number)) for number in range(len(names))]
    texts = tuple(name for name in classes if isinstance(name, str))
    if not texts or len(texts) < len(names):
        raise DataError(
            f"{where}: config.json has {quote(labels)} for id2label, which must name every class "
            'by its number: {"0": "no", "1": "yes"}'
        )
    return texts
