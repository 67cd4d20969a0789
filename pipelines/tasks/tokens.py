"""Tokenized documents, for trainers that pack rows themselves."""

from dataclasses import dataclass
from typing import ClassVar

from textmill.pipelines.rows.example_batch import ExampleBatch
from textmill.pipelines.rows.ragged import cut
from textmill.pipelines.tasks.clm import EdgedText
from textmill.pipelines.tasks.task import Segments
from textmill.schemas.format.metadata import Schema


@dataclass(frozen=True)
class Tokens(EdgedText):
    """Tokenized documents in the file formats of other projects; Textmill's trainers need rows."""

    title: ClassVar[str] = "tokenized documents"
    holds_documents: ClassVar[bool] = True
    packing: ClassVar[str] = "none"

    bos: bool = False
    """Begin each document with the tokenizer's bos token."""
    eos: bool = True
    """End each document with the tokenizer's eos token."""

    def segments(self, examples: ExampleBatch, schema: Schema) -> Segments:
        """Makes a segment of each document that has tokens."""
        (stream, offsets), added = self.wrapped(examples, schema)
        offsets, example_S = cut(offsets, max(len(stream), 1))
        return Segments(stream, offsets, example_S, added)
