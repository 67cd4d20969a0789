"""Flags that say which model is trained, and the model that they, a set and --init_from make.

No framework, so that --help and refusals cost no import of one. Python 3.8 syntax.
"""

import dataclasses
from dataclasses import dataclass
from typing import (
    Any,
    Dict,
    List,
    Literal,
    Mapping,
    NamedTuple,
    Optional,
    Tuple,
    get_args,
    get_type_hints,
)

import numpy as np

from schemas.errors import UsageError
from schemas.sidecar import Schema
from trainers.data.flag_checks import at_least, share
from trainers.models import decoder, encoder
from trainers.models.decoder import DecoderConfig
from trainers.models.encoder import ELECTRA_EMBEDDING, EncoderConfig, with_dropout
from trainers.models.hf_config import decoder_from_json, encoder_from_json
from trainers.models.hf_files import read_directory
from trainers.models.modules import Weights
from trainers.models.weights import check_published, fresh, from_published
from trainers.run.flags import RunFlags

# Turc et al., "Well-Read Students Learn Better", 2019 (arXiv:1908.08962); base is BERT's and
# GPT-2's own, medium GPT-2's, and electra_small ELECTRA's (arXiv:2003.10555).
SIZES: Dict[str, Dict[str, int]] = {
    name: dict(zip(("layers", "hidden_size", "heads", "intermediate_size"), sizes))
    for name, sizes in {
        "tiny": (2, 128, 2, 512),
        "small": (4, 512, 8, 2048),
        "base": (12, 768, 12, 3072),
        "medium": (24, 1024, 16, 4096),
        "gpt2": (12, 768, 12, 3072),
        "electra_small": (12, 256, 4, 1024),
    }.items()
}
_SHAPE = ("layers", "hidden_size", "heads", "intermediate_size", "embedding_size")
DROPOUT = 0.1  # of a new model


@dataclass(frozen=True)
class ModelFlags(RunFlags):
    """Which model."""

    family: str = ""
    """Whose architecture; with --init_from its config.json says it, and all that follows."""
    model: str = "small"
    """Dimensions to start from; each flag below replaces one of them."""
    layers: Optional[int] = None
    """Layers of attention and feed-forward block."""
    hidden_size: Optional[int] = None
    """Width of the hidden states."""
    heads: Optional[int] = None
    """Attention heads; divides hidden_size."""
    intermediate_size: Optional[int] = None
    """Width of the feed-forward block."""
    embedding_size: Optional[int] = None
    """Width of the embeddings, electra and opt only. None: hidden_size; of electra 128 up to
    hidden states of 256."""
    max_positions: Optional[int] = None
    """Longest segment the model can place, at least the rows' length. None: that length."""
    vocab_size: Optional[int] = None
    """Only a check: must be the contract's."""
    activation: Optional[str] = None
    """Of the feed-forward blocks, by Hugging Face's name. None: gelu; gelu_new for gpt2, relu for
    opt."""
    dropout: Optional[float] = None
    """On embeddings, attention probabilities, residual branches and before a classifier. None: as
    published encoders have it, 0.1 for other models."""

    def __post_init__(self) -> None:
        """Refuses values that cannot be meant."""
        super().__post_init__()
        for name in (*_SHAPE, "max_positions"):
            at_least(self, name, 1)
        share(self, "dropout")


@dataclass(frozen=True)
class EncoderFlags(ModelFlags):
    """Which encoder."""

    family: Literal["roberta", "bert", "electra"] = "roberta"
    model: Literal["tiny", "small", "base", "electra_small"] = "small"


@dataclass(frozen=True)
class DecoderFlags(ModelFlags):
    """Which decoder."""

    family: Literal["gpt2", "opt"] = "gpt2"
    model: Literal["tiny", "small", "base", "medium", "gpt2"] = "small"
    norm: Optional[Literal["pre", "post"]] = None
    """LayerNorm before each block, or after it (opt only, as OPT-350m). None: pre."""
    tied: Optional[bool] = None
    """Whether the output layer is the embedding. None: it is."""


class PlannedModel(NamedTuple):
    """The model of a run.

    Attributes:
      config: an EncoderConfig or a DecoderConfig.
      tensors: of --init_from; None for a fresh model.
    """

    config: Any
    tensors: Optional[Mapping[str, np.ndarray]]


def plan_encoder(flags: Any, schema: Schema) -> PlannedModel:
    """The encoder that flags, set and --init_from make; a set with classes gives it their head.

    Raises:
      UsageError: they make none, or it cannot read the set's rows.
      DataError: published weights are broken, or not those of their config.json.
    """
    classes = tuple(schema.parameters.get("classes", ()))
    if flags.init_from is None:
        return _fitting(_new_encoder(flags, schema, classes), None, flags, schema)
    place, found, tensors = _read_published(flags)
    config = encoder_from_json(found, classes=classes, place=place)
    if flags.dropout is not None:
        config = with_dropout(config, flags.dropout)
    return _fitting(config, tensors, flags, schema)


def plan_decoder(flags: Any, schema: Schema) -> PlannedModel:
    """The decoder that flags, set and --init_from make.

    Raises:
      UsageError: they make none, or it cannot read the set's rows.
      DataError: published weights are broken, or not those of their config.json.
    """
    dropout = DROPOUT if flags.dropout is None else flags.dropout
    if flags.init_from is None:
        return _fitting(_new_decoder(flags, schema, dropout), None, flags, schema)
    place, found, tensors = _read_published(flags)
    config = decoder_from_json(found, dropout=dropout, place=place)
    _must_agree("norm", flags.norm, "pre" if config.norm_first else "post", place)
    _must_agree("tied", flags.tied, config.tied, place)
    return _fitting(config, tensors, flags, schema)


def _new_encoder(flags: Any, schema: Schema, classes: Tuple[str, ...]) -> EncoderConfig:
    family, sizes = encoder.FAMILIES[flags.family], _sizes(flags, schema)
    if flags.family == "electra" and flags.embedding_size is None:
        if sizes["hidden_size"] <= 2 * ELECTRA_EMBEDDING:
            sizes["embedding_size"] = ELECTRA_EMBEDDING
    config = EncoderConfig(
        position_offset=_pad_id(schema) + 1 if flags.family == "roberta" else 0,
        token_types=family.token_types,
        activation=flags.activation or "gelu",
        layer_norm_epsilon=family.layer_norm_epsilon,
        classes=classes,
        **sizes,
    )
    return with_dropout(config, DROPOUT if flags.dropout is None else flags.dropout)


def _new_decoder(flags: Any, schema: Schema, dropout: float) -> DecoderConfig:
    """Its switches are those that transformers gives the family, where no flag says otherwise."""
    keys = decoder.FAMILIES[flags.family].keys
    switches = {key.ours: key.turn(key.absent) for key in keys}
    for name in ("activation", "tied"):
        if getattr(flags, name) is not None:
            switches[name] = getattr(flags, name)
    if flags.norm == "post":
        switches.update(norm_first=False, final_norm=False)
    return DecoderConfig(**{**switches, **_sizes(flags, schema), "dropout": dropout})


def _sizes(flags: Any, schema: Schema) -> Dict[str, Any]:
    given = {name: getattr(flags, name) for name in _SHAPE if getattr(flags, name) is not None}
    sizes: Dict[str, Any] = {**SIZES[flags.model], **given}
    sizes.setdefault("embedding_size", sizes["hidden_size"])
    sizes["max_positions"] = flags.max_positions or schema.max_length
    return {"family": flags.family, "vocab_size": schema.vocab_size, **sizes}


def _read_published(flags: Any) -> Tuple[str, Dict[str, Any], Mapping[str, np.ndarray]]:
    """Says --init_from=DIR, and gives its config.json and its tensors."""
    families = get_args(get_type_hints(type(flags))["family"])
    found, tensors = read_directory(flags.init_from, model_types=families)
    return f"--init_from={flags.init_from}", found, tensors


def _fitting(
    config: Any, tensors: Optional[Mapping[str, np.ndarray]], flags: Any, schema: Schema
) -> PlannedModel:
    """A model that goes with the set and the flags; published tensors are all there, none read."""
    if flags.vocab_size not in (None, schema.vocab_size):
        raise UsageError(
            f"--vocab_size={flags.vocab_size}, but the rows of {flags.shards} were written with "
            f"a vocabulary of {schema.vocab_size}: leave the flag out, or build the set with the "
            "other tokenizer"
        )
    place = f"--max_positions={config.max_positions}"
    if tensors is not None:
        place = f"--init_from={flags.init_from}"
        for name in (*_SHAPE, "max_positions", "activation"):
            _must_agree(name, getattr(flags, name), getattr(config, name), place)
        check_published(tensors, config, place=place)
        # Rows beyond the set's vocabulary stay: a table is often filled up to a round number.
        rows = max(config.vocab_size, schema.vocab_size)
        config = dataclasses.replace(config, vocab_size=rows)
    check_fits(config, schema, place=place, shards=flags.shards)
    return PlannedModel(config, tensors)


def _must_agree(name: str, asked: object, value: object, place: str) -> None:
    if asked not in (None, value):
        raise UsageError(
            f"--{name}={asked}, but the weights of {place} have {value}: leave the flag out"
        )


def check_fits(config: Any, schema: Schema, *, place: str, shards: str) -> None:
    """Refuses a model that cannot read a set's rows.

    Args:
      config: of the model.
      schema: of the set.
      place: where the model comes from, such as "--checkpoint=DIR".
      shards: what --shards says.

    Raises:
      UsageError: rows are too long, ids too large, or padding or pairs are not the model's.
    """
    if config.max_positions < schema.max_length:
        raise UsageError(
            f"{place} places {config.max_positions} tokens, fewer than the {schema.max_length} of "
            f"a row of {shards}: build a set with --max_length={config.max_positions}, or take a "
            "model of more --max_positions"
        )
    if config.vocab_size < schema.vocab_size:
        raise UsageError(
            f"{place} has a vocabulary of {config.vocab_size:,}, but the rows of {shards} were "
            f"written with one of {schema.vocab_size:,}: build a set with the model's tokenizer"
        )
    if not isinstance(config, EncoderConfig):
        return
    if config.family == "roberta" and config.position_offset != _pad_id(schema) + 1:
        raise UsageError(
            f"{place}: its pad_token_id is {config.position_offset - 1} and that of {shards} "
            f"{_pad_id(schema)}; RoBERTa counts positions from it. Build the set with the "
            "tokenizer of these weights"
        )
    has_pairs = any(feature.name == "token_type_ids" for feature in schema.features)
    if has_pairs and config.token_types < encoder.FAMILIES[config.family].token_types:
        raise UsageError(
            f"{place} knows one token type, and the pairs of {shards} have two: give other weights"
        )


def _pad_id(schema: Schema) -> int:
    return schema.special_ids.get("pad", -1)


def initial_weights(
    planned: PlannedModel, *, seed: int, init_from: Optional[str]
) -> Tuple[Weights, List[str]]:
    """Weights before the first step, and a line for people on each thing of note in them.

    Args:
      planned: the model.
      seed: of what is new.
      init_from: what --init_from says, to name in errors.
    """
    if planned.tensors is None:
        return fresh(planned.config, seed), []
    place = f"--init_from={init_from}"
    return from_published(planned.tensors, planned.config, seed=seed, place=place)
