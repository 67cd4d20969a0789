"""What a task is: documents -> examples, examples -> segments, rows -> features. Pure.

A task is a frozen dataclass in a file of its own (`pipelines/tasks/clm.py` holds `Clm`), whose
fields are its flags, and its features stand in `schemas/features.py`: nothing else knows it. An
example is what one document gives before the shuffle; a segment is what rows are packed of after
it. Legend: E examples, S segments, B rows of a chunk, L places a row.
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from pipelines.readers.documents import Documents, Role
from pipelines.rows.example_batch import ExampleBatch
from pipelines.rows.ragged import Ragged
from schemas.errors import UsageError
from schemas.features import TASKS, token_dtype
from schemas.metadata import Schema

if TYPE_CHECKING:
    from pipelines.encoding.tokenizer import LoadedTokenizer

Columns = dict[str, np.ndarray]
Finish = Callable[[Columns, np.ndarray], Columns]
Surroundings = tuple[tuple[int, ...], tuple[int, ...]]
MOST_PROBLEMS = 20  # of one kind that are described; a thousand equal ones help nobody
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
      document_E: int64, ascending: the document that each example is of. A document may have
        several examples (windows), which the scalar `part` numbers from 0, or none.
      ragged: `ids` (as the schema's token_dtype) and what else each example carries; `evaluation`
        is a line of evaluation.jsonl, JSON as uint8.
      scalars: numbers [E] by name. These count: `part`, `specials` (of the ids, made by no
        tokenizer), `truncated` (tokens of the document that are in no example), `repeated` (tokens
        of the ids that an earlier example of the document has too).
      rejects: document to (reason, detail), of refused ones.
      guarded: documents that the reference tokenizer encoded, because the fast engine might differ.
    """

    document_E: np.ndarray
    ragged: Mapping[str, Ragged]
    scalars: Mapping[str, np.ndarray] = field(default_factory=dict)
    rejects: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    guarded: int = 0


@dataclass(frozen=True)
class Segments:
    """Segments of many examples in one stream.

    Attributes:
      stream: token ids, specials included.
      offsets: int64 [S + 1] into it.
      example_S: int64, ascending: the example that each segment is of.
      specials_added: tokens of the stream that were added after the shuffle.
      beside: name to values as long as `stream`, which fill features [L] as it fills input_ids.
      scalars: name to values [S], for features that are one number a row; packing is then none.
      pairs: name to values and offsets [S + 1]: a second stream, in rows beside the first.
      room_S: int64, places that packing gives each segment; None for as many as it is long.
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
    """What is wrong with a row.

    Attributes:
      row: index in the batch.
      message: names the value and its place in the row.
    """

    row: int
    message: str


def problems_where(bad: np.ndarray, message: Callable[[int, int], str]) -> Iterator[RowProblem]:
    """A problem for every true place [row, column], up to MOST_PROBLEMS."""
    if not bad.any():
        return
    for row, column in np.argwhere(bad)[:MOST_PROBLEMS].tolist():
        yield RowProblem(row, message(row, column))


@dataclass(frozen=True)
class Task(ABC):
    """What all tasks have in common.

    Attributes:
      title: what it is called in a sentence.
      trainer: the module of trainers/ that trains on its rows; "" if there is none.
      wraps_segments: whether the schema's prefix_ids and suffix_ids are the tokenizer's own, and
        stand around each segment.
      chooses_tokens: whether a part of the tokens has loss weights, and is counted.
      ids_differ: no two documents that are evaluated may have the same id.
      holds_documents: whether it makes no rows, but documents whole: see `schemas.metadata.Schema`.
    """

    title: ClassVar[str]
    trainer: ClassVar[str] = ""
    wraps_segments: ClassVar[bool] = False
    chooses_tokens: ClassVar[bool] = False
    ids_differ: ClassVar[bool] = False
    holds_documents: ClassVar[bool] = False

    @abstractmethod
    def roles(self) -> tuple[Role, ...]:
        """The fields of a document that it reads; without the first, a document is empty."""

    def contract(self, tokenizer: "LoadedTokenizer", max_length: int) -> dict[str, Any]:
        """The fields of Schema that the task decides: `packing`, those of NO_MASKS, `parameters`.

        By default its parameters are its flags, but those that are fields of Schema.

        Raises:
          UsageError: its flags, the tokenizer and the length of rows do not go together.
        """
        recorded = {"packing", *NO_MASKS, *(f"{role.name}_field" for role in self.roles())}
        return {
            "packing": getattr(self, "packing", "best_fit"),
            **NO_MASKS,
            "parameters": {n: value for n, value in asdict(self).items() if n not in recorded},
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
          documents: D of them.
          tokenizer: of the set.
          schema: of the set.
          is_trained_D: bool, whether each document goes into a training split.
        """

    def complete(self, values_of: Callable[[Role], tuple[str, ...]]) -> Self:
        """Itself, with what it has to know of the documents before the run, such as class names.

        Args:
          values_of: gives the distinct values of a role in all inputs; reads them if need be.
        """
        return self

    def identity(self) -> tuple[str, ...]:
        """The roles whose content makes a document; documents equal in them are duplicates."""
        return tuple(role.name for role in self.roles() if role.values.is_content)

    def routed_by(self) -> tuple[str, ...]:
        """The roles whose content decides on the shard, so that it is in one split only."""
        return self.identity()

    def segments(self, examples: ExampleBatch, schema: Schema) -> Segments:
        """Makes segments; runs after the shuffle, inside one shard, on distinct examples.

        Here each example is a segment; a task that cuts documents into pieces does it here.
        """
        ids, offsets = examples.ragged("ids", token_dtype(schema.vocab_size))
        return Segments(ids, offsets, np.arange(len(offsets) - 1))

    def packing_of(self, split: str, schema: Schema) -> str:
        """How the rows of a split are packed."""
        return schema.packing

    def finish(self, schema: Schema, tokenizer: "LoadedTokenizer") -> Finish:
        """Makes what turns the columns of a chunk, with uint64 keys [B] of its rows, into features.

        A row's key is a hash of the seed and of its content: whatever is random comes from it.
        """
        return lambda columns, keys_B: columns

    @classmethod
    def surroundings(cls, schema: Schema, tokenizer: "LoadedTokenizer") -> Surroundings:
        """The ids that each segment begins and ends with; none where documents may be cut."""
        if not cls.wraps_segments:
            return (), ()
        return tuple(tokenizer.prefix_ids), tuple(tokenizer.suffix_ids)

    @classmethod
    def row_problems(cls, columns: Columns, schema: Schema, split: str) -> Iterable[RowProblem]:
        """Checks what the task alone promises of its rows, for `verify`.

        Args:
          columns: of B rows, whose segments and ids are as they should be.
          schema: their contract.
          split: that they are of.
        """
        return ()


@dataclass(frozen=True)
class TextTask(Task):
    """A task whose documents are a text and nothing else."""

    text_field: str = "text"
    """The field with the text, where inputs have fields."""

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
        """Encodes each document; its ids are one example."""
        encoded, guarded = tokenizer.encode(documents.text)
        ids = encoded.astype(token_dtype(schema.vocab_size))
        return Examples(np.arange(len(documents.text)), {"ids": ids}, guarded=guarded)


def need_special(
    tokenizer: "LoadedTokenizer", role: str, *, use: str = "", instead: str = ""
) -> None:
    """Refuses a tokenizer without a special token.

    Args:
      tokenizer: of the set.
      role: bos, eos or mask.
      use: what it is for, such as "ends an answer".
      instead: what else helps, such as "drop --bos".
    """
    if role not in tokenizer.special_ids:
        token = {"bos": "<s>", "eos": "</s>", "mask": "<mask>"}[role]
        raise UsageError(
            f"the tokenizer has no {role} token{use and f', which {use}'}: "
            f"{instead and f'{instead}, or '}train one with {token} among --special_tokens"
        )


def need_room(max_length: int, added: int, texts: int = 1) -> None:
    """Refuses rows without a place for a token of each text beside `added` special tokens."""
    if max_length < added + texts:
        raise UsageError(
            f"--max_length={max_length} has no place for text: the tokenizer adds {added} special "
            f"tokens to each segment; give at least {added + texts}"
        )


def task_class(name: str) -> type[Task]:
    """The class of a task: `span_corruption` -> pipelines.tasks.span_corruption.SpanCorruption.

    Raises:
      UsageError: there is no such task.
    """
    if name not in TASKS:
        raise UsageError(f"--task={name}: one of {', '.join(TASKS)}")
    module = importlib.import_module(f"pipelines.tasks.{name}")
    return getattr(module, name.title().replace("_", ""))
