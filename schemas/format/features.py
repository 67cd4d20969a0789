"""The features of each task's rows, and the parameters that readers of the rows need.

Legend: B rows, L tokens of a row, K slots for masked tokens. Python 3.8 syntax.
"""

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Dict, Mapping, Tuple

import numpy as np

from textmill.schemas.errors import DataError
from textmill.schemas.typed_json import Constraint, check, number, one_of

MAX_TOKENS = 1 << 16  # the longest row: a position must fit in uint16
# numbers: any value of the dtype. ids: of tokens, below MAX_VOCABULARY. flags: 0 or 1. segments:
# 1..n in order, then 0 for padding.
KINDS = ("numbers", "ids", "flags", "segments")
MAX_VOCABULARY = 1 << 24  # ids; the largest published vocabulary has a million


def is_training(split: str) -> bool:
    """Whether a split is for training (`train`, `train_2`); all others are for evaluation."""
    return split.startswith("train")


@dataclass(frozen=True)
class Feature:
    """One column of a row.

    Attributes:
      name: its name in files and for trainers.
      dtype: numpy's name of its dtype; values are stored little-endian.
      shape: shape in one row; () is a scalar, (-1,) has as many values as the document has tokens.
      meaning: a description in one sentence.
      kind: one of KINDS; the encoding `bits` stores each in as few bits as it needs.
    """

    name: str
    dtype: str
    shape: Tuple[int, ...]
    meaning: str
    kind: str = "numbers"

    @property
    def size(self) -> int:
        """The number of values in one row."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """The bytes of the values in one row."""
        return self.size * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class RowSizes:
    """The sizes that decide the features of a task: the arguments of `task_features`."""

    max_length: int
    vocab_size: int
    max_masked: int
    parameters: Mapping[str, Any]


def smallest_unsigned(largest: int) -> str:
    """The smallest unsigned dtype that holds `largest`: 255 -> uint8, 256 -> uint16."""
    for name in ("uint8", "uint16", "uint32"):
        if largest <= np.iinfo(name).max:
            return name
    raise ValueError(f"no feature holds a value of {largest}")


def token_dtype(vocab_size: int) -> str:
    """uint16 if every id fits, else uint32; never uint8, so that there are only two widths."""
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


def segment_name(name: str) -> str:
    """The feature with the segments of another: target_ids -> target_segment_ids."""
    return name[: -len("ids")] + "segment_ids"


def _tokens(name: str, length: int, vocab_size: int, meaning: str) -> Tuple[Feature, ...]:
    """A feature of token ids, and the feature with its segments."""
    return (
        Feature(name, token_dtype(vocab_size), (length,), meaning, "ids"),
        Feature(
            "segment_ids" if name == "input_ids" else segment_name(name),
            smallest_unsigned(length),
            (length,),
            "0 is padding, 1..n the segments in row order; positions restart at 0 in each",
            "segments",
        ),
    )


def _mlm(sizes: RowSizes) -> Tuple[Feature, ...]:
    features = _tokens(
        "input_ids",
        sizes.max_length,
        sizes.vocab_size,
        "token ids; masked already where masking is static",
    )
    if not sizes.max_masked:
        return features
    slots = (sizes.max_masked,)
    ids = token_dtype(sizes.vocab_size)
    return features + (
        Feature("masked_positions", "uint16", slots, "where tokens were masked, ascending"),
        Feature("masked_ids", ids, slots, "what stood there before", "ids"),
        Feature(
            "masked_weights", "uint8", slots, "1 for a slot in use, 0 for an empty one", "flags"
        ),
    )


def _loss_weights(sizes: RowSizes) -> Tuple[Feature, ...]:
    """The weight of predicting `input_ids[i]` is `loss_weights[i]`; the logits at i - 1 predict it.

    Two documents, 5 6 and 8, each with its eos 2, then padding:

        input_ids     [5, 6, 2, 8, 2, 0]
        loss_weights  [0, 1, 1, 0, 1, 0]  no logit in the segment predicts its first token

    The logits at 0 predict 6, those at 1 predict 2, those at 3 predict 2. So shift by one:

        loss_BxL = cross_entropy(logits[:, :-1], input_ids[:, 1:])
        loss = (loss_BxL * loss_weights[:, 1:]).sum() / loss_weights[:, 1:].sum()
    """
    meaning = "1 where predicting THIS token counts"
    return (Feature("loss_weights", "uint8", (sizes.max_length,), meaning, "flags"),)


def _clm(sizes: RowSizes) -> Tuple[Feature, ...]:
    tokens = _tokens("input_ids", sizes.max_length, sizes.vocab_size, "token ids")
    return tokens + _loss_weights(sizes)


def _example_id() -> Feature:
    meaning = "of the line in evaluation.jsonl, its 16 digits as two halves; 0 in training rows"
    return Feature("example_id", "uint32", (2,), meaning)


def _qa(sizes: RowSizes) -> Tuple[Feature, ...]:
    meaning = "tokens before the answer, in evaluation rows; 0 in training rows, which are packed"
    features = _tokens("input_ids", sizes.max_length, sizes.vocab_size, "token ids")
    features += _loss_weights(sizes)
    features += (_example_id(), Feature("prompt_length", "uint16", (), meaning))
    if sizes.parameters.get("qa_form") == "prefix":
        meaning = "1 where attention is bidirectional: on the prompt"
        features += (Feature("prefix_mask", "uint8", (sizes.max_length,), meaning, "flags"),)
    return features


def _classification(sizes: RowSizes) -> Tuple[Feature, ...]:
    classes = sizes.parameters["classes"]
    features = _tokens("input_ids", sizes.max_length, sizes.vocab_size, "token ids")
    features += (
        Feature("label", smallest_unsigned(len(classes) - 1), (), "index of the class"),
        _example_id(),
    )
    if "text_pair_field" in sizes.parameters:
        meaning = "0 for the first text and 1 for the second, as the tokenizer has them"
        features += (Feature("token_type_ids", "uint8", (sizes.max_length,), meaning),)
    return features


def _span_corruption(sizes: RowSizes) -> Tuple[Feature, ...]:
    meaning = "ids of the text, with a sentinel in place of each span of noise"
    inputs = _tokens("input_ids", sizes.max_length, sizes.vocab_size, meaning)
    meaning = "each sentinel with the span that it stands for; segments as those of input_ids"
    length = sizes.parameters["max_target_length"]
    return inputs + _tokens("target_ids", length, sizes.vocab_size, meaning)


def _whole_documents(sizes: RowSizes) -> Tuple[Feature, ...]:
    meaning = "token ids of a document, with what begins and ends it"
    return (Feature("tokens", token_dtype(sizes.vocab_size), (-1,), meaning, "ids"),)


_TASKS = {
    "chat": _clm,
    "classification": _classification,
    "clm": _clm,
    "mlm": _mlm,
    "qa": _qa,
    "span_corruption": _span_corruption,
    "tokens": _whole_documents,
}
TASKS = tuple(sorted(_TASKS))
ROWS_OF = {"chat": "clm"}  # tasks with the rows of a different task


def task_features(
    task: str,
    *,
    max_length: int,
    vocab_size: int,
    max_masked: int = 0,
    parameters: Mapping[str, Any] = MappingProxyType({}),
) -> Tuple[Feature, ...]:
    """The features of a task's rows, sorted by name (the order on disk).

    Args:
      task: one of TASKS.
      max_length: L, tokens of a row.
      vocab_size: all ids are below it.
      max_masked: K, slots for statically masked tokens; 0 for no masks.
      parameters: settings of the task, as in Schema.
    """
    if task not in _TASKS:
        raise ValueError("unknown task {!r}: one of {}".format(task, ", ".join(TASKS)))
    features = _TASKS[task](RowSizes(max_length, vocab_size, max_masked, parameters))
    return tuple(sorted(features, key=lambda feature: feature.name))


_TEXT = Constraint(lambda v: type(v) is str, "a text")
_FIELD = Constraint(lambda v: v is None or type(v) is str, "the name of a field")
_CLASSES = Constraint(
    lambda v: (
        isinstance(v, (list, tuple))
        and len(v) > 1
        and all(type(name) is str and name for name in v)
        and len(set(v)) == len(v)
    ),
    "a list of two or more names, each once",
)
# The parameters of schema.json that readers of rows use; others are for information. A parameter
# that ends in _field is the name of a field, one that ends in _ids a list of token ids.
PARAMETERS: Mapping[str, Constraint] = {
    "bos": Constraint(lambda v: type(v) is bool, "true or false"),
    "chat_template": _TEXT,
    "classes": _CLASSES,
    "end_of_turn": _TEXT,
    "max_answer_length": number(1, MAX_TOKENS),
    "max_question_length": number(1, MAX_TOKENS),
    "max_target_length": number(1, MAX_TOKENS - 1),
    "normalize": one_of("none", "nfc", "nfkc"),
    "qa_form": one_of("causal", "prefix"),
    "qa_template": _TEXT,
    "train_on": one_of("assistant", "last", "all"),
    "truncation": one_of("head", "tail", "head_tail"),
}
# The parameters that a task must have; tasks that are not listed need none.
_NEEDS: Mapping[str, Tuple[str, ...]] = {
    "chat": ("chat_template", "end_of_turn", "prefix_ids", "suffix_ids", "train_on"),
    "classification": ("classes", "truncation", "prefix_ids", "suffix_ids"),
    "clm": ("prefix_ids", "suffix_ids"),
    "qa": ("bos", "max_answer_length", "max_question_length", "qa_form", "qa_template"),
    "tokens": ("prefix_ids", "suffix_ids"),
    "span_corruption": ("max_target_length", "sentinel_ids"),
}
_BY_ROLE = ("chat", "clm", "tokens")  # prefix is bos or nothing, suffix eos or nothing
_END_IN_EOS = ("qa", "span_corruption")


def check_parameters(
    task: str, parameters: Mapping[str, Any], *, vocab_size: int, special_ids: Mapping[str, int]
) -> None:
    """Checks the parameters that readers of the rows use.

    Args:
      task: one of TASKS.
      parameters: parameters of the schema.
      vocab_size: all ids are below it.
      special_ids: special ids of the schema.

    Raises:
      DataError: a parameter is missing or invalid; the message describes valid values.
    """
    needs = _NEEDS.get(task, ())
    if task == "classification" and "text_pair_field" in parameters:
        needs += ("middle_ids",)
    for name in needs:
        if name not in parameters:
            raise DataError(f"parameters lacks {name}, which {task} needs: build the dataset again")
    ids = Constraint(
        lambda v: (
            isinstance(v, (list, tuple)) and all(type(i) is int and 0 <= i < vocab_size for i in v)
        ),
        "a list of ids below vocab_size",
    )
    by_ending = {"ids": ids, "field": _FIELD}
    for name, value in parameters.items():
        kind = PARAMETERS.get(name, by_ending.get(name.rpartition("_")[2]))
        if kind is not None:
            check(kind.is_good(value), f"parameters.{name}", value, kind.remedy)
    sentinels = parameters.get("sentinel_ids", ())
    distinct = len(set(sentinels)) == len(sentinels)
    check(distinct, "parameters.sentinel_ids", sentinels, "an id occurs twice")
    if task in _END_IN_EOS:
        check("eos" in special_ids, "special_ids", special_ids, f"{task} needs eos")
    if task == "qa" and parameters["bos"]:
        check("bos" in special_ids, "special_ids", special_ids, "rows begin with bos")
    for name, role in (("prefix_ids", "bos"), ("suffix_ids", "eos")):
        if task in _BY_ROLE:
            value = list(parameters[name])
            good = value in ([], [special_ids.get(role)])
            check(good, f"parameters.{name}", value, f"[] or the id of {role}")


def max_masked_slots(max_length: int, mask_rate: float) -> int:
    """K, the most tokens of a row that static masking picks: `round(rate * L)`, at least 1."""
    return max(1, int(round(mask_rate * max_length)))


def positions_from_segments(segment_ids_BxL: np.ndarray) -> np.ndarray:
    """Positions that restart at 0 in each segment: [[1, 1, 1, 2, 2, 0]] -> [[0, 1, 2, 0, 1, 0]].

    Args:
      segment_ids_BxL: integers, the feature `segment_ids`.

    Returns:
      int32 [B, L]; 0 at padding.
    """
    index_L = np.arange(segment_ids_BxL.shape[1], dtype=np.int32)
    starts_BxL = np.zeros(segment_ids_BxL.shape, dtype=np.int32)
    changes_BxL = segment_ids_BxL[:, 1:] != segment_ids_BxL[:, :-1]
    starts_BxL[:, 1:] = np.where(changes_BxL, index_L[1:], 0)
    np.maximum.accumulate(starts_BxL, axis=1, out=starts_BxL)
    return np.where(segment_ids_BxL == 0, 0, index_L - starts_BxL)


def unmask(row: Dict[str, np.ndarray]) -> np.ndarray:
    """The ids before static masking.

    Args:
      row: decoded columns of B rows.

    Returns:
      A copy of `input_ids` [B, L] with all masked tokens restored.
    """
    input_ids = row["input_ids"].copy()
    if "masked_positions" in row:
        used = np.nonzero(row["masked_weights"])
        input_ids[used[0], row["masked_positions"][used]] = row["masked_ids"][used]
    return input_ids
