"""The flags of reading, which build_corpus, build_shards and train_tokenizer share."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from pipelines.readers.documents import MAX_DOCUMENT_BYTES, Role
from pipelines.readers.formats.table import FORMATS
from pipelines.readers.sources import AUTO, Source

_INPUT_HELP = (
    "What to read; may be given more than once. A corpus of build_corpus, a file, a glob (with ** "
    "and {a,b}), a directory, @LIST.txt of such, or hf:PATH_OR_NAME[:CONFIG][:SPLIT]. Text, JSON "
    "Lines, CSV, TSV and SQuAD's JSON, plain or .gz, .zst, .bz2, .xz; Parquet; Arrow; in "
    "build_corpus WARC and HTML. Fields have names: --text_field=..."
)
_FORMATS = "|".join((AUTO, *FORMATS))


@dataclass(frozen=True)
class InputFlags:
    """What is read."""

    input: Annotated[
        tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(help=_INPUT_HELP)
    ] = ()
    document: Literal["line", "paragraph", "file"] = "line"
    """What is a document in a text file. No word goes on into the next."""
    input_format: Annotated[str, tyro.conf.arg(metavar=_FORMATS)] = AUTO
    """Of all files; auto goes by their names."""
    max_document_bytes: int = MAX_DOCUMENT_BYTES
    """Refuse a longer document, or the line that holds it: memory is then bounded, whatever the
    input. One of 100 MB takes 0.9 GB more than a small one, and up to 3.4 GB more where it is a
    single word."""
    max_rejects: int = 1000
    """Fail if more documents than this are refused; -1 for no limit."""

    def source(self, roles: tuple[Role, ...], patterns: tuple[str, ...] | None = None) -> Source:
        """What to read.

        Args:
          roles: what to take of each document.
          patterns: of a flag that stands for --input.

        Raises:
          UsageError: it cannot be read so.
        """
        return Source(
            self.input if patterns is None else patterns,
            document=self.document,
            roles=roles,
            input_format=self.input_format,
            max_document_bytes=self.max_document_bytes,
        )

    def parameters(self) -> dict[str, Any]:
        """What decides about the documents that are read, by flag."""
        names = ("document", "input_format", "max_document_bytes")
        return {name: getattr(self, name) for name in names}


# The help shows the flags as a group.
Reading = tyro.conf.OmitArgPrefixes[InputFlags]
