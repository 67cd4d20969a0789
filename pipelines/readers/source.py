"""What --input and its like ask to be read, checked before anything is opened. Pure."""

from dataclasses import dataclass

from pipelines.readers.documents import MAX_DOCUMENT_BYTES, TEXT_ROLES, Role
from pipelines.readers.formats.table import FORMATS
from schemas.errors import UsageError

BLOCK_BYTES = 16 << 20
DOCUMENTS = ("line", "paragraph", "file")
AUTO = "auto"
_MOST_DOCUMENT_BYTES = (1 << 31) - (1 << 25)  # Arrow's parsers count in 32 bits


@dataclass(frozen=True)
class Source:
    """What to read and what a document is.

    Attributes:
      patterns: files, directories, globs (`**` matches folders), `@list.txt` of such, or
        `hf:PATH_OR_NAME[:config][:split]`; local or of a store.
      document: in text files, a document: a line, a paragraph (blank lines between) or a file.
        Where a label is asked for it is a file, and the name of its folder is the label.
      roles: what to take of each document; the first is a string that no document lacks.
      input_format: of all files; auto goes by their names.
      max_document_bytes: a longer document, or the line that holds it, is refused.
      block_bytes: bytes of a block; changes speed and memory, never the documents.
    """

    patterns: tuple[str, ...]
    document: str = "line"
    roles: tuple[Role, ...] = TEXT_ROLES
    input_format: str = AUTO
    max_document_bytes: int = MAX_DOCUMENT_BYTES
    block_bytes: int = BLOCK_BYTES

    def __post_init__(self) -> None:
        """Refuses what cannot be read."""
        if not self.patterns:
            raise UsageError("no input: give --input=PATH, more than once if need be")
        if "" in self.patterns:
            raise UsageError("--input is empty: give a path")
        if self.document not in DOCUMENTS:
            raise UsageError(f"--document={self.document}: one of {', '.join(DOCUMENTS)}")
        if self.input_format not in (AUTO, *FORMATS):
            formats = ", ".join((AUTO, *FORMATS))
            raise UsageError(f"--input_format={self.input_format}: one of {formats}")
        for role in self.roles:
            if not role.field:
                raise UsageError(
                    f"--{role.name}_field is empty: name the field that holds the {role.name}"
                )
        if not 1 <= self.max_document_bytes <= _MOST_DOCUMENT_BYTES:
            raise UsageError(
                f"--max_document_bytes={self.max_document_bytes}: from 1 to {_MOST_DOCUMENT_BYTES}"
            )
        if self.block_bytes < 1:
            raise UsageError(f"--block_bytes={self.block_bytes}: at least 1")

    @property
    def has_labels(self) -> bool:
        """Whether a label is asked for."""
        return any(role.values.is_folder for role in self.roles)

    @property
    def text_document(self) -> str:
        """What a document is in a text file."""
        return "file" if self.has_labels else self.document
