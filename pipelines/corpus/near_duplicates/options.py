"""The command line of find_duplicates -> frozen configuration that refuses."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from pipelines.corpus.filters import Filters
from pipelines.corpus.near_duplicates.flags import DEFAULT, NearArguments, NearFlags
from pipelines.input_options import (
    FilterFlags,
    InputFlags,
    InputFormat,
    Inputs,
    MaxDocumentBytes,
    MaxRejects,
    TextDocument,
)
from pipelines.readers.documents import MAX_DOCUMENT_BYTES, Role
from pipelines.readers.sources import AUTO, Source
from schemas.errors import UsageError

_MOST_FILES = 99_999


@dataclass(frozen=True)
class FindOptions(InputFlags):
    """Text in, a list of near-duplicates out: which document to remove, and for which one.

    Flags that are not listed here go to Beam (--runner=..., --direct_num_workers=...).
    --config=FILE.yaml holds flags; those of the command line win.
    """

    output: str
    """The directory for the result, which build_shards takes as --near_duplicates=DIR."""
    input: Inputs = ()
    near: NearArguments = NearFlags(near_duplicates=DEFAULT)
    num_files: int = 1
    """Files of the result; more, where documents are billions."""
    document: TextDocument = "line"
    text_field: str = "text"
    """The field with the text; a.b is the field b of the field a."""
    input_format: InputFormat = AUTO
    max_document_bytes: MaxDocumentBytes = MAX_DOCUMENT_BYTES
    exchange: Annotated[
        Literal["auto", "files", "runner"],
        tyro.conf.arg(help="What carries data between workers: scratch files, or the runner."),
    ] = "auto"
    filters: FilterFlags = Filters()
    max_rejects: MaxRejects = 1000
    overwrite: bool = False
    """Replace what another run found in the output directory."""
    dry_run: bool = False
    """Print what would be done, and which share of pairs is found, and stop."""

    def __post_init__(self) -> None:
        """Refuses values that cannot work, before anything is read."""
        if not self.output:
            raise UsageError("--output is empty: give the directory of the result")
        if self.near.rule() is None:
            raise UsageError(
                f"--near_duplicates={self.near.near_duplicates} is no measure, such as {DEFAULT}: "
                "a finished result is for build_shards"
            )
        if not 1 <= self.num_files <= _MOST_FILES:
            raise UsageError(f"--num_files={self.num_files}: from 1 to {_MOST_FILES:,}")
        self.source()

    def source(self) -> Source:
        """What the flags ask to be read."""
        return self.source_of(self.input, (Role("text", "string", self.text_field),))

    def parameters(self) -> dict[str, Any]:
        """What decides the result besides the text, by flag."""
        text = text_parameters(self, self.text_field, self.filters)
        return {**self.near.parameters(), "num_files": self.num_files, **text}


def text_parameters(options: InputFlags, text_field: str, filters: Filters) -> dict[str, Any]:
    """What decides which texts are compared, by flag: equal where a result can be taken."""
    return {
        "document": options.document,
        "text_field": text_field,
        "input_format": options.input_format,
        "max_document_bytes": options.max_document_bytes,
        **filters.parameters(),
    }
