"""The flags that build_shards and train_tokenizer share: what to read, and which of it is kept."""

from typing import Annotated, Literal

import tyro

from pipelines.corpus.filters import Filters
from pipelines.readers.documents import Role
from pipelines.readers.formats.table import FORMATS
from pipelines.readers.sources import AUTO, Source

Inputs = Annotated[
    tuple[str, ...],
    tyro.conf.UseAppendAction,
    tyro.conf.arg(
        help="What to read; may be given more than once. A file, a glob (with ** and {a,b}), a "
        "directory, @LIST.txt of such, or hf:PATH_OR_NAME[:CONFIG][:SPLIT]. Text, JSON Lines, CSV, "
        "TSV and SQuAD's JSON, plain or .gz, .zst, .bz2, .xz; Parquet; Arrow; in build_corpus "
        "WARC and HTML. Fields have names: --text_field=..."
    ),
]
TextDocument = Annotated[
    Literal["line", "paragraph", "file"],
    tyro.conf.arg(help="What is a document in a text file. No word goes on into the next."),
]
InputFormat = Annotated[
    str,
    tyro.conf.arg(
        metavar="|".join((AUTO, *FORMATS)), help="Of all files; auto goes by their names."
    ),
]
MaxDocumentBytes = Annotated[
    int,
    tyro.conf.arg(
        help="Refuse a longer document, or the line that holds it: memory is then bounded, "
        "whatever the input. One of 100 MB takes 0.9 GB more than a small one, and up to 3.4 GB "
        "more where it is a single word."
    ),
]
FilterFlags = Annotated[Filters, tyro.conf.arg(name="", help="Which documents are kept.")]
MaxRejects = Annotated[
    int,
    tyro.conf.arg(help="Fail if more documents than this are refused; -1 for no limit."),
]


class InputFlags:
    """What options of a command have in common that read inputs; a dataclass adds the flags."""

    document: str
    input_format: str
    max_document_bytes: int

    def source_of(self, patterns: tuple[str, ...], roles: tuple[Role, ...]) -> Source:
        """What to read, as these options say.

        Args:
          patterns: of --input or its like.
          roles: what to take of each document.

        Raises:
          UsageError: it cannot be read so.
        """
        return Source(
            patterns,
            document=self.document,
            roles=roles,
            input_format=self.input_format,
            max_document_bytes=self.max_document_bytes,
        )
