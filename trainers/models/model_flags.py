"""Flags that say which model is trained, and the model that they, a set and --init_from make.

Where they make none, or it cannot read the set's rows, that is a UsageError; published weights that
are broken, or not those of their config.json, are a DataError.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, Dict, List, Literal, NamedTuple, Optional, Tuple, get_args, get_type_hints

from schemas.errors import UsageError
from schemas.sidecar import Schema
from trainers.data.flag_values import at_least, share
from trainers.models import decoder, encoder
from trainers.models.decoder import DecoderConfig
from trainers.models.encoder import ELECTRA_EMBEDDING, EncoderConfig, with_dropout
from trainers.models.hf_config import decoder_from_json, encoder_from_json
from trainers.models.hf_files import Tensors, read_directory
from trainers.models.modules import DIMENSIONS, Weights, complete
from trainers.models.weights import check_published, fresh, from_published
from trainers.run.flags import RunFlags

# Turc et al., "Well-Read Students Learn Better", 2019 (arXiv:1908.08962); base is BERT's and
# GPT-2's own, medium GPT-2's, and electra_small ELECTRA's (arXiv:2003.10555).
SIZES: Dict[str, Dict[str, int]] = {
    "tiny": dict(layers=2, hidden_size=128, heads=2, intermediate_size=512),
    "small": dict(layers=4, hidden_size=512, heads=8, intermediate_size=2048),
    "base": dict(layers=12, hidden_size=768, heads=12, intermediate_size=3072),
    "medium": dict(layers=24, hidden_size=1024, heads=16, intermediate_size=4096),
    "gpt2": dict(layers=12, hidden_size=768, heads=12, intermediate_size=3072),
    "electra_small": dict(layers=12, hidden_size=256, heads=4, intermediate_size=1024),
}
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
        for name in DIMENSIONS:
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
    """An EncoderConfig or a DecoderConfig, and the tensors of --init_from."""

    config: Any
    tensors: Optional[Tensors]


def plan_encoder(flags: Any, schema: Schema) -> PlannedModel:
    """The encoder that flags, set and --init_from make; a set with classes gives it their head."""
    classes, rate = tuple(schema.parameters.get("classes", ())), flags.dropout
    if flags.init_from is not None:
        place, found, tensors = _read_published(flags)
        config = encoder_from_json(found, classes=classes, place=place)
        config = config if rate is None else with_dropout(config, rate)
        return _fitting(config, tensors, flags, schema)
    row, given = encoder.FAMILIES[flags.family], _new_dimensions(flags, schema, EncoderConfig)
    if flags.family == "roberta":
        given["position_offset"] = schema.special_ids.get("pad", -1) + 1
    if flags.family == "electra" and given["hidden_size"] > 2 * ELECTRA_EMBEDDING:
        given.setdefault("embedding_size", given["hidden_size"])
    config = EncoderConfig(classes=classes, **complete({**row.new, **given}, row.keys))
    config = with_dropout(config, DROPOUT if rate is None else rate)
    return _fitting(config, None, flags, schema)


def plan_decoder(flags: Any, schema: Schema) -> PlannedModel:
    """The decoder that flags, set and --init_from make."""
    dropout = DROPOUT if flags.dropout is None else flags.dropout
    if flags.init_from is not None:
        place, found, tensors = _read_published(flags)
        config = decoder_from_json(found, dropout=dropout, place=place)
        _must_agree("norm", flags.norm, "pre" if config.norm_first else "post", place)
        return _fitting(config, tensors, flags, schema)
    row, given = decoder.FAMILIES[flags.family], _new_dimensions(flags, schema, DecoderConfig)
    if flags.norm == "post":
        given.update(norm_first=False, final_norm=False)
    config = DecoderConfig(**complete({**row.always, **given, "dropout": dropout}, row.keys))
    return _fitting(config, None, flags, schema)


def _asked(flags: Any, config: Any) -> Dict[str, Any]:
    """The fields of a configuration that a flag of the same name gives."""
    names = {field.name for field in fields(config)}
    names -= {"family", "vocab_size", "dropout"}  # mean something else beside published weights
    given = {name: getattr(flags, name, None) for name in sorted(names)}
    return {name: value for name, value in given.items() if value is not None}


def _new_dimensions(flags: Any, schema: Schema, config_class: type) -> Dict[str, Any]:
    """What flags and set say of a new model."""
    of_set = {"vocab_size": schema.vocab_size, "max_positions": schema.max_length}
    sizes = {**SIZES[flags.model], **_asked(flags, config_class)}
    return {"family": flags.family, **of_set, **sizes}


def _read_published(flags: Any) -> Tuple[str, Dict[str, Any], Tensors]:
    """Says --init_from=DIR, and gives its config.json and its tensors."""
    families = get_args(get_type_hints(type(flags))["family"])
    found, tensors = read_directory(flags.init_from, model_types=families)
    return f"--init_from={flags.init_from}", found, tensors


def _fitting(config: Any, tensors: Optional[Tensors], flags: Any, schema: Schema) -> PlannedModel:
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
        for name, asked in _asked(flags, config).items():
            _must_agree(name, asked, getattr(config, name), place)
        check_published(tensors, config, place=place)
        # Rows beyond the set's vocabulary stay: a table is often filled up to a round number.
        rows = max(config.vocab_size, schema.vocab_size)
        config = replace(config, vocab_size=rows)
    check_fits(config, schema, place=place, shards=flags.shards)
    return PlannedModel(config, tensors)


def _must_agree(name: str, asked: object, value: object, place: str) -> None:
    if asked not in (None, value):
        raise UsageError(
            f"--{name}={asked}, but the weights of {place} have {value}: leave the flag out"
        )


def check_fits(config: Any, schema: Schema, *, place: str, shards: str) -> None:
    """Refuses a model, which comes from `place`, that cannot read the rows of --shards."""
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
    pad = schema.special_ids.get("pad", -1)
    if config.family == "roberta" and config.position_offset != pad + 1:
        raise UsageError(
            f"{place}: its pad_token_id is {config.position_offset - 1} and that of {shards} "
            f"{pad}; RoBERTa counts positions from it. Build the set with the "
            "tokenizer of these weights"
        )
    has_pairs = any(feature.name == "token_type_ids" for feature in schema.features)
    if has_pairs and config.token_types < 2 and config.family != "roberta":  # RoBERTa has no types
        raise UsageError(
            f"{place} knows one token type, and the pairs of {shards} have two: give other weights"
        )


def initial_weights(
    planned: PlannedModel, *, seed: int, init_from: Optional[str]
) -> Tuple[Weights, List[str]]:
    """Weights before the first step, and a line for people on each thing of note in them."""
    if planned.tensors is None:
        return fresh(planned.config, seed), []
    place = f"--init_from={init_from}"
    return from_published(planned.tensors, planned.config, seed=seed, place=place)
