"""What each task promises beyond its features: parameters, special tokens, and how many of them.

The features stand in `schemas.features`, which is all that a task of one's own needs: one without
rules here may have any parameters. What has a name in `PARAMETERS` is checked wherever it stands.
Python 3.8 syntax.
"""

from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Tuple

from schemas.errors import DataError
from schemas.features import MAX_TOKENS
from schemas.kinds import TEXT, YES_NO, Kind, check, list_of_ids, number, one_of, share

if TYPE_CHECKING:
    from schemas.sidecar import Schema
    from schemas.statistics import ShardStatistics

_MOST = 1 << 53
_FIELD = Kind(lambda v: v is None or type(v) is str, "the name of a field")
_CLASSES = Kind(
    lambda v: (
        isinstance(v, (list, tuple))
        and len(v) > 1
        and all(type(name) is str and name for name in v)
        and len(set(v)) == len(v)
    ),
    "a list of two or more names, each once",
)
PARAMETERS: Dict[str, Kind] = {
    "bos": YES_NO,
    "chat_template": TEXT,
    "classes": _CLASSES,
    "document": one_of("line", "paragraph", "file"),
    "end_of_turn": TEXT,
    "filter": TEXT,
    "filter_sha256": TEXT,
    "input_format": TEXT,
    "max_answer_length": number(1, MAX_TOKENS),
    "max_chars": number(0, _MOST),
    "max_document_bytes": number(1, _MOST),
    "max_question_length": number(1, MAX_TOKENS),
    "max_repetition": share(1),
    "max_target_length": number(1, MAX_TOKENS - 1),
    "mean_span_length": share(MAX_TOKENS),
    "min_chars": number(0, _MOST),
    "min_words": number(0, _MOST),
    "noise_density": share(1),
    "normalize": one_of("none", "nfc", "nfkc"),
    "qa_form": one_of("causal", "prefix"),
    "qa_template": TEXT,
    "train_on": one_of("assistant", "last", "all"),
    "truncation": one_of("head", "tail", "head_tail"),
    "unicode": TEXT,
    "window_stride": number(1, _MOST),
}
_AROUND = ("middle_ids", "prefix_ids", "suffix_ids")  # a text, or between two
# Parameters that a task must have.
_NEEDS: Dict[str, Tuple[str, ...]] = {
    "chat": ("chat_template", "end_of_turn", "prefix_ids", "suffix_ids", "train_on"),
    "classification": ("classes", "truncation", "prefix_ids", "suffix_ids"),
    "clm": ("prefix_ids", "suffix_ids"),
    "qa": ("bos", "max_answer_length", "max_question_length", "qa_form", "qa_template"),
    "tokens": ("prefix_ids", "suffix_ids"),
    "span_corruption": ("max_target_length", "sentinel_ids"),
}
_BY_ROLE = ("chat", "clm", "tokens")  # documents begin with bos and end with eos, or with nothing
_WRAPPED = (*_BY_ROLE, "classification", "mlm")  # as many special tokens as a text has around it
_END_IN_EOS = ("qa", "span_corruption")


def check_parameters(
    task: str, parameters: Mapping[str, Any], *, vocab_size: int, special_ids: Mapping[str, int]
) -> None:
    """Refuses what the task's readers could not use.

    Args:
      task: such as "clm".
      parameters: of the schema, from JSON or as they were made.
      vocab_size: ids are below it.
      special_ids: of the schema.

    Raises:
      DataError: a parameter is missing or of another kind; names it and what belongs there.
    """
    for name in _NEEDS.get(task, ()):
        if name not in parameters:
            raise DataError(f"parameters has no {name}, which {task} needs: build the set anew")
    is_pair = task == "classification" and "text_pair_field" in parameters
    if is_pair and "middle_ids" not in parameters:
        raise DataError(
            "parameters has no middle_ids, which a pair of texts needs: build the set anew"
        )
    kinds = {**PARAMETERS, **dict.fromkeys((*_AROUND, "sentinel_ids"), list_of_ids(vocab_size))}
    for name, value in parameters.items():
        kind = kinds.get(name, _FIELD if name.endswith("_field") else None)
        if kind is not None:
            check(kind.is_good(value), f"parameters.{name}", value, kind.remedy)
    sentinels = parameters.get("sentinel_ids", ())
    distinct = len(set(sentinels)) == len(sentinels)
    check(distinct, "parameters.sentinel_ids", sentinels, "an id is there twice")
    if task in _END_IN_EOS:
        check("eos" in special_ids, "special_ids", special_ids, f"{task} needs eos")
    if task == "qa" and parameters["bos"]:
        check("bos" in special_ids, "special_ids", special_ids, "rows begin with bos")
    for name, role in (("prefix_ids", "bos"), ("suffix_ids", "eos")):
        if task in _BY_ROLE:
            ids = parameters[name]
            good = list(ids) in ([], [special_ids.get(role)])
            check(good, f"parameters.{name}", ids, f"[] or the id of {role}")


def specials_due(schema: "Schema", shard: "ShardStatistics") -> Optional[int]:
    """How many special tokens a shard has, in all masked copies; None where no rule is known."""
    given = schema.parameters
    if schema.task == "qa":
        return shard.segments * (1 + given["bos"])  # and eos
    if schema.task not in _WRAPPED or "prefix_ids" not in given:
        return None
    around = sum(len(given.get(name, ())) for name in _AROUND)
    if schema.task == "mlm" and schema.packing != "concat":  # which cuts what documents have become
        return shard.segments * around
    return shard.documents * around * schema.mask_copies
