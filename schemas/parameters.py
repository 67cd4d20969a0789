"""The settings of a task in schema.json (`parameters`): which it must have, and of what kind.

A task of one's own may have others, which are any values; what has a name here is checked wherever
it stands. Standard library only, Python 3.8 syntax.
"""

from typing import Any, Callable, Dict, Mapping, NamedTuple

from schemas.errors import DataError
from schemas.features import MAX_TOKENS
from schemas.typed_json import shown

_MOST = 1 << 53


class _Kind(NamedTuple):
    is_good: Callable[[Any], bool]
    remedy: str


def _number(low: int, high: int) -> _Kind:
    return _Kind(lambda v: type(v) is int and low <= v <= high, f"a number from {low} to {high}")


def _share(most: float) -> _Kind:
    return _Kind(lambda v: type(v) in (int, float) and 0 <= v <= most, f"from 0 to {most:g}")


def _one_of(*names: str) -> _Kind:
    return _Kind(lambda v: v in names and type(v) is str, "one of " + ", ".join(names))


_TEXT = _Kind(lambda v: type(v) is str, "a text")
_FIELD = _Kind(lambda v: v is None or type(v) is str, "the name of a field")
_YES_NO = _Kind(lambda v: type(v) is bool, "true or false")
_CLASSES = _Kind(
    lambda v: isinstance(v, (list, tuple))
    and len(v) > 1
    and all(type(name) is str and name for name in v)
    and len(set(v)) == len(v),
    "a list of two or more names, each once",
)
_KINDS: Dict[str, _Kind] = {
    "bos": _YES_NO,
    "classes": _CLASSES,
    "document": _one_of("line", "paragraph", "file"),
    "filter": _TEXT,
    "filter_sha256": _TEXT,
    "input_format": _TEXT,
    "max_answer_length": _number(1, MAX_TOKENS),
    "max_chars": _number(0, _MOST),
    "max_document_bytes": _number(1, _MOST),
    "max_question_length": _number(1, MAX_TOKENS),
    "max_repetition": _share(1),
    "max_target_length": _number(1, MAX_TOKENS - 1),
    "mean_span_length": _share(MAX_TOKENS),
    "min_chars": _number(0, _MOST),
    "min_words": _number(0, _MOST),
    "noise_density": _share(1),
    "normalize": _one_of("none", "nfc", "nfkc"),
    "qa_form": _one_of("causal", "prefix"),
    "qa_template": _TEXT,
    "truncation": _one_of("head", "tail", "head_tail"),
    "unicode": _TEXT,
    "window_stride": _number(1, _MOST),
}
_IDS = ("middle_ids", "prefix_ids", "sentinel_ids", "suffix_ids")
_REQUIRED = {
    "classification": ("classes", "truncation", "prefix_ids", "suffix_ids"),
    "clm": ("prefix_ids", "suffix_ids"),
    "qa": ("bos", "max_answer_length", "max_question_length", "qa_form", "qa_template"),
    "span_corruption": ("max_target_length", "sentinel_ids"),
}


def check_parameters(
    task: str,
    parameters: Mapping[str, Any],
    *,
    vocab_size: int,
    special_ids: Mapping[str, int],
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
    missing = [name for name in _REQUIRED.get(task, ()) if name not in parameters]
    if "text_pair_field" in parameters and task == "classification":
        missing += [name for name in ("middle_ids",) if name not in parameters]
    if missing:
        raise DataError(f"parameters has no {missing[0]}, which {task} needs: build the set anew")
    ids = _Kind(
        lambda v: isinstance(v, (list, tuple))
        and all(type(i) is int and 0 <= i < vocab_size for i in v),
        "a list of ids below vocab_size",
    )
    kinds = {**_KINDS, **dict.fromkeys(_IDS, ids)}
    if task == "clm":  # documents begin and end with what has these roles, or with nothing
        kinds["prefix_ids"] = _role_or_none(special_ids, "bos")
        kinds["suffix_ids"] = _role_or_none(special_ids, "eos")
    for name, value in parameters.items():
        kind = kinds.get(name, _FIELD if name.endswith("_field") else None)
        if kind is not None and not kind.is_good(value):
            raise DataError(f"parameters.{name} is {shown(value)}: {kind.remedy}")
    sentinels = parameters.get("sentinel_ids", ())
    if len(set(sentinels)) < len(sentinels):
        raise DataError(f"parameters.sentinel_ids is {shown(sentinels)}: an id is there twice")
    if task in ("qa", "span_corruption") and "eos" not in special_ids:
        raise DataError(f"special_ids is {shown(special_ids)}: {task} needs eos")
    if parameters.get("bos") is True and task == "qa" and "bos" not in special_ids:
        raise DataError(f"special_ids is {shown(special_ids)}: rows begin with bos")


def _role_or_none(special_ids: Mapping[str, int], role: str) -> _Kind:
    good = ([], [special_ids.get(role)])
    return _Kind(
        lambda v: isinstance(v, (list, tuple)) and all(type(i) is int for i in v) and list(v) in good,
        f"[] or the id of {role}",
    )
