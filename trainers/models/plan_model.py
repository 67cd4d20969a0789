"""The model that flags, a set and --init_from make.

Where they make none, or it cannot read the set's rows, that is a UsageError; published weights that
are broken, or not those of their config.json, are a DataError.
"""

from dataclasses import fields, replace
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, get_args, get_type_hints

from schemas.errors import UsageError
from schemas.hub import find_on_hub
from schemas.metadata import Schema
from trainers.flags.run_flags import ModelFlags, RunFlags
from trainers.models.families import ELECTRA_EMBEDDING, FAMILIES, Weights
from trainers.models.hf_files import Tensors, read_directory
from trainers.models.model_config import ModelConfig, with_dropout
from trainers.models.weights import check_published, fresh, from_published

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


class PlannedModel(NamedTuple):
    """A model, and the tensors of --init_from."""

    config: ModelConfig
    tensors: Optional[Tensors]
    init_from: Optional[str]

    def first_weights(self, seed: int) -> Tuple[Weights, List[str]]:
        """Weights before the first step, and a line for people on each thing of note in them."""
        if self.tensors is None:
            return fresh(self.config, seed), []
        where = f"--init_from={self.init_from}"
        return from_published(self.tensors, self.config, seed=seed, where=where)


def families_of(flags: ModelFlags) -> Tuple[str, ...]:
    """Those that a trainer takes."""
    return get_args(get_type_hints(type(flags))["family"])


def plan_model(flags: RunFlags, schema: Schema) -> PlannedModel:
    """The model that flags, set and --init_from make; a set with classes gives it their head."""
    asked, rate, init_from = flags.architecture, flags.optimization.dropout, flags.files.init_from
    classes, shards = tuple(schema.parameters.get("classes", ())), flags.data.shards
    if init_from is None:
        config = ModelConfig.new(**_new_dimensions(asked, schema), classes=classes)
        config = with_dropout(config, DROPOUT if rate is None else rate)
        config.check_fits(schema, where=f"--max_positions={config.max_positions}", shards=shards)
        return PlannedModel(config, None, None)
    where = f"--init_from={init_from}"
    directory = find_on_hub(init_from, flag="init_from").path
    content, tensors = read_directory(directory, model_types=families_of(asked))
    config = ModelConfig.from_json(content, classes=classes, where=where)
    norm = "pre" if config.norm_first else "post"
    _must_agree("norm", getattr(asked, "norm", None), norm, where)
    for name, value in _dimension_flags(asked).items():
        _must_agree(name, value, getattr(config, name), where)
    if rate is None and FAMILIES[config.family].dropout_keys:  # which are not taken over
        rate = DROPOUT
    config = config if rate is None else with_dropout(config, rate)
    check_published(tensors, config, where=where)
    # Rows beyond the set's vocabulary stay: a table is often filled up to a round number.
    config = replace(config, vocab_size=max(config.vocab_size, schema.vocab_size))
    config.check_fits(schema, where=where, shards=shards)
    return PlannedModel(config, tensors, init_from)


def _new_dimensions(flags: ModelFlags, schema: Schema) -> Dict[str, Any]:
    values = {"vocab_size": schema.vocab_size, "max_positions": schema.max_length}
    values.update({**SIZES[flags.model], **_dimension_flags(flags)})
    if flags.family == "roberta":
        values["position_offset"] = schema.special_ids.get("pad", -1) + 1
    if flags.family == "electra" and values["hidden_size"] > 2 * ELECTRA_EMBEDDING:
        values.setdefault("embedding_size", values["hidden_size"])
    if getattr(flags, "norm", None) == "post":
        values.update(norm_first=False, final_norm=False)
    return {"family": flags.family, **values}


def _dimension_flags(flags: ModelFlags) -> Dict[str, Any]:
    """The fields of a configuration that a flag of the same name gives."""
    names = {field.name for field in fields(ModelConfig)} - {"family"}
    values = {name: getattr(flags, name, None) for name in sorted(names)}
    if values["tied"]:  # the default: published weights may have an output layer of their own
        del values["tied"]
    return {name: value for name, value in values.items() if value is not None}


def _must_agree(name: str, flag: object, value: object, where: str) -> None:
    if flag not in (None, value):
        shown = f"--no_{name}" if flag is False else f"--{name}={flag}"
        raise UsageError(f"{shown}, but the weights of {where} have {value}: leave the flag out")
