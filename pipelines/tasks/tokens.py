"""Documents whole, as token ids, for trainers that pack them themselves. Pure."""

from dataclasses import dataclass
from typing import ClassVar

from pipelines.rows.example_batch import ExampleBatch
from pipelines.rows.ragged import cut
from pipelines.tasks.clm import EdgedText
from pipelines.tasks.task import Segments
from schemas.metadata import Schema


@dataclass(frozen=True)
class Tokens(EdgedText):
    """Documents whole, in the files of other projects; there are no rows to train on here."""

    title: ClassVar[str] = "documents whole, as token ids"
    holds_documents: ClassVar[bool] = True
    packing: ClassVar[str] = "none"

    bos: bool = False
    """Begin each document with the tokenizer's bos token."""
    eos: bool = True
    """End each document with its eos token."""

    def segments(self, examples: ExampleBatch, schema: Schema) -> Segments:
        """Each document is a segment of its own; one that has no token at all is none."""
        (stream, offsets), added = self.wrapped(examples, schema)
        offsets, example_S = cut(offsets, max(len(stream), 1))
        return Segments(stream, offsets, example_S, added)
