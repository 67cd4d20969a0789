"""The table of input formats: a new one is a line here and a file of its own.

The file of a format has these functions:

    read(raw, part, source) -> Iterator[Documents]: the documents of a part. The last piece carries
      the digest of the part's stored bytes.
    plan(raw, part, source, classes) -> list[Part]: cuts a file, and refuses one that lacks a field;
      where `cuts` is "looked". `classes` are names of class numbers by field, if they are known
      better than from the file.
    check_roles(roles, path): refuses roles that no file of the format has; where `cuts` is another.
    stored_classes(raw, part): names of class numbers by field; where `labels` is "stored".
    peek(raw, part) -> bool: whether a file is of this format; where it `peeks`.
"""

import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import Literal


@dataclass(frozen=True)
class Format:
    """An input format.

    Attributes:
      name: as --input_format has it.
      file: of this folder, without .py; it is imported when a file of the format is met.
      endings: of files that are of this format, unless they are compressed; with a dot.
      cuts: anywhere: any range of bytes can be read. nowhere: a file is read whole. looked: its
        `plan` looks into the file.
      packs: whether files may be compressed as a whole, such as .csv.gz.
      peeks: whether `peek` tells its files from those of another format with the same ending.
      labels: folder: a file's folder is the label of its documents. stored: files may hold names of
        class numbers.
      is_web: whether its files are web pages, which `Source.html` makes text of.
    """

    name: str
    file: str
    endings: tuple[str, ...]
    cuts: Literal["anywhere", "nowhere", "looked"]
    packs: bool = True
    peeks: bool = False
    labels: Literal["", "folder", "stored"] = ""
    is_web: bool = False

    @property
    def module(self) -> ModuleType:
        """The file with its functions."""
        return importlib.import_module(f"pipelines.readers.formats.{self.file}")

    @property
    def place(self) -> str:
        """What a refused document's `offset` counts."""
        return "byte" if self.cuts == "anywhere" else "record"


FORMATS = {
    row.name: row
    for row in (
        # Not .md: a README is about the data.
        Format("text", "text", (".txt", ".text"), "anywhere", labels="folder"),
        Format("jsonl", "json_lines", (".jsonl", ".ndjson", ".json"), "anywhere"),
        Format("csv", "delimited", (".csv",), "looked"),
        Format("tsv", "delimited", (".tsv", ".tab"), "looked"),
        Format("parquet", "parquet", (".parquet", ".pq"), "looked", packs=False, labels="stored"),
        Format(
            *("arrow", "arrow_ipc", (".arrow", ".feather", ".ipc"), "looked"),
            packs=False,
            labels="stored",
        ),
        Format("squad", "squad", (".json",), "nowhere", peeks=True),
        Format("warc", "warc", (".warc", ".wet"), "nowhere", is_web=True),
        Format("html", "html", (".html", ".htm", ".xhtml"), "nowhere", is_web=True),
    )
}
OTHER = FORMATS["text"]  # of files with another ending that are named themselves


def formats_of(ending: str) -> list[Format]:
    """Formats whose files have an ending such as `.json`; those that peek come first."""
    found = [row for row in FORMATS.values() if ending in row.endings]
    return sorted(found, key=lambda row: not row.peeks)
