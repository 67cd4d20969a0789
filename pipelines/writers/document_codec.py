"""The interface of a file format for whole documents; `document_formats` lists the formats."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np

from textmill.pipelines.rows.ragged import Ragged
from textmill.schemas.format.metadata import Schema

Contents = Mapping[str, Iterator[np.ndarray | bytes]]  # of a shard's files, in parts


class DocumentCodec(ABC):
    """Encodes and decodes a format of whole documents.

    Attributes:
      holds_ends: whether the files hold the ends of documents; if not, `decode` returns
        pieces, at least one per document.
    """

    holds_ends: ClassVar[bool] = False

    def refuse(self, schema: Schema) -> None:  # noqa: B027 (most formats hold everything)
        """Raises UsageError if ids or settings do not fit the format."""

    @abstractmethod
    def encode(self, documents: Ragged, schema: Schema) -> Contents:
        """The contents of a shard's files."""

    @abstractmethod
    def decode(self, paths: Mapping[str, str], schema: Schema) -> Ragged:
        """Token ids of the documents or pieces of a shard; may map large files.

        Raises:
          DataError: a file is not of the format, or not of this dataset; names it.
        """
