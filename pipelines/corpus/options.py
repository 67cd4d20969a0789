"""The command line of build_corpus -> frozen configuration that refuses bad values."""

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Literal

import tyro

from textmill.pipelines.corpus.filters import Filters
from textmill.pipelines.corpus.near_duplicates.flags import NearArguments, NearFlags
from textmill.pipelines.input_options import AssumedBytes, InputFlags, Reading, assumed_bytes
from textmill.pipelines.readers.documents import Role
from textmill.pipelines.readers.forget import ForgetFlag, forget_parameters
from textmill.pipelines.readers.html_text import HTML_VERSION, Extraction
from textmill.pipelines.readers.sources import Source
from textmill.schemas.commands.help import BEAM_NOTE, CONFIG_NOTE, Help
from textmill.schemas.commands.values import (
    OF_THIS_RUN,
    join_list,
    spelled,
    spelled_list,
    take_values,
)
from textmill.schemas.errors import FieldError, UsageError, flag
from textmill.schemas.files.finished import Corpus
from textmill.schemas.format.corpus_metadata import CorpusSchema

PARAGRAPHS = "duplicate_paragraphs"  # the reason of edits, and of documents left empty by them
_MOST_FILES = 65_536
_FILE_BYTES = 64 << 20  # bytes of input for each file, whose text a worker holds in memory
_OWN_COLUMNS = ("id", "text", "file", "record", "digest", "words", "copies")
_UNITS = (
    "give paragraph:N or line:N, where N is the number of documents that may have the same one, "
    "such as paragraph:10"
)
_OF_FILTERED = ("reason", "measured", "limit", "path", "offset")  # of rejects/filtered.jsonl


HELP = Help(
    module="pipelines.build_corpus",
    about="Cleans, filters and deduplicates text; writes a corpus, files of documents.",
    usage="--input=PATH --output=DIR",
    example="--input='crawl/*.warc.gz' --output=corpus --keep_fields=url,date "
    "--language=en:0.65 --quality=gopher,c4 --near_duplicates=jaccard:0.8",
    page="docs/build_corpus.md",
    common="document text_field keep_fields normalize quality language min_words filter pii "
    "near_duplicates decontaminate overwrite dry_run",
    groups={
        "Input: documents and their fields": "reading text_field keep_fields html html_comments",
        "Output: the corpus": "output file_format num_files keep_source",
        "Filters: which documents stay": "normalize quality language sizes url_blocklist "
        "respect filter against forget keep_rejects",
        "Quality by a model: scores that are learned": "quality_model",
        "Gopher: rules for English (Rae et al. 2021), all set by --quality=gopher": "gopher",
        "C4: rules for English (Raffel et al. 2020), all set by --quality=c4": "c4",
        "FineWeb: rules for English (Penedo et al. 2024), all set by --quality=fineweb": "fineweb",
        "Personal data: placeholders for addresses and numbers": "pii",
        "Near-duplicates: similar documents and paragraphs": "near duplicate_paragraphs",
        "Decontamination: no text of evaluation sets": "decontamination",
        "Run: how the command runs": "shuffle_by overwrite dry_run assume_bytes preflight",
    },
    note=f"{CONFIG_NOTE} Ready: fineweb, c4, gopher, multilingual. {BEAM_NOTE}",
)


@dataclass(frozen=True)
class Paragraphs:
    """The paragraphs that are removed from all documents but the first: paragraph:10.

    Attributes:
      unit: paragraph (separated by blank lines) or line.
      most: number of documents with the same one above which it is removed.
    """

    unit: str
    most: int

    def __post_init__(self) -> None:
        """Rejects other units and numbers."""
        if self.unit not in ("paragraph", "line") or self.most not in range(1, 10**9):
            raise FieldError("", self, _UNITS)

    @classmethod
    def parse(cls, text: str) -> "Paragraphs":
        """Reads `paragraph:10`."""
        match = re.fullmatch(r"(paragraph|line):([1-9][0-9]{0,8})", text)
        if not match:
            raise FieldError("", text, _UNITS)
        return cls(match[1], int(match[2]))

    def __str__(self) -> str:
        """`paragraph:10`."""
        return f"{self.unit}:{self.most}"


@dataclass(frozen=True)
class KeptField:
    """A field of the input that becomes a column of the corpus: url, or og_title:og:title.

    Attributes:
      name: name of the column.
      field: the field; "" for the name.
    """

    name: str
    field: str = ""

    def __post_init__(self) -> None:
        """Rejects a name that no column may have."""
        if not isinstance(self.name, str) or not re.fullmatch(r"[A-Za-z_][\w.-]*", self.name):
            reason = f"{str(self)!r} is not FIELD or NAME:FIELD; separate several by commas"
            raise FieldError("", self, reason)

    @classmethod
    def parse(cls, text: str) -> "KeptField":
        """Reads `url` or `og_title:og:title`."""
        name, _, field = text.partition(":")
        return cls(name, field)

    def __str__(self) -> str:
        """`url` or `og_title:og:title`."""
        return f"{self.name}:{self.field}" if self.field else self.name

    @property
    def role(self) -> Role:
        """The role of the field."""
        return Role(self.name, "field", self.field or self.name, optional=True)


def _parse_number(text: str) -> int:
    if not text.isdecimal():
        raise FieldError("", text, "give auto, or a number")
    return int(text)


@dataclass(frozen=True)
class CorpusOptions:
    """The flags of build_corpus."""

    output: str = field(metadata=OF_THIS_RUN)
    """Directory or URL of the corpus. build_shards and train_tokenizer take it as --input."""
    reading: Reading = InputFlags()
    text_field: str = "text"
    """Field that holds the text; a.b is field b inside field a. Text files have no fields."""
    keep_fields: Annotated[tuple[KeptField, ...], spelled_list(KeptField, "FIELD,...")] = ()
    """Other fields to keep as columns of the corpus, such as url,date,label. NAME:FIELD renames the
    field to NAME, as in og_title:og:title."""
    keep_source: bool = False
    """Add the columns file and record: where each document was read. The corpus then depends on how
    the input is cut into files."""
    html: Annotated[
        Literal["main", "markdown", "all", "trafilatura"],
        tyro.conf.arg(
            help="Text to take from web pages (WARC, HTML): the main content, as plain text or as "
            "Markdown; all text; or what trafilatura extracts, which is the slowest. Each needs an "
            "extra, [web] or [trafilatura]."
        ),
    ] = "main"
    html_comments: Literal["drop", "keep"] = "drop"
    """Drop or keep readers' comments below the main text of a web page. Posts of a forum are main
    text with either value; --html=all takes all text."""
    filters: Annotated[Filters, tyro.conf.arg(name="", help="Which documents are kept.")] = Filters(
        normalize="nfc"
    )
    near: NearArguments = NearFlags()
    duplicate_paragraphs: Annotated[
        Paragraphs | None,
        spelled(Paragraphs, "paragraph:N|line:N", none="None"),
        tyro.conf.arg(
            help="Remove paragraphs or lines that occur in more than N documents, except from one "
            "of them. Use it against cookie notices, licences and navigation; blank lines "
            "separate paragraphs.",
        ),
    ] = None
    against: Annotated[
        tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="CORPUS,...")
    ] = ()
    """Older corpora, whose documents are dropped from the input, so that the output is a delta:
    --input=OLD --input=DELTA of other commands reads both. Repeatable."""
    forget: ForgetFlag = ""
    file_format: Literal["parquet", "jsonl"] = "parquet"
    """File format of the corpus: Parquet, or JSON Lines, both compressed with zstd."""
    num_files: Annotated[int | None, spelled(int, "N", none="auto", parse=_parse_number)] = None
    """Number of files of the corpus. The default is one for each 64 MB of text, which a sample of
    compressed files and web pages measures; more files take less memory each."""
    shuffle_by: Literal["auto", "files", "runner"] = field(default="auto", metadata=OF_THIS_RUN)
    """How documents get from the workers that read to those that write: scratch files on one
    machine, or the runner's shuffle on a cluster."""
    overwrite: bool = field(default=False, metadata=OF_THIS_RUN)
    """Replace the output of another run."""
    dry_run: bool = field(default=False, metadata=OF_THIS_RUN)
    """Print the plan (input, files, disk, memory, time) and stop."""
    assume_bytes: AssumedBytes = field(default=None, metadata=OF_THIS_RUN)
    """Size of the whole input that --dry_run plans for, such as 500GB or 2TB. The given files are
    taken as a sample of it."""
    preflight: bool = field(default=False, metadata=OF_THIS_RUN)
    """Check what could fail on the runner (flags, buckets, the job and its pickles) and stop."""

    def __post_init__(self) -> None:
        """Rejects impossible values before anything is read."""
        take_values(self)
        if not self.output:
            raise UsageError(f"{flag('output')} is empty: give the directory of the corpus")
        if not 1 <= self.files(0) <= _MOST_FILES:
            raise FieldError("num_files", self.num_files, f"give 1 to {_MOST_FILES:,}")
        assumed_bytes(self.assume_bytes, dry_run=self.dry_run)
        self._refuse_taken_names()
        self.filters.check_roles(role.name for role in self.roles)

    def _refuse_taken_names(self) -> None:
        """Refuses columns that the corpus, or its list of filtered documents, already has."""
        filtered = _OF_FILTERED if self.filters.keep_rejects else ()
        taken = {*_OWN_COLUMNS, *self.filters.added(), *filtered}
        for kept in self.keep_fields:
            if kept.name in taken:
                where = "rejects/filtered.jsonl" if kept.name in filtered else "the corpus"
                raise FieldError(
                    "keep_fields",
                    join_list(self.keep_fields),
                    f"{where} already has a column {kept.name}; give another name, such as "
                    f"source_{kept.name}:{kept.role.field}",
                )
            taken.add(kept.name)

    @cached_property
    def roles(self) -> tuple[Role, ...]:
        """The text, and the kept fields."""
        return (Role("text", "string", self.text_field), *(kept.role for kept in self.keep_fields))

    @cached_property
    def source(self) -> Source:
        """The inputs, and how to read them."""
        return replace(self.reading.source(self.roles), extraction=self.extraction)

    @cached_property
    def extraction(self) -> Extraction:
        """The text that is taken from web pages."""
        fields = {kept.role.field for kept in self.keep_fields}
        return Extraction.of_fields(self.html, self.html_comments, fields)

    @cached_property
    def ancestors(self) -> tuple[Corpus, ...]:
        """The older corpora, sorted by identity.

        Raises:
          UsageError, DataError: see `open_ancestors`.
        """
        if not self.against:
            return ()
        # Imports Arrow, which --help does not need.
        from textmill.pipelines.corpus.ancestors import open_ancestors

        links, form = self.reading.follow_links, self.filters.normalize
        return open_ancestors(self.against, form, follow_links=links)

    def files(self, total_bytes: int) -> int:
        """Number of files of the corpus, for inputs with this many bytes of text."""
        if self.num_files is not None:
            return self.num_files
        return min(_MOST_FILES, max(1, -(-total_bytes // _FILE_BYTES)))

    def columns(self) -> tuple[str, ...]:
        """The columns of the corpus, in order."""
        kept = [role.name for role in self.roles[1:]]
        source = ("file", "record") if self.keep_source else ()
        return ("id", "text", *kept, *self.filters.added(), *source)

    def parameters(self) -> dict[str, Any]:
        """Settings that decide the content of the corpus besides the input, by flag."""
        return {
            **self.reading.parameters(),
            "text_field": self.text_field,
            "keep_fields": join_list(self.keep_fields),
            "html": self.html,
            "html_comments": "keep" if self.extraction.keeps_comments else "drop",
            "html_version": HTML_VERSION,
            **self.filters.parameters(),
            **self.near.parameters(),
            **({"against": [one.identity for one in self.ancestors]} if self.against else {}),
            **forget_parameters(self.forget),
            **({PARAGRAPHS: str(repeated)} if (repeated := self.duplicate_paragraphs) else {}),
        }

    def schema(self, total_bytes: int) -> CorpusSchema:
        """The schema of the corpus, for inputs with this many bytes of text."""
        return CorpusSchema(
            parameters=self.parameters(),
            columns=self.columns(),
            files=self.files(total_bytes),
            file_format=self.file_format,
        )
