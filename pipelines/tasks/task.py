"""The interface of a task: documents to examples, examples to segments, rows to features.

A task is a frozen dataclass in its own file (`pipelines/tasks/clm.py` has `Clm`). Its fields are
its flags; `schemas/format/features.py` lists its features. Before the shuffle a task makes examples
of documents; after it, segments of examples, which are packed into rows. Legend: E examples, S
segments, B rows of a chunk, L positions of a row.
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from textmill.pipelines.readers.documents import Documents, Role
from textmill.pipelines.rows.example_batch import ExampleBatch
from textmill.pipelines.rows.ragged import Ragged
from textmill.schemas.commands.values import take_values, text_of
from textmill.schemas.errors import FieldError, UsageError, flag
from textmill.schemas.format.features import TASKS, token_dtype
from textmill.schemas.format.metadata import Schema

if TYPE_CHECKING:
    from textmill.pipelines.encoding.tokenizer import LoadedTokenizer

Columns = dict[str, np.ndarray]
Finish = Callable[[Columns, np.ndarray], Columns]
Surroundings = tuple[tuple[int, ...], tuple[int, ...]]
MOST_PROBLEMS = 20  # the most problems of one kind that are described
NO_MASKS: Mapping[str, Any] = {
    "static_masking": False,
    "mask_rate": 0.0,
    "mask_unit": "token",
    "mask_copies": 1,
    "max_masked": 0,
}


@dataclass(frozen=True)
class Examples:
    """Examples of some documents.

    Attributes:
      document_E: int64, ascending: the document of each example. A document may have no example,
        or several (windows), which the scalar `part` numbers from 0.
      ragged: name to ragged column: `ids` (the schema's token_dtype) and any others; `evaluation`
        is a line of evaluation.jsonl, JSON as uint8.
      scalars: name to numbers [E]. Textmill counts these: `part`, `specials` (ids that the task
        added), `truncated` (tokens of the document that are in no example), `repeated` (tokens that
        an earlier example of the document has too).
      rejects: rejected document to (reason, detail).
    """

    document_E: np.ndarray
    ragged: Mapping[str, Ragged]
    scalars: Mapping[str, np.ndarray] = field(default_factory=dict)
    rejects: Mapping[int, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Segments:
    """Segments of many examples in one stream.

    Attributes:
      stream: token ids, special tokens included.
      offsets: int64 [S + 1], where segments begin and end in the stream.
      example_S: int64, ascending: the example of each segment.
      specials_added: special tokens of the stream that were added after the shuffle.
      beside: name to values as long as `stream`; they fill features [L] as it fills input_ids.
      scalars: name to values [S], for features with one number per row; needs packing none.
      pairs: name to values and offsets [S + 1]: a second stream, packed into the same rows.
      room_S: int64, positions that packing reserves for each segment; None for its length.
    """

    stream: np.ndarray
    offsets: np.ndarray
    example_S: np.ndarray
    specials_added: int = 0
    beside: Mapping[str, np.ndarray] = field(default_factory=dict)
    scalars: Mapping[str, np.ndarray] = field(default_factory=dict)
    pairs: Mapping[str, Ragged] = field(default_factory=dict)
    room_S: np.ndarray | None = None


@dataclass(frozen=True)
class RowProblem:
    """A defect of a row.

    Attributes:
      row: index of the row in the batch.
      message: describes the defect, with the value and its position in the row.
    """

    row: int
    message: str


def problems_where(bad: np.ndarray, message: Callable[[int, int], str]) -> Iterator[RowProblem]:
    """Yields a problem for each true element [row, column], up to MOST_PROBLEMS."""
    if not bad.any():
        return
    for row, column in np.argwhere(bad)[:MOST_PROBLEMS].tolist():
        yield RowProblem(row, message(row, column))


@dataclass(frozen=True)
class Task(ABC):
    """The base class of tasks.

    Attributes:
      title: the name of the task in a sentence.
      trainer: the module of trainers/ that trains on its rows; "" if there is none.
      wraps_segments: whether the tokenizer's own prefix and suffix ids surround each segment, and
        are the schema's prefix_ids and suffix_ids.
      chooses_tokens: whether only a part of the tokens has loss weights, and is counted.
      ids_differ: whether evaluation documents must have different ids.
      holds_documents: whether it makes tokenized documents instead of rows, see `Schema`.
    """

    title: ClassVar[str]
    trainer: ClassVar[str] = ""
    wraps_segments: ClassVar[bool] = False
    chooses_tokens: ClassVar[bool] = False
    ids_differ: ClassVar[bool] = False
    holds_documents: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuses values of other types."""
        take_values(self)

    @abstractmethod
    def roles(self) -> tuple[Role, ...]:
        """The fields of a document that it reads; a document is empty if the first is empty."""

    def schema_fields(self, tokenizer: "LoadedTokenizer", max_length: int) -> dict[str, Any]:
        """The fields of Schema that the task decides: `packing`, those of NO_MASKS, `parameters`.

        By default its parameters are its flags, except those that are fields of Schema.

        Raises:
          UsageError: the flags, the tokenizer and the length of rows do not fit together.
        """
        recorded = {"packing", *NO_MASKS, *(f"{role.name}_field" for role in self.roles())}
        return {
            "packing": getattr(self, "packing", "best_fit"),
            **NO_MASKS,
            "parameters": {
                field.name: text_of(field.type, getattr(self, field.name))
                for field in fields(self)
                if field.name not in recorded
            },
        }

    @abstractmethod
    def examples(
        self,
        documents: Documents,
        tokenizer: "LoadedTokenizer",
        schema: Schema,
        is_trained_D: np.ndarray,
    ) -> Examples:
        """Tokenizes documents; runs before the shuffle.

        Args:
          documents: D documents.
          tokenizer: the tokenizer of the dataset.
          schema: the schema of the dataset.
          is_trained_D: bool, whether each document goes into a training split.
        """

    def complete(self, values_of: Callable[[Role], tuple[str, ...]]) -> Self:
        """The task, completed with what it must know before the run, such as class names.

        Args:
          values_of: returns the distinct values of a role; reads all inputs if necessary.
        """
        return self

    def identity(self) -> tuple[str, ...]:
        """The roles that identify a document; documents equal in them are duplicates."""
        return tuple(role.name for role in self.roles() if role.values.is_content)

    def routed_by(self) -> tuple[str, ...]:
        """The roles that decide on the shard; documents equal in them are in one split."""
        return self.identity()

    def segments(self, examples: ExampleBatch, schema: Schema) -> Segments:
        """Makes segments; runs after the shuffle, inside one shard, on distinct examples.

        By default each example is a segment; tasks that cut documents into pieces override this.
        """
        ids, offsets = examples.ragged("ids", token_dtype(schema.vocab_size))
        return Segments(ids, offsets, np.arange(len(offsets) - 1))

    def packing_of(self, split: str, schema: Schema) -> str:
        """How the rows of a split are packed."""
        return schema.packing

    def finish(self, schema: Schema, tokenizer: "LoadedTokenizer") -> Finish:
        """Returns a function from the columns of a chunk and uint64 keys [B] of rows to features.

        A row's key is a hash of the seed and of its content; all randomness derives from it.
        """
        return lambda columns, keys_B: columns

    @classmethod
    def surroundings(cls, schema: Schema, tokenizer: "LoadedTokenizer") -> Surroundings:
        """The ids with which each segment begins and ends; none if documents may be cut."""
        if not cls.wraps_segments:
            return (), ()
        return tuple(tokenizer.prefix_ids), tuple(tokenizer.suffix_ids)

    @classmethod
    def row_problems(cls, columns: Columns, schema: Schema, split: str) -> Iterable[RowProblem]:
        """Checks the rules of this task for `verify`.

        Args:
          columns: the columns of B rows, whose segments and ids are checked already.
          schema: their schema.
          split: their split.
        """
        return ()


@dataclass(frozen=True)
class TextTask(Task):
    """A task whose documents are a text without other fields."""

    text_field: str = "text"
    """The field with the text, for inputs with fields."""

    def roles(self) -> tuple[Role, ...]:
        """The text."""
        return (Role("text", "string", self.text_field),)

    def examples(
        self,
        documents: Documents,
        tokenizer: "LoadedTokenizer",
        schema: Schema,
        is_trained_D: np.ndarray,
    ) -> Examples:
        """Encodes each document as one example."""
        ids = tokenizer.encode(documents.text).astype(token_dtype(schema.vocab_size))
        return Examples(np.arange(len(documents.text)), {"ids": ids})


def need_special(
    tokenizer: "LoadedTokenizer", role: str, *, use: str = "", instead: str = ""
) -> None:
    """Requires that a tokenizer has a special token.

    Args:
      tokenizer: the tokenizer of the dataset.
      role: bos, eos or mask.
      use: its purpose, such as "ends an answer".
      instead: another remedy, such as "drop --bos".

    Raises:
      UsageError: the tokenizer has no such token.
    """
    if role not in tokenizer.special_ids:
        token = {"bos": "<s>", "eos": "</s>", "mask": "<mask>"}[role]
        raise UsageError(
            f"the tokenizer has no {role} token{use and f', which {use}'}: "
            f"{instead and f'{instead}, or '}train a tokenizer with {token} in "
            f"{flag('special_tokens')}"
        )


def need_room(max_length: int, added: int, texts: int = 1) -> None:
    """Requires rows that hold `added` special tokens and a token of each text.

    Raises:
      UsageError: `max_length` is too small.
    """
    if max_length < added + texts:
        raise UsageError(
            f"{flag('max_length', max_length)} leaves no room for text beside the {added} special "
            f"tokens of each segment: use at least {added + texts}"
        )


def task_class(name: str) -> type[Task]:
    """The class of a task: `span_corruption` -> pipelines.tasks.span_corruption.SpanCorruption.

    Raises:
      UsageError: there is no such task.
    """
    if name not in TASKS:
        raise FieldError("task", name, f"choose one of {', '.join(TASKS)}")
    module = importlib.import_module(f"textmill.pipelines.tasks.{name}")
    return getattr(module, name.title().replace("_", ""))


def task_classes() -> list[type[Task]]:
    """The classes of all tasks."""
    return [task_class(name) for name in TASKS]
