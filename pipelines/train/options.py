"""The command line of train_tokenizer -> frozen configuration that refuses."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from pipelines.filters.filters import Filters
from pipelines.readers.documents import MAX_DOCUMENT_BYTES, Role
from pipelines.readers.formats.table import FORMATS
from pipelines.readers.source import AUTO, Source
from pipelines.train.bpe import first_tokens
from schemas.errors import UsageError

if TYPE_CHECKING:  # --help needs none of these, and they load much
    from pipelines.train.report import Parameters

MAX_VOCABULARY = 1 << 24


@dataclass(frozen=True)
class TokenizerOptions:
    """Text in, a byte-level BPE tokenizer out.

    Flags that are not listed here go to Beam (--runner=..., --direct_num_workers=...).
    --config=FILE.yaml holds flags; those of the command line win.
    """

    vocab_size: int
    """Tokens of the vocabulary, the 256 bytes and the special tokens included."""
    output: str
    """The directory for tokenizer.json, histogram.parquet and report.json."""
    input: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """What to read; may be given more than once. A file, a glob (with ** and {a,b}), a directory,
    @LIST.txt of such, or hf:PATH_OR_NAME[:CONFIG][:SPLIT]. Text, JSON Lines, CSV, TSV and SQuAD's
    JSON, plain or .gz, .zst, .bz2, .xz; Parquet; Arrow. Fields have names: --text_field=..."""
    from_histogram: str | None = None
    """Train from the histogram.parquet of an earlier run instead of from text."""
    min_frequency: int = 2
    """Pairs that occur less often are not merged."""
    special_tokens: str = "<s>,<pad>,</s>,<unk>,<mask>"
    """They take the first ids, in this order."""
    add_prefix_space: bool = False
    """Treat the first word of a document like any other: with a space before it."""
    document: Literal["line", "paragraph", "file"] = "line"
    """What is a document in a text file. A word never goes on from one into the next."""
    text_field: str = "text"
    """The field with the text; a.b is the field b of the field a."""
    input_format: Annotated[str, tyro.conf.arg(metavar="|".join((AUTO, *FORMATS)))] = AUTO
    """Of all files; auto goes by their names."""
    max_document_bytes: int = MAX_DOCUMENT_BYTES
    """Refuse a longer document, or the line that holds it: memory is then bounded, whatever the
    input. One of 100 MB takes 0.4 GB more than a small one."""
    filters: Annotated[Filters, tyro.conf.arg(name="")] = Filters()
    """Which documents count."""
    max_rejects: int = 1000
    """Fail if more documents than this are refused; -1 for no limit."""
    overwrite: bool = False
    """Replace the tokenizer that another run left in the output directory."""
    preflight: bool = False
    """Look for what would fail on the runner (flags, buckets, packages, memory) and stop."""

    def __post_init__(self) -> None:
        """Refuses values that cannot work, before anything is read."""
        if not self.output:
            raise UsageError("--output is empty: give the directory of the tokenizer")
        specials = self.specials()
        for token in specials:
            if not token.strip() or token != token.strip():
                raise UsageError(
                    f"--special_tokens={self.special_tokens}: {token!r} is empty or has white "
                    "space around it; separate them by commas alone"
                )
            if specials.count(token) > 1:
                raise UsageError(f"--special_tokens={self.special_tokens}: {token} stands twice")
        least = len(first_tokens(specials))
        if not least <= self.vocab_size <= MAX_VOCABULARY:
            raise UsageError(
                f"--vocab_size={self.vocab_size}: at least {least}, for the 256 bytes and the "
                f"special tokens come before any merge, and at most {MAX_VOCABULARY}"
            )
        if self.min_frequency < 0:
            raise UsageError(f"--min_frequency={self.min_frequency}: at least 0")
        if self.from_histogram is None:
            self.source()
        elif self.input:
            raise UsageError("--input and --from_histogram: give one of them")
        elif self.filters != Filters():
            raise UsageError(
                "--from_histogram holds counted words: documents are filtered and normalized when "
                "they are counted, so leave those flags out, or give --input"
            )

    def specials(self) -> tuple[str, ...]:
        """--special_tokens, parsed."""
        return tuple(self.special_tokens.split(",")) if self.special_tokens else ()

    def source(self) -> Source:
        """What to read."""
        roles = (Role("text", "string", self.text_field),)
        return Source(
            self.input,
            document=self.document,
            roles=roles,
            input_format=self.input_format,
            max_document_bytes=self.max_document_bytes,
        )

    def parameters(self) -> "Parameters":
        """What decides the tokenizer, besides the text."""
        from pipelines.train.report import Parameters

        from_text = self.from_histogram is None
        return Parameters(
            vocab_size=self.vocab_size,
            min_frequency=self.min_frequency,
            special_tokens=self.specials(),
            add_prefix_space=self.add_prefix_space,
            document=self.document if from_text else "",
            text_field=self.text_field if from_text else "",
            input_format=self.input_format if from_text else "",
            max_document_bytes=self.max_document_bytes if from_text else 0,
            filters=self.filters.parameters() if from_text else {},
        )
