"""What each task promises beyond its features: parameters, special tokens, and how many of them.

The features stand in `schemas.features`, which is all that a task of one's own needs: one without
rules here may have any parameters. What has a name in `PARAMETERS` is checked wherever it stands.
Python 3.8 syntax.
"""

from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterator,
    Mapping,
    NamedTuple,
    Optional,
    Tuple,
)

from schemas.errors import DataError
from schemas.features import MAX_TOKENS
from schemas.kinds import TEXT, YES_NO, Kind, check, list_of_ids, number, one_of, share
from schemas.typed_json import quote

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
_IDS = ("middle_ids", "prefix_ids", "sentinel_ids", "suffix_ids")
_Parameters = Mapping[str, Any]
_SpecialIds = Mapping[str, int]


class _Rules(NamedTuple):
    """What a task promises.

    Attributes:
      parameters: that it must have.
      roles: of special tokens that it must have.
      problems: gives what else is wrong with the parameters and special ids, each a sentence.
      specials: gives how many special tokens a shard has in all masked copies; None where no rule
        is known.
    """

    parameters: Tuple[str, ...] = ()
    roles: Tuple[str, ...] = ()
    problems: Callable[[_Parameters, _SpecialIds], Iterator[str]] = lambda given, ids: iter(())
    specials: Optional[Callable[["Schema", "ShardStatistics"], int]] = None


def _pair_problems(given: _Parameters, special_ids: _SpecialIds) -> Iterator[str]:
    if "text_pair_field" in given and "middle_ids" not in given:
        yield "parameters has no middle_ids, which a pair of texts needs: build the set anew"


def _edge_problems(given: _Parameters, special_ids: _SpecialIds) -> Iterator[str]:
    """Documents begin with bos and end with eos, or with nothing."""
    for name, role in (("prefix_ids", "bos"), ("suffix_ids", "eos")):
        if list(given[name]) not in ([], [special_ids.get(role)]):
            yield f"parameters.{name} is {quote(given[name])}: [] or the id of {role}"


def _bos_problems(given: _Parameters, special_ids: _SpecialIds) -> Iterator[str]:
    if given["bos"] and "bos" not in special_ids:
        yield f"special_ids is {quote(special_ids)}: rows begin with bos"


def _ids_around(schema: "Schema") -> int:
    return sum(len(schema.parameters.get(name, ())) for name in _IDS if name != "sentinel_ids")


def _specials_of_documents(schema: "Schema", shard: "ShardStatistics") -> int:
    return shard.documents * _ids_around(schema) * schema.mask_copies


def _specials_of_segments(schema: "Schema", shard: "ShardStatistics") -> int:
    if schema.packing == "concat":  # which cuts what documents have become
        return _specials_of_documents(schema, shard)
    return shard.segments * _ids_around(schema)


def _specials_of_questions(schema: "Schema", shard: "ShardStatistics") -> int:
    return shard.segments * (1 + schema.parameters["bos"])  # and eos


_RULES: Dict[str, _Rules] = {
    "chat": _Rules(
        parameters=("chat_template", "end_of_turn", "prefix_ids", "suffix_ids", "train_on"),
        problems=_edge_problems,
        specials=_specials_of_documents,
    ),
    "classification": _Rules(
        parameters=("classes", "truncation", "prefix_ids", "suffix_ids"),
        problems=_pair_problems,
        specials=_specials_of_documents,
    ),
    "clm": _Rules(
        parameters=("prefix_ids", "suffix_ids"),
        problems=_edge_problems,
        specials=_specials_of_documents,
    ),
    "mlm": _Rules(specials=_specials_of_segments),
    "qa": _Rules(
        parameters=("bos", "max_answer_length", "max_question_length", "qa_form", "qa_template"),
        roles=("eos",),
        problems=_bos_problems,
        specials=_specials_of_questions,
    ),
    "tokens": _Rules(
        parameters=("prefix_ids", "suffix_ids"),
        problems=_edge_problems,
        specials=_specials_of_documents,
    ),
    "span_corruption": _Rules(parameters=("max_target_length", "sentinel_ids"), roles=("eos",)),
}


def check_parameters(
    task: str, parameters: _Parameters, *, vocab_size: int, special_ids: _SpecialIds
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
    rules = _RULES.get(task, _Rules())
    for name in rules.parameters:
        if name not in parameters:
            raise DataError(f"parameters has no {name}, which {task} needs: build the set anew")
    kinds = {**PARAMETERS, **dict.fromkeys(_IDS, list_of_ids(vocab_size))}
    for name, value in parameters.items():
        kind = kinds.get(name, _FIELD if name.endswith("_field") else None)
        if kind is not None:
            check(kind.is_good(value), f"parameters.{name}", value, kind.remedy)
    sentinels = parameters.get("sentinel_ids", ())
    distinct = len(set(sentinels)) == len(sentinels)
    check(distinct, "parameters.sentinel_ids", sentinels, "an id is there twice")
    for role in rules.roles:
        check(role in special_ids, "special_ids", special_ids, f"{task} needs {role}")
    for problem in rules.problems(parameters, special_ids):
        raise DataError(problem)


def specials_due(schema: "Schema", shard: "ShardStatistics") -> Optional[int]:
    """How many special tokens a shard has, in all masked copies; None where no rule is known."""
    specials = _RULES.get(schema.task, _Rules()).specials
    wrapped = "prefix_ids" in schema.parameters or "bos" in schema.parameters
    return specials(schema, shard) if specials and wrapped else None
