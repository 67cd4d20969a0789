"""Cuts inputs into blocks in the main process, and reads documents from blocks in workers.

A block is the unit of reading: about 16 MiB of plain text, one compressed file, which is streamed,
or some row groups or record batches. A document belongs to the range in which it starts, so any cut
of a file into ranges gives the same documents. Documents are columns of Arrow arrays.
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from rich.filesize import decimal

from textmill.pipelines.readers.compression import extension, inner_extension, is_compressed
from textmill.pipelines.readers.corpus_files import check_roles, find_corpus
from textmill.pipelines.readers.documents import (
    BOM,
    MAX_DOCUMENT_BYTES,
    TEXT_ROLES,
    Documents,
    Role,
    join_documents,
    too_large,
)
from textmill.pipelines.readers.files import (
    HUGGING_FACE,
    FileFinder,
    check_size,
    expand_lists,
    identity,
    open_file,
)
from textmill.pipelines.readers.formats import huggingface
from textmill.pipelines.readers.formats.table import FORMATS, OTHER, formats_of
from textmill.pipelines.readers.html_text import NO_PAGES, Extraction, check_packages
from textmill.pipelines.readers.stored import Digest, Part, file_digests, part_digest
from textmill.schemas.commands.terminal import command_in_message, number_of, say
from textmill.schemas.errors import Caution, DataError, UsageError, flag
from textmill.schemas.files.store import exists, read, write_file
from textmill.schemas.format.metadata import Inputs
from textmill.schemas.typed_json import from_json, parse_json, pause_collector

BLOCK_BYTES = 16 << 20
# --document -> its meaning, for plans and summaries.
DOCUMENTS = {
    "file": "each text file is one document",
    "paragraph": "each paragraph of a text file is one document",
    "line": "each line of a text file is one document",
}
AUTO = "auto"
MOST_DOCUMENT_BYTES = (1 << 31) - (1 << 25)  # Arrow's parsers count in 32 bits
_AT_ONCE = 32  # files opened at once for planning
_LONG_BYTES = 256 << 20  # a block of this size takes one worker half a minute or more
_UNEVEN = 1.5  # a block this many times a worker's share is worth a warning
CLUSTER_WORKERS = 16  # assumed number of workers if it is unknown
BLOCKS = "blocks.json"  # in the staging folder
_WORTH_A_PIECE = 1 << 20  # bytes of text; smaller files are joined


@dataclass(frozen=True)
class Source:
    """The inputs, and how to read documents from them.

    Attributes:
      patterns: files, directories, corpora, globs (`**` matches folders), `@list.txt` with such, or
        `hf:PATH_OR_NAME[:config][:split]`; local or in an object store.
      document: unit of a text file that becomes a document: file, paragraph (separated by blank
        lines) or line. With labels only file, and the name of its folder is the label.
      roles: fields to read; the first is a string, which no document lacks.
      input_format: format of all files; auto to decide by their names.
      max_document_bytes: maximum bytes of a document, or of its line; longer ones are rejected.
      block_bytes: bytes of a block; changes speed and memory, never the documents.
      quoting: whether quotes enclose fields of CSV and TSV files: none, double, or auto, which is
        double in CSV and none in TSV.
      follow_links: whether to follow links out of directories.
      extraction: what text is taken from web pages; NO_PAGES to reject WARC and HTML files.
      field: of a command's options, which holds the patterns; errors name it.
    """

    patterns: tuple[str, ...]
    document: str = "file"
    roles: tuple[Role, ...] = TEXT_ROLES
    input_format: str = AUTO
    max_document_bytes: int = MAX_DOCUMENT_BYTES
    block_bytes: int = BLOCK_BYTES
    quoting: str = AUTO
    follow_links: bool = False
    extraction: Extraction = NO_PAGES
    field: str = "input"

    def __post_init__(self) -> None:
        """Rejects impossible values."""
        if not self.patterns:
            raise UsageError(f"no input: give {flag('input', 'PATH')}, once or more often")
        if "" in self.patterns:
            raise UsageError(f"{flag(self.field)} is empty: give a path")
        if self.has_labels and self.document != "file":
            raise UsageError(
                f"{flag('document', self.document)}: a text file's folder is the label of one "
                "document, the file: leave the flag out"
            )
        if self.input_format not in (AUTO, *FORMATS):
            formats = ", ".join((AUTO, *FORMATS))
            raise UsageError(f"{flag('input_format', self.input_format)}: give one of {formats}")
        for role in self.roles:
            if not role.field:
                raise UsageError(
                    f"{flag(f'{role.name}_field')} is empty: name the field with the {role.name}"
                )
        if not 1 <= self.max_document_bytes <= MOST_DOCUMENT_BYTES:
            raise UsageError(
                f"{flag('max_document_bytes', self.max_document_bytes)}: give 1 to "
                f"{MOST_DOCUMENT_BYTES}"
            )

    @property
    def has_labels(self) -> bool:
        """Whether the task reads labels."""
        return any(role.values.is_folder for role in self.roles)


@dataclass(frozen=True)
class Block:
    """Parts that are read together, for one split; "" if the hash of each document decides."""

    index: int
    parts: tuple[Part, ...]
    split: str = ""

    def of_split(self, split: str) -> "Block":
        """The block in a split."""
        parts = (replace(part, also_hashed=f"{split} {part.also_hashed}") for part in self.parts)
        return replace(self, split=split, parts=tuple(parts)) if split else self

    @property
    def bytes(self) -> int:
        """Bytes of all parts, as they are stored."""
        return sum(part.bytes for part in self.parts)

    @property
    def place(self) -> str:
        """Its position, for messages: `block 3 (a.jsonl, bytes 0 to 16,777,216)`."""
        first, more = self.parts[0], len(self.parts) - 1
        files = f" and {more:,} more parts" if more else ""
        return f"block {self.index} ({first.path}, bytes {first.start:,} to {first.stop:,}{files})"


@dataclass(frozen=True)
class _Plan:
    """The content of BLOCKS."""

    blocks: tuple[Block, ...]


def plan_blocks(source: Source) -> list[Block]:
    """Cuts the inputs into blocks: cuts large files into ranges, and joins small files.

    Raises:
      DataError: the inputs are missing or empty, or a file has a different format than its name.
      UsageError: a file lacks a field of a role, or has it with a different type.
    """
    blocks: list[Block] = []
    pending: list[Part] = []
    pending_bytes = 0
    for part in _parts(source):
        if pending and pending_bytes + part.bytes > source.block_bytes:
            blocks.append(Block(len(blocks), tuple(pending)))
            pending, pending_bytes = [], 0
        pending.append(part)
        pending_bytes += part.bytes
    return [*blocks, Block(len(blocks), tuple(pending))]


def _files(source: Source) -> list[tuple[Part, huggingface.StoredSplit | None]]:
    """Each input file as one part, and its split if it is a file of a Hugging Face dataset."""
    files: dict[str, tuple[Part, huggingface.StoredSplit | None]] = {}
    names: dict[tuple[str, str], str] = {}
    again = ""
    finder = FileFinder(
        label_folders=source.has_labels,
        web_pages=source.extraction != NO_PAGES,
        any_name=source.input_format != AUTO,
        follow_links=source.follow_links,
        field=source.field,
    )
    for argument in source.patterns:
        for pattern in expand_lists((argument,), source.field):
            split = None
            hashes: dict[str, str] = {}
            if pattern.startswith(HUGGING_FACE):
                split = huggingface.find_split(
                    pattern.removeprefix(HUGGING_FACE),
                    follow_links=source.follow_links,
                    field=source.field,
                )
                matched = [(path, os.path.getsize(path)) for path in split.paths]
            elif corpus := find_corpus(pattern, follow_links=source.follow_links):
                check_roles(corpus, source.roles)
                matched = [(corpus.path(file), file.bytes) for file in corpus.documents]
                hashes = {corpus.path(file): file.sha256 for file in corpus.documents}
            else:
                matched = finder.find(pattern)
            for path, size in matched:
                key = identity(path, label_folders=source.has_labels)
                name = names.setdefault(key, path)
                again = again or (path if name in files else "")
                sha256 = hashes.get(path, "")
                files[name] = Part(name, size, 0, size, input=argument, sha256=sha256), split
    if again:
        say(
            f"note: reading {again} once, though {flag(source.field)} names it more than once",
            sys.stderr,
        )
    if note := finder.note():
        say(f"note: {note}", sys.stderr)
    if not sum(part.size for part, _ in files.values()):
        raise DataError(
            f"all {len(files):,} input files are empty, such as {min(files)}: give files with text"
            if len(files) > 1
            else f"{min(files)} is empty: give a file with text"
        )
    return [files[path] for path in sorted(files)]


def _parts(source: Source) -> list[Part]:
    def plan(file: tuple[Part, huggingface.StoredSplit | None]) -> list[Part]:
        whole, split = file
        part = replace(whole, format="arrow" if split else _format_of(whole, source))
        row = FORMATS[part.format]
        if row.is_web and source.extraction == NO_PAGES:
            raise UsageError(
                f"{part.path} holds web pages ({row.name}); extract their text with "
                f"{command_in_message('pipelines.build_corpus')} {flag('input', 'PAGES')} "
                f"{flag('output', 'CORPUS')}, and give {flag('input', 'CORPUS')} here"
            )
        if row.is_web:
            check_packages(source.extraction.html)
        if row.labels == "folder" and source.has_labels:
            part = replace(part, also_hashed=row.module.folder_label(part.path))
        if not row.packs and is_compressed(part.path):
            raise UsageError(
                f"{part.path}: {part.format} has its own compression, so {extension(part.path)} "
                "cannot be read; unpack the file"
            )
        return list(_plan_file(part, source, split)) if part.size or not row.packs else []

    files = _files(source)
    # Opening a file in an object store is mostly waiting for a request, so many are opened at once.
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        parts = [part for parts_of_file in threads.map(plan, files) for part in parts_of_file]
    doubts = [part for part in parts if part.doubt]
    if doubts:
        more = f" (and {number_of(len(doubts) - 1, 'more file')} like it)" * (len(doubts) > 1)
        say(Caution(f"{doubts[0].path}{more}: {doubts[0].doubt}").line, sys.stderr)
    if not parts:
        raise DataError(f"the inputs have no rows; the first file is {files[0][0].path}")
    return parts


def _format_of(part: Part, source: Source) -> str:
    if source.input_format != AUTO:
        return source.input_format
    *peeking, last = formats_of(inner_extension(part.path)) or [OTHER]
    for row in peeking if part.size else ():
        with open_file(part.path) as raw:
            if row.module.peek(raw, part):
                return row.name
    return last.name


def _plan_file(part: Part, source: Source, split: huggingface.StoredSplit | None) -> Iterable[Part]:
    row = FORMATS[part.format]
    if row.cuts == "looked":
        with open_file(part.path) as raw:
            check_size(raw, part.path, part.size)
            return row.module.plan(raw, part, source, split.classes if split else None)
    row.module.check_roles(source.roles, part.path)
    if row.cuts == "nowhere" or is_compressed(part.path):
        return [part]
    if row.name == "text" and source.document == "file":
        if not source.has_labels and part.size > source.max_document_bytes + len(BOM):
            raise too_large(part.path, part.size, source.max_document_bytes)
        return [part]
    step = source.block_bytes
    return (
        replace(part, start=start, stop=min(start + step, part.size))
        for start in range(0, part.size, step)
    )


def describe_documents(blocks: Iterable[Block], source: Source) -> str:
    """The unit of documents, for plans and summaries; "" if no input is a text file.

    Raises:
      UsageError: the unit was given, but no input is a text file.
    """
    parts = [part for block in blocks for part in block.parts]
    if not any(part.format == "text" for part in parts):
        if source.document != "file":
            raise UsageError(
                f"{flag('document', source.document)} divides text files, but no input is one, "
                f"such as {parts[0].path} ({parts[0].format}): leave the flag out, or give "
                f"{flag('document', 'file')}"
            )
        return ""
    how = "its folder is the label" if source.has_labels else flag("document", source.document)
    return f"{DOCUMENTS[source.document]} ({how})"


def read_block(block: Block, source: Source) -> Iterator[Documents]:
    """Reads a block's documents, in pieces of about `source.block_bytes` of text.

    The last piece of each part has the digest of the part's stored bytes.

    Raises:
      DataError: a file cannot be opened, is damaged, or has a different size than when the run was
        planned.
    """
    enough = min(_WORTH_A_PIECE, source.block_bytes)
    pending: list[Documents] = []
    pending_bytes = 0
    for part in block.parts:
        with open_file(part.path) as raw:
            check_size(raw, part.path, part.size)
            row = FORMATS[part.format]
            for documents in row.module.read(raw, part, source):
                rejects = tuple(replace(reject, unit=row.place) for reject in documents.rejects)
                files = ((part.path, row.place, len(documents.columns)),)
                pending.append(replace(documents, rejects=rejects, files=files))
                pending_bytes += documents.source_bytes
                if pending_bytes >= enough:
                    yield join_documents(pending)
                    pending, pending_bytes = [], 0
            check_size(raw, part.path, part.size)
    if pending:
        yield join_documents(pending)


def hash_inputs(blocks: list[Block]) -> Inputs:
    """Reads all inputs and hashes them as a run over the same blocks would."""

    def digest_of(part: Part) -> Digest:
        with open_file(part.path) as raw:
            return part_digest(raw, part)

    parts = [part for block in blocks for part in block.parts]
    with ThreadPoolExecutor() as threads:
        return file_digests(threads.map(digest_of, parts))


def write_blocks(staging: str, blocks: list[Block]) -> None:
    """Writes blocks into the staging folder.

    They do not fit into a Beam job: 100,000 blocks are 25 MB, and runners accept a few.
    """
    content = json.dumps({"blocks": blocks}, default=vars, separators=(",", ":"))
    write_file(os.path.join(staging, BLOCKS), content.encode())


def has_blocks(staging: str) -> bool:
    """Whether the staging folder has blocks."""
    return exists(os.path.join(staging, BLOCKS))


def read_blocks(staging: str) -> list[Block]:
    """Reads blocks from the staging folder.

    Raises:
      DataError: this machine cannot read the staging folder, or the file was edited.
    """
    path = os.path.join(staging, BLOCKS)
    try:
        with pause_collector():
            return list(from_json(_Plan, parse_json(read(path), path), path).blocks)
    except FileNotFoundError as error:
        raise DataError(
            f"{path} does not exist on a worker: put {flag('output')} on a file system that all "
            "workers share"
        ) from error


def uneven(blocks: Sequence[Block], workers: int) -> Caution | None:
    """The warning about a block so large that other workers wait for its reader; None if none is.

    Plain text, JSON Lines and CSV are cut anywhere, Arrow between batches. A compressed file cannot
    be cut, nor a row group of Parquet.
    """
    largest = max(blocks, key=lambda block: block.bytes)
    total = sum(block.bytes for block in blocks)
    if largest.bytes < _LONG_BYTES or largest.bytes * workers < _UNEVEN * total:
        return None
    part = max(largest.parts, key=lambda part: part.bytes)
    remedy = "unpack it if it is compressed, or split it into several files"
    if part.format == "parquet":
        remedy = "write it with smaller row groups"
    return Caution(
        f"one of {workers} workers reads {largest.bytes / total:.0%} of the input while the others "
        f"wait: {part.path} ({decimal(part.bytes)}) is read as a whole; {remedy}"
    )
