"""The command line of build_corpus -> frozen configuration that refuses bad values."""

import re
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import tyro

from pipelines.corpus.filters import Filters
from pipelines.corpus.metadata import CorpusSchema
from pipelines.corpus.near_duplicates.flags import NearArguments, NearFlags
from pipelines.input_options import InputFlags, Reading
from pipelines.readers.documents import Role
from pipelines.readers.sources import Source
from schemas.errors import UsageError

PARAGRAPHS = "duplicate_paragraphs"  # the reason of documents that lose all, and of edits
_MOST_FILES = 65_536
_FILE_BYTES = 64 << 20  # of input, a file: a step holds the text of one
_OWN_COLUMNS = ("id", "text", "file", "record", "digest", "words", "copies")


@dataclass(frozen=True)
class ParagraphRule:
    """Which paragraphs are removed from all documents but the first.

    Attributes:
      unit: paragraph, between blank lines; or line.
      most: documents that may have one.
    """

    unit: str
    most: int

    @staticmethod
    def parse(flag: str) -> "ParagraphRule":
        """Reads `paragraph:10`.

        Raises:
          UsageError: it is not of this form.
        """
        found = re.fullmatch(r"(paragraph|line):([1-9][0-9]{0,8})", flag)
        if not found:
            raise UsageError(
                f"--duplicate_paragraphs={flag}: give paragraph:N or line:N, where N is the number "
                "of documents that may have the same one, such as paragraph:10"
            )
        return ParagraphRule(found[1], int(found[2]))


@dataclass(frozen=True)
class CorpusOptions:
    """Documents in, documents out: text that is cleaned, deduplicated and sorted by hash.

    build_shards and train_tokenizer take the corpus as --input. Flags that are not listed go to
    Beam (--runner=..., --direct_num_workers=...). --config=FILE.yaml holds flags, and the recipes
    fineweb, c4, gopher and multilingual do; flags of the command line win.
    """

    output: str
    """The directory of the corpus."""
    reading: Reading = InputFlags()
    text_field: str = "text"
    """The field with the text; a.b is the field b of the field a."""
    keep_fields: str = ""
    """Other fields that the corpus keeps, such as url,date,label. NAME:FIELD keeps the field FIELD
    as the column NAME."""
    keep_source: bool = False
    """Keep the file and the place of each document, as columns file and record."""
    html: Annotated[
        Literal["main", "all", "trafilatura"],
        tyro.conf.arg(
            help="What of web pages (WARC, HTML files) is text: their main content, all of it, or "
            "what trafilatura takes, which is slower. Needs the extra [web]."
        ),
    ] = "main"
    filters: Annotated[Filters, tyro.conf.arg(name="", help="Which documents are kept.")] = Filters(
        normalize="nfc"
    )
    near: NearArguments = NearFlags()
    duplicate_paragraphs: Annotated[
        str | None,
        tyro.conf.arg(
            metavar="paragraph:N|line:N",
            help="Remove paragraphs (between blank lines) or lines that stand in more than N "
            "documents from all documents but the first.",
        ),
    ] = None
    file_format: Literal["parquet", "jsonl"] = "parquet"
    """parquet (zstd), or jsonl for JSON Lines in .jsonl.zst."""
    num_files: str = "auto"
    """Files of the corpus; auto takes one for 64 MB of input, for 21 MB where it is compressed."""
    shuffle_by: Annotated[
        Literal["auto", "files", "runner"],
        tyro.conf.arg(help="What carries data between workers: scratch files, or the runner."),
    ] = "auto"
    overwrite: bool = False
    """Replace what another run left in the output directory."""
    dry_run: bool = False
    """Print the plan and stop."""
    preflight: bool = False
    """Look for what would fail on the runner (flags, buckets, packages, memory) and stop."""

    def __post_init__(self) -> None:
        """Refuses values that cannot work, before anything is read."""
        if not self.output:
            raise UsageError("--output is empty: give the directory of the corpus")
        if self.num_files != "auto" and not self.num_files.isdecimal():
            raise UsageError(f"--num_files={self.num_files}: auto, or a number")
        if not 1 <= self.files(0) <= _MOST_FILES:
            raise UsageError(f"--num_files={self.num_files}: from 1 to {_MOST_FILES:,}")
        self.source()
        self.paragraphs()
        self.filters.check_roles(role.name for role in self.roles())

    def paragraphs(self) -> ParagraphRule | None:
        """--duplicate_paragraphs, parsed; None if paragraphs stay."""
        flag = self.duplicate_paragraphs
        return None if flag is None else ParagraphRule.parse(flag)

    def roles(self) -> tuple[Role, ...]:
        """The text, and the fields that are kept.

        Raises:
          UsageError: a column has a name that cannot be, or that another has.
        """
        roles = [Role("text", "string", self.text_field)]
        for part in self.keep_fields.split(",") if self.keep_fields else ():
            name, _, field = part.partition(":")
            if not re.fullmatch(r"[A-Za-z_][\w.-]*", name) or ":" in field:
                raise UsageError(
                    f"--keep_fields={self.keep_fields}: {part!r} is not FIELD or NAME:FIELD, with "
                    "commas between several"
                )
            taken = [*_OWN_COLUMNS, *(role.name for role in roles)]
            if name in taken:
                raise UsageError(
                    f"--keep_fields={self.keep_fields}: the corpus has a column {name} already; "
                    f"give another name, as in source_{name}:{field or name}"
                )
            roles.append(Role(name, "field", field or name, optional=True))
        return tuple(roles)

    def source(self) -> Source:
        """What the flags ask to be read."""
        return replace(self.reading.source(self.roles()), html=self.html)

    def files(self, total_bytes: int) -> int:
        """How many files the corpus has, for inputs of so many bytes."""
        if self.num_files != "auto":
            return int(self.num_files)
        return min(_MOST_FILES, max(1, -(-total_bytes // _FILE_BYTES)))

    def columns(self) -> tuple[str, ...]:
        """The columns of the corpus, in order."""
        kept = [role.name for role in self.roles()[1:]]
        return ("id", "text", *kept, *(("file", "record") if self.keep_source else ()))

    def parameters(self) -> dict[str, Any]:
        """What decides the corpus besides the input, by flag."""
        return {
            **self.reading.parameters(),
            "text_field": self.text_field,
            "keep_fields": self.keep_fields,
            "html": self.html,
            **self.filters.parameters(),
            **self.near.parameters(),
            **({PARAGRAPHS: self.duplicate_paragraphs} if self.paragraphs() else {}),
        }

    def schema(self, total_bytes: int) -> CorpusSchema:
        """The schema of the corpus that these options make of inputs of so many bytes."""
        return CorpusSchema(
            parameters=self.parameters(),
            columns=self.columns(),
            files=self.files(total_bytes),
            file_format=self.file_format,
        )
