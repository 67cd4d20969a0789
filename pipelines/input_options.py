"""The flags of reading, which build_corpus, build_shards and train_tokenizer share."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from textmill.pipelines.readers.documents import MAX_DOCUMENT_BYTES, Role
from textmill.pipelines.readers.formats.table import FORMATS
from textmill.pipelines.readers.sources import AUTO, Source
from textmill.schemas.commands.values import spelled, take_values
from textmill.schemas.errors import FieldError

_INPUT_HELP = (
    "File, directory, glob, corpus, @LIST.txt of these, or hf:NAME[:CONFIG][:SPLIT]; repeatable. "
    "Globs may hold ** and {a,b}. Formats: text, JSON Lines, CSV, TSV and SQuAD's "
    "JSON, plain or compressed (.gz, .zst, .bz2, .xz, .lz4); Parquet; Arrow; in build_corpus also "
    "WARC and HTML."
)
_FORMATS = "|".join((AUTO, *FORMATS))


@dataclass(frozen=True)
class InputFlags:
    """The documents that a command reads."""

    input: Annotated[
        tuple[str, ...],
        tyro.conf.UseAppendAction,
        tyro.conf.arg(help=_INPUT_HELP, metavar="PATH"),
    ] = ()
    document: Literal["file", "paragraph", "line"] = "file"
    """The unit of a text file that becomes one document. Use line where each line is a document of
    its own; paragraphs end at blank lines."""
    input_format: Annotated[str, tyro.conf.arg(metavar=_FORMATS)] = AUTO
    """Format of all input files. auto recognizes each file by its name; name a format when the
    names mislead."""
    quoting: Literal["auto", "none", "double"] = "auto"
    """Whether double quotes enclose fields of CSV and TSV files, or are text. auto: double in CSV,
    none in TSV."""
    follow_links: bool = False
    """Follow links out of the directories that --input names, and out of the folders in which its
    globs search. Use it only if you trust the directories. Caches such as huggingface_hub's need
    it."""
    max_document_bytes: int = MAX_DOCUMENT_BYTES
    """Largest document in bytes; longer ones are rejected, so that memory stays bounded. A document
    of 100 MB takes 0.9 GB of memory, up to 3.4 GB if it is a single word."""
    max_rejects: int = 1000
    """Number of rejected documents (bad input) above which the run fails; -1 for no limit. Each is
    listed in rejects/ with its file and position."""

    def __post_init__(self) -> None:
        """Rejects values of other types."""
        take_values(self)

    def source(
        self,
        roles: tuple[Role, ...],
        *,
        field: str = "input",
        patterns: tuple[str, ...] | None = None,
    ) -> Source:
        """The source of documents that these flags name.

        Args:
          roles: what to read of each document.
          field: the flag that names the documents; train_input, for one.
          patterns: its values, if it is not --input.

        Raises:
          UsageError: the flags do not fit together.
        """
        return Source(
            self.input if patterns is None else patterns,
            document=self.document,
            roles=roles,
            input_format=self.input_format,
            max_document_bytes=self.max_document_bytes,
            quoting=self.quoting,
            follow_links=self.follow_links,
            field=field,
        )

    def parameters(self) -> dict[str, Any]:
        """The flags that decide which documents are read."""
        names = ("document", "input_format", "max_document_bytes")
        quoting = {"quoting": self.quoting} if self.quoting != AUTO else {}  # as before the flag
        return {**{name: getattr(self, name) for name in names}, **quoting}


def parse_size(text: str) -> int:
    """The bytes of a size: "2TB" -> 2 * 10**12.

    Raises:
      FieldError: it is not a size.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kMGTP]?)B?", text)
    number = float(match[1]) * 1000 ** " kMGTP".index(match[2] or " ") if match else 0
    if not 1 <= number < 1 << 63:
        raise FieldError("", text, "give a size such as 500GB or 2TB")
    return int(number)


# The size of an input that --dry_run plans for.
AssumedBytes = Annotated[int | None, spelled(int, "SIZE", none="None", parse=parse_size)]


def assumed_bytes(assume_bytes: int | None, *, dry_run: bool) -> int:
    """The assumed size, or 0; only a plan assumes one.

    Raises:
      FieldError: it is not a size, or the command would not only plan.
    """
    if assume_bytes is not None and assume_bytes < 1:
        raise FieldError("assume_bytes", assume_bytes, "give a size such as 500GB or 2TB")
    if assume_bytes and not dry_run:
        raise FieldError("assume_bytes", assume_bytes, "it is for plans: give dry_run too")
    return assume_bytes or 0


# The help shows the flags as a group.
Reading = tyro.conf.OmitArgPrefixes[InputFlags]
