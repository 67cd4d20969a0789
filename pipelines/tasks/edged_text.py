"""What the tasks share whose documents are a text, with bos before it or eos after it. Pure."""

from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.filters.words import count_words
from pipelines.readers.documents import Documents, Role
from pipelines.rows.example_batch import ExampleBatch
from pipelines.rows.ragged import Ragged, wrap
from pipelines.tasks.task import NO_MASKS, Examples, Task
from schemas.errors import UsageError
from schemas.features import token_dtype
from schemas.sidecar import Schema

if TYPE_CHECKING:
    from pipelines.encoding.tokenizer import LoadedTokenizer


class EdgedText(Task):
    """A task of texts; the flags below are fields of each such task, in its own order."""

    text_field: str
    packing: str
    bos: bool
    eos: bool

    def roles(self) -> tuple[Role, ...]:
        """A document is a text and nothing else."""
        return (Role("text", "string", self.text_field),)

    def contract(self, tokenizer: "LoadedTokenizer", max_length: int) -> dict[str, Any]:
        """The specials that are asked for must be there."""
        for role in ("bos", "eos"):
            if getattr(self, role) and role not in tokenizer.special_ids:
                raise UsageError(
                    f"the tokenizer has no {role} token: give --no_{role}, or train one with it "
                    "among --special_tokens"
                )
        return {"packing": self.packing, **NO_MASKS}

    def parameters(self, tokenizer: "LoadedTokenizer", max_length: int) -> dict[str, Any]:
        """What begins and ends each document."""
        ids = tokenizer.special_ids
        return {
            "prefix_ids": [ids["bos"]] if self.bos else [],
            "suffix_ids": [ids["eos"]] if self.eos else [],
        }

    def examples(
        self,
        documents: Documents,
        tokenizer: "LoadedTokenizer",
        schema: Schema,
        is_trained_D: np.ndarray,
    ) -> Examples:
        """Each document's ids, and its words: perplexity per word is of these."""
        encoded, guarded = tokenizer.encode(documents.text)
        ids = encoded.astype(token_dtype(schema.vocab_size))
        return Examples(
            np.arange(len(documents.text)),
            {"ids": ids},
            {"words": count_words(documents.text)},
            guarded=guarded,
        )

    def wrapped(self, examples: ExampleBatch, schema: Schema) -> tuple[Ragged, int]:
        """Each document with what begins and ends it, and how many tokens that adds."""
        ids, offsets = examples.ragged("ids", token_dtype(schema.vocab_size))
        prefix, suffix = schema.parameters["prefix_ids"], schema.parameters["suffix_ids"]
        stream = wrap(ids, offsets, prefix, suffix)
        return stream, len(stream.values) - len(ids)
