"""The table of input formats. A new format is a line here and a file in this folder.

The file of a format has these functions:

    read(raw, part, source) -> Iterator[Documents]: the documents of a part. The last piece has the
      digest of the part's stored bytes.
    plan(raw, part, source, classes) -> list[Part]: checks the fields of a file and cuts it, if
      `cuts` is "looked". `classes` has names of class numbers by field, if they differ from those
      in the file.
    check_roles(roles, path): raises UsageError for roles that no file of the format has, unless
      `cuts` is "looked".
    stored_classes(raw, part): names of class numbers by field, if `labels` is "stored".
    peek(raw, part) -> bool: whether a file has this format, if `peeks` is true.
"""

import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import Literal


@dataclass(frozen=True)
class Format:
    """An input format.

    Attributes:
      name: value of --input_format.
      file: module in this folder; imported when a file of the format is found.
      endings: extensions of uncompressed files, with a dot.
      cuts: anywhere: any range of bytes can be read. nowhere: a file is read as a whole. looked:
        `plan` reads the file to cut it.
      packs: whether files may be compressed as a whole, such as .csv.gz.
      peeks: whether `peek` distinguishes its files from a different format with the same extension.
      labels: folder: the folder of a file is the label of its documents. stored: files may have
        names of class numbers.
      is_web: whether files are web pages, whose text `Source.html` extracts.
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
        """The module with its functions."""
        return importlib.import_module(f"textmill.pipelines.readers.formats.{self.file}")

    @property
    def place(self) -> str:
        """The unit of `Reject.offset`."""
        return "byte" if self.cuts == "anywhere" else "record"


FORMATS = {
    row.name: row
    for row in (
        # Not .md, because a README in a folder describes the data.
        Format("text", "text", (".txt", ".text"), "anywhere", labels="folder"),
        Format(
            *("jsonl", "json_lines", (".jsonl", ".jsonlines", ".ndjson", ".jl", ".json")),
            "anywhere",
        ),
        Format("csv", "delimited", (".csv",), "looked"),
        Format("tsv", "delimited", (".tsv", ".tab"), "looked"),
        Format(
            "parquet",
            "parquet",
            (".parquet", ".parq", ".pq"),
            "looked",
            packs=False,
            labels="stored",
        ),
        Format(
            *("arrow", "arrow_ipc", (".arrow", ".feather", ".ipc"), "looked"),
            packs=False,
            labels="stored",
        ),
        Format("squad", "squad", (".json",), "nowhere", peeks=True),
        Format("warc", "warc", (".warc", ".wet"), "nowhere", is_web=True),
        Format("html", "html", (".html", ".htm", ".xhtml", ".xht"), "nowhere", is_web=True),
    )
}
OTHER = FORMATS["text"]  # for files with other extensions that --input names


def formats_of(ending: str) -> list[Format]:
    """Formats with an extension such as `.json`; those that peek come first."""
    rows = [row for row in FORMATS.values() if ending in row.endings]
    return sorted(rows, key=lambda row: not row.peeks)
