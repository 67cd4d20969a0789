"""Inputs -> blocks -> documents. Blocks are planned in the main process and read in workers.

A block is the unit of reading: about 16 MiB of plain text, or one compressed file, which is then
streamed, or some row groups or record batches. A document belongs to the range it starts in, so any
cut of a file into ranges gives the same documents. Documents come out columnar, as Arrow arrays.
"""

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import BinaryIO, get_args

import pyarrow as pa

from pipelines.readers.documents import (
    MAX_DOCUMENT_BYTES,
    TEXT_ROLES,
    Documents,
    Role,
    text_documents,
)
from pipelines.readers.files import (
    ARROW,
    COMMA,
    HUGGING_FACE,
    JSON,
    PARQUET,
    TAB,
    check_size,
    expand_lists,
    find_files,
    open_file,
)
from pipelines.readers.formats import arrow_ipc, byte_ranges, delimited, huggingface, parquet, squad
from pipelines.readers.formats.byte_ranges import Parser
from pipelines.readers.formats.json_lines import json_documents
from pipelines.readers.stored import (
    Digest,
    InputFormat,
    Part,
    file_digests,
    inner_extension,
    is_compressed,
    part_digest,
)
from pipelines.storage.store import is_remote
from schemas.errors import DataError, UsageError
from schemas.sidecar import Inputs

BLOCK_BYTES = 16 << 20
DOCUMENTS = ("line", "paragraph", "file")
_BY_EXTENSION = {
    **dict.fromkeys(JSON, "jsonl"),  # .json is looked into: it may be SQuAD's
    **dict.fromkeys(COMMA, "csv"),
    **dict.fromkeys(TAB, "tsv"),
    **dict.fromkeys(PARQUET, "parquet"),
    **dict.fromkeys(ARROW, "arrow"),
}
_SELF_COMPRESSED = ("parquet", "arrow")  # in pages or buffers, never as a whole
_MOST_DOCUMENT_BYTES = (1 << 31) - (1 << 25)  # Arrow's parsers count in 32 bits
_WORTH_A_PIECE = 1 << 20  # bytes of text: smaller files are put together


@dataclass(frozen=True)
class Source:
    """What to read and what a document is.

    Attributes:
      patterns: files, directories, globs (`**` matches folders), `@list.txt` of such, or
        `hf:PATH_OR_NAME[:config][:split]`; local or of a store that Beam knows.
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
    input_format: InputFormat = "auto"
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
        if self.input_format not in get_args(InputFormat):
            formats = ", ".join(get_args(InputFormat))
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
        return any(role.kind == "label" for role in self.roles)

    @property
    def text_document(self) -> str:
        """What a document is in a text file."""
        return "file" if self.has_labels else self.document


@dataclass(frozen=True)
class Block:
    """Parts that are read together; for a given split, or for "": each document's hash decides."""

    index: int
    parts: tuple[Part, ...]
    split: str = ""

    @property
    def bytes(self) -> int:
        """Bytes on disk."""
        return sum(part.bytes for part in self.parts)

    @property
    def place(self) -> str:
        """Which one it is, in words: `block 3 (a.jsonl, bytes 0 to 16,777,216)`."""
        first, more = self.parts[0], len(self.parts) - 1
        files = f" and {more:,} more parts" if more else ""
        return f"block {self.index} ({first.path}, bytes {first.start:,} to {first.stop:,}{files})"


def plan_blocks(source: Source) -> list[Block]:
    """Cuts the inputs into blocks: large files into ranges, small files put together.

    Raises:
      DataError: nothing is there, all is empty, or a file is not what its name says.
      UsageError: a file lacks a field that a role names, or has it in another type.
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


def match_files(source: Source) -> list[tuple[str, int]]:
    """All input files with their sizes, sorted by path; a file named twice counts once.

    Raises:
      DataError: a pattern matches nothing, or all files are empty.
    """
    return [(part.path, part.size) for part, _ in _files(source)]


def _files(source: Source) -> list[tuple[Part, huggingface.StoredSplit | None]]:
    """Each input file as one part, and the split that it is of if `datasets` named it."""
    files: dict[str, tuple[int, huggingface.StoredSplit | None]] = {}
    for pattern in expand_lists(source.patterns):
        if pattern.startswith(HUGGING_FACE):
            split = huggingface.find_split(pattern.removeprefix(HUGGING_FACE))
            files |= {path: (os.path.getsize(path), split) for path in split.paths}
        else:
            found = find_files(pattern, label_folders=source.has_labels)
            files |= {path: (size, None) for path, size in found}
    if not sum(size for size, _ in files.values()):
        raise DataError(
            f"all {len(files)} input files are empty, the first is {min(files)}: there is no text"
        )
    return [(Part(path, size, 0, size), split) for path, (size, split) in sorted(files.items())]


def _parts(source: Source) -> list[Part]:
    parts: list[Part] = []
    for whole, split in _files(source):
        part = replace(whole, format="arrow" if split else _format_of(whole, source))
        if part.format in _SELF_COMPRESSED and is_compressed(part.path):
            raise UsageError(
                f"{part.path}: {part.format} is compressed within itself, not as a whole; unpack it"
            )
        if part.size or part.format in _SELF_COMPRESSED:
            parts += _plan_file(part, source, split)
    if not parts:
        raise DataError(f"the inputs hold no rows; the first is {_files(source)[0][0].path}")
    return parts


def _format_of(part: Part, source: Source) -> str:
    if source.input_format != "auto":
        return source.input_format
    extension = inner_extension(part.path)
    if extension == ".json" and part.size:
        with open_file(part.path) as raw:
            return "squad" if squad.peek(raw, part) else "jsonl"
    return _BY_EXTENSION.get(extension, "text")


def _plan_file(part: Part, source: Source, split: huggingface.StoredSplit | None) -> Iterable[Part]:
    roles, block_bytes = source.roles, source.block_bytes
    if part.format == "squad":
        squad.check_roles(roles, part.path)
        return [part]
    if part.format in ("text", "jsonl"):
        if part.format == "text":
            _check_text(part.path, roles)
        whole = is_compressed(part.path) or (
            part.format == "text" and source.text_document == "file"
        )
        step = part.size if whole else block_bytes
        return (
            replace(part, start=start, stop=min(start + step, part.size))
            for start in range(0, part.size, step)
        )
    with open_file(part.path) as raw:
        check_size(raw, part.path, part.size)
        if part.format == "parquet":
            return parquet.plan(raw, part, roles)
        if part.format == "arrow":
            return arrow_ipc.plan(raw, part, roles, block_bytes, split.classes if split else None)
        # To be cut, a file must be read: not where that takes decompression or a network.
        cut = not is_compressed(part.path) and not is_remote(part.path)
        return delimited.plan(raw, part, roles, block_bytes, cut=cut)


def _check_text(path: str, roles: tuple[Role, ...]) -> None:
    for role in roles[1:]:
        if role.kind != "label" and not role.optional:
            raise UsageError(
                f"{path} is a text file, which has no field {role.field!r} for the {role.name}: "
                "give JSON Lines, CSV, Parquet or another format with fields; if it is of one, say "
                "which with --input_format"
            )


def read_block(block: Block, source: Source) -> Iterator[Documents]:
    """Reads a block's documents, in pieces of about `source.block_bytes` of text.

    The last piece of each part carries the digest of the part's bytes as they are stored.

    Raises:
      DataError: a file cannot be opened, is truncated or damaged, or is not of the size that it had
        when the run was planned.
    """
    enough = min(_WORTH_A_PIECE, source.block_bytes)
    pending: list[Documents] = []
    pending_bytes = 0
    for part in block.parts:
        with open_file(part.path) as raw:
            check_size(raw, part.path, part.size)
            for documents in _read_part(raw, part, source):
                pending.append(replace(documents, path=part.path))
                pending_bytes += documents.source_bytes
                if pending_bytes >= enough:
                    yield _joined(pending)
                    pending, pending_bytes = [], 0
            check_size(raw, part.path, part.size)
    if pending:
        yield _joined(pending)


def _read_part(raw: BinaryIO, part: Part, source: Source) -> Iterator[Documents]:
    roles, chunk_bytes, longest = source.roles, source.block_bytes, source.max_document_bytes
    if part.format == "text":
        kind = source.text_document
        label = folder_label(part.path)

        def parse_text(data: bytes | memoryview, offset: int) -> Documents:
            return text_documents(
                data, kind, part.path, offset, roles=roles, label=label, longest=longest
            )

        parser = Parser(kind, parse_text, roles, longest)
        return byte_ranges.read_bytes(raw, part, parser, chunk_bytes)
    if part.format == "jsonl":

        def parse_json(data: bytes | memoryview, offset: int) -> Documents:
            return json_documents(bytes(data), roles, part.path, offset, longest=longest)

        parser = Parser("line", parse_json, roles, longest)
        return byte_ranges.read_bytes(raw, part, parser, chunk_bytes)
    read = {
        "csv": delimited.read,
        "tsv": delimited.read,
        "parquet": parquet.read,
        "arrow": arrow_ipc.read,
        "squad": squad.read,
    }[part.format]
    return read(raw, part, roles, chunk_bytes, longest)


def folder_label(path: str) -> str:
    """What a text file's documents are labelled: `a/pos/1.txt` -> `pos`."""
    return os.path.basename(os.path.dirname(os.path.abspath(path)))


def _joined(pieces: list[Documents]) -> Documents:
    """Pieces as one, so that many small files cost no more than a large one."""
    if len(pieces) == 1:
        return pieces[0]
    filled = [piece.columns for piece in pieces if len(piece.columns)] or [pieces[0].columns]
    others = {piece.path for piece in pieces} - {pieces[0].path}
    return Documents(
        filled[0] if len(filled) == 1 else pa.concat_batches(filled),
        sum(piece.empty for piece in pieces),
        tuple(reject for piece in pieces for reject in piece.rejects),
        sum(piece.source_bytes for piece in pieces),
        sum(piece.stored_bytes for piece in pieces),
        tuple(digest for piece in pieces for digest in piece.digests),
        pieces[0].path + (f" or one of {len(others)} files after it" if others else ""),
    )


def hash_inputs(blocks: list[Block]) -> Inputs:
    """Reads all inputs and hashes them as a run over the same blocks would."""

    def digest_of(part: Part) -> Digest:
        with open_file(part.path) as raw:
            return part_digest(raw, part)

    parts = [part for block in blocks for part in block.parts]
    with ThreadPoolExecutor() as threads:
        return file_digests(threads.map(digest_of, parts))
