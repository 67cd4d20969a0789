"""The interface of backends, and the reference: `tokenizers` 0.23, whose ids all others must give.

Other files of pipelines/ import `tokenizers` from here. They use of it

- to read and write tokenizer.json: Tokenizer.from_buffer, from_str and to_str;
- to encode documents without a fast backend, and to compare one with it: encode, encode_batch,
  encode_batch_fast, no_truncation, no_padding; of an Encoding ids, offsets, sequence_ids, type_ids;
- to decode rows: decode, decode_batch;
- to find tokens: get_vocab, get_added_tokens_decoder;
- to encode single words by a tokenizer's own parts: Tokenizer(model), pre_tokenizers.ByteLevel and
  Digits, normalizers.Replace;
- for its Unicode tables and regular expressions: Regex, pre_tokenizers.Split and PreTokenizer,
  normalizers.Normalizer, Sequence and those of `normal_text.NORMALIZERS`; normalize_str,
  pre_tokenize_str;
- to write what `train_tokenizer` trained: AddedToken, add_special_tokens, models.BPE and WordPiece,
  normalizers.BertNormalizer, pre_tokenizers.BertPreTokenizer, Metaspace and Sequence,
  decoders.ByteLevel and WordPiece, processors.ByteLevel, RobertaProcessing and TemplateProcessing.

1.0.0rc3 has encode, encode_batch and decode of these, and ids and type_ids of an Encoding.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Protocol

import pyarrow as pa
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from textmill.pipelines.rows.ragged import Ragged
from textmill.pipelines.rows.text_bytes import slices
from textmill.schemas.errors import DataError, TextmillError

__all__ = ["AddedToken", "Regex", "Tokenizer", "Backend", "ReferenceBackend"]
__all__ += ["decoders", "models", "normalizers", "pre_tokenizers", "processors"]
__all__ += ["LateTokenizer", "encode_each", "failures_as_data_errors"]
GIGATOKEN, WORD_TABLE, TOKENIZERS = "gigatoken", "word table", "tokenizers"  # backends
_BATCH_BYTES = 2 << 20  # an Encoding takes about 15 bytes per byte of text


@contextmanager
def failures_as_data_errors(what: str, remedy: str) -> Iterator[None]:
    """Turns any failure of a library into a DataError, `what: its first line; remedy`.

    That includes Rust panics, which are not Exceptions: broken vocabularies and catastrophic
    backtracking cause them.
    """
    try:
        yield
    except TextmillError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        first = str(error).split("\n")[0][:300]
        reason = "".join(c if c.isprintable() else repr(c)[1:-1] for c in first)
        raise DataError(f"{what}: {reason}; {remedy}") from error


class LateTokenizer:
    """A `Tokenizer` that is parsed when it is first used."""

    def __init__(self, parse: Callable[[], Tokenizer]):
        """Takes what parses it."""
        self._parse = cache(parse)

    def __getattr__(self, name: str) -> Any:
        """An attribute of the tokenizer."""
        return getattr(self._parse(), name)


class Backend(Protocol):
    """Turns text into ids as `tokenizers.Tokenizer.encode(text, add_special_tokens=False)` does."""

    name: str

    def encode(self, text: pa.LargeStringArray) -> Ragged:
        """The ids of each document."""
        ...


class ReferenceBackend:
    """`tokenizers` itself, on all cores, in batches that bound its memory.

    A document is never cut: one of 3.5 MB without a separator takes 1 to 3 s with BPE or WordPiece.
    """

    name = TOKENIZERS

    def __init__(self, tokenizer: Tokenizer):
        """Encodes with `tokenizer` as it is."""
        self._tokenizer = tokenizer

    def encode(self, text: pa.LargeStringArray) -> Ragged:
        """See `Backend`.

        Raises:
          DataError: the tokenizer failed on a document.
        """
        batches = slices(text, _BATCH_BYTES)
        ids = (encode_each(self._tokenizer, batch.to_pylist()) for batch in batches)
        return Ragged.joined([*map(Ragged.of_lists, ids)])


def encode_each(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    """Ids by `tokenizers`, without the special tokens that its post-processor adds.

    Raises:
      DataError: it failed, for example because a pattern backtracks catastrophically: the regular
        expression library gives up after ten million steps, with a Rust panic.
    """
    with failures_as_data_errors(
        f"the tokenizer failed on one of {len(texts)} documents, from {texts[:1]!r:.60} on",
        "its tokenizer.json has a pattern or a vocabulary that cannot encode this text: use "
        "another tokenizer, or remove the document",
    ):
        encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    return [encoding.ids for encoding in encodings]
