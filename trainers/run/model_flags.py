"""Flags that say which model is trained, and the model that they, a set and --init_from make.

Where they make none, or it cannot read the set's rows, that is a UsageError; published weights that
are broken, or not those of their config.json, are a DataError.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, Dict, List, Literal, NamedTuple, Optional, Tuple, get_args, get_type_hints

from schemas.errors import UsageError
from schemas.sidecar import Schema
from trainers.data.flag_values import at_least, share
from trainers.models.families import ELECTRA_EMBEDDING, FAMILIES
from trainers.models.hf_files import Tensors, read_directory
from trainers.models.model_config import DIMENSIONS, ModelConfig, with_dropout
from trainers.models.modules import Weights
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
    """A model, and the tensors of --init_from."""

    config: ModelConfig
    tensors: Optional[Tensors]


def families_of(flags: ModelFlags) -> Tuple[str, ...]:
    """Those that a trainer takes."""
    return get_args(get_type_hints(type(flags))["family"])


def plan_model(flags: ModelFlags, schema: Schema) -> PlannedModel:
    """The model that flags, set and --init_from make; a set with classes gives it their head."""
    classes, rate = tuple(schema.parameters.get("classes", ())), flags.dropout
    if flags.init_from is None:
        config = ModelConfig.new(**_new_dimensions(flags, schema), classes=classes)
        config = with_dropout(config, DROPOUT if rate is None else rate)
        return _fit_to_set(config, None, flags, schema)
    place = f"--init_from={flags.init_from}"
    found, tensors = read_directory(flags.init_from, model_types=families_of(flags))
    config = ModelConfig.from_json(found, classes=classes, place=place)
    must_agree("norm", getattr(flags, "norm", None), "pre" if config.norm_first else "post", place)
    if rate is None and FAMILIES[config.family].dropout_keys:  # which are not taken over
        rate = DROPOUT
    config = config if rate is None else with_dropout(config, rate)
    return _fit_to_set(config, tensors, flags, schema)


def _new_dimensions(flags: ModelFlags, schema: Schema) -> Dict[str, Any]:
    """What flags and set say of a new model."""
    given = {"vocab_size": schema.vocab_size, "max_positions": schema.max_length}
    given.update({**SIZES[flags.model], **_asked(flags)})
    if flags.family == "roberta":
        given["position_offset"] = schema.special_ids.get("pad", -1) + 1
    if flags.family == "electra" and given["hidden_size"] > 2 * ELECTRA_EMBEDDING:
        given.setdefault("embedding_size", given["hidden_size"])
    if getattr(flags, "norm", None) == "post":
        given.update(norm_first=False, final_norm=False)
    return {"family": flags.family, **given}


def _asked(flags: ModelFlags) -> Dict[str, Any]:
    """The fields of a configuration that a flag of the same name gives."""
    names = {field.name for field in fields(ModelConfig)}
    names -= {"family", "vocab_size", "dropout"}  # mean something else beside published weights
    given = {name: getattr(flags, name, None) for name in sorted(names)}
    return {name: value for name, value in given.items() if value is not None}


def _fit_to_set(
    config: ModelConfig, tensors: Optional[Tensors], flags: ModelFlags, schema: Schema
) -> PlannedModel:
    """Makes a model fit the set; refuses one that cannot, or whose tensors are not all there."""
    if flags.vocab_size not in (None, schema.vocab_size):
        raise UsageError(
            f"--vocab_size={flags.vocab_size}, but the rows of {flags.shards} were written with "
            f"a vocabulary of {schema.vocab_size}: leave the flag out, or build the set with the "
            "other tokenizer"
        )
    place = f"--max_positions={config.max_positions}"
    if tensors is not None:
        place = f"--init_from={flags.init_from}"
        for name, asked in _asked(flags).items():
            must_agree(name, asked, getattr(config, name), place)
        check_published(tensors, config, place=place)
        # Rows beyond the set's vocabulary stay: a table is often filled up to a round number.
        rows = max(config.vocab_size, schema.vocab_size)
        config = replace(config, vocab_size=rows)
    config.check_fits(schema, place=place, shards=flags.shards)
    return PlannedModel(config, tensors)


def must_agree(name: str, asked: object, value: object, place: str) -> None:
    """Refuses a flag that asks for something else than published weights have."""
    if asked not in (None, value):
        raise UsageError(
            f"--{name}={asked}, but the weights of {place} have {value}: leave the flag out"
        )


def initial_weights(
    planned: PlannedModel, *, seed: int, init_from: Optional[str]
) -> Tuple[Weights, List[str]]:
    """Weights before the first step, and a line for people on each thing of note in them."""
    if planned.tensors is None:
        return fresh(planned.config, seed), []
    place = f"--init_from={init_from}"
    return from_published(planned.tensors, planned.config, seed=seed, place=place)
