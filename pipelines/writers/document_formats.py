"""The file formats of other projects for whole documents, and readers of a shard's documents.

A format is a class here or in a file of its own, and its row in `_FORMATS`. A row of the same name
in `schemas.format.records.DOCUMENT_FORMATS` has the endings of its files, by which paths and
contents are keyed.
"""

import os
import struct
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from textmill.pipelines.rows.ragged import Ragged
from textmill.pipelines.writers.document_codec import Contents, DocumentCodec
from textmill.schemas.commands.entry import import_later
from textmill.schemas.errors import DataError, UsageError, flag
from textmill.schemas.format.features import token_dtype
from textmill.schemas.format.metadata import Schema
from textmill.schemas.format.records import DOCUMENT_FORMATS

_CHUNK_TOKENS = 1 << 20
_LLMC_MAGIC, _LLMC_VERSION = 20240520, 1
_LLMC_HEAD = 256 * 4  # bytes
_MEGATRON_MAGIC = b"MMIDIDX\0\0"
_MEGATRON_HEAD = struct.Struct("<9sQBQQ")
_MEGATRON_TYPES = {"uint16": ("<u2", 8), "uint32": ("<i4", 4)}  # ids are below 2**24


class Npy(DocumentCodec):
    """Ids without a header, for numpy.memmap and ai2-olmo-core; numpy.load cannot open them."""

    def refuse(self, schema: Schema) -> None:
        """Raises UsageError if no token separates documents."""
        _refuse_without_edges("npy", schema)

    def encode(self, documents: Ragged, schema: Schema) -> Contents:
        """The ids, little-endian."""
        return {"ids.bin": iter((documents.values.astype(self._dtype(schema), copy=False),))}

    def decode(self, paths: Mapping[str, str], schema: Schema) -> Ragged:
        """Token ids, cut where documents end or begin."""
        return _map_documents(paths["ids.bin"], self._dtype(schema), schema)

    @staticmethod
    def _dtype(schema: Schema) -> str:
        return np.dtype(token_dtype(schema.vocab_size)).newbyteorder("<").str


class Llmc(DocumentCodec):
    """llm.c's files of GPT-2 ids (dev/data/data_common.py), which modded-nanogpt reads too.

    256 int32, little-endian: 20240520, version 1, number of ids, zeros; then the ids, uint16.
    """

    def refuse(self, schema: Schema) -> None:
        """Raises UsageError for ids of more than 16 bits, and if no token separates documents."""
        if token_dtype(schema.vocab_size) != "uint16":
            raise UsageError(
                f"{flag('file_format', 'llmc')} holds ids of 16 bits, and the tokenizer has "
                f"{schema.vocab_size:,} ids: use another format, such as npy"
            )
        _refuse_without_edges("llmc", schema)

    def encode(self, documents: Ragged, schema: Schema) -> Contents:
        """The head and the ids."""
        count = len(documents.values)
        if count >= 1 << 31:
            raise DataError(
                f"a shard of {count:,} tokens is too large for llmc: set a higher "
                f"{flag('num_shards')}"
            )
        return {"llmc.bin": iter((self._head(count), documents.values.astype("<u2", copy=False)))}

    @staticmethod
    def _head(count: int) -> np.ndarray:
        head = np.zeros(256, "<i4")
        head[:3] = _LLMC_MAGIC, _LLMC_VERSION, count
        return head

    def decode(self, paths: Mapping[str, str], schema: Schema) -> Ragged:
        """Token ids, cut where documents end or begin."""
        path = paths["llmc.bin"]
        with open(path, "rb") as file:
            head = file.read(_LLMC_HEAD)
        if head != self._head(max(0, os.path.getsize(path) - _LLMC_HEAD) // 2).tobytes():
            raise DataError(f"{path} does not begin with the header of an llm.c file of its size")
        return _map_documents(path, "<u2", schema, head=_LLMC_HEAD)


class Megatron(DocumentCodec):
    """Megatron-LM's IndexedDataset: ids in .bin, and the lengths and offsets of documents in .idx.

    The index (megatron/core/datasets/indexed_dataset.py), little-endian: nine bytes of magic,
    uint64 version 1, uint8 type of the ids (8: uint16, 4: int32), uint64 sequences, uint64
    documents + 1; then int32 tokens of each sequence, int64 byte offset of each in .bin, int64
    number of each document's first sequence, and of one more. A document is one sequence here.
    """

    holds_ends = True

    def encode(self, documents: Ragged, schema: Schema) -> Contents:
        """The ids and their index."""
        dtype, code = _MEGATRON_TYPES[token_dtype(schema.vocab_size)]
        return {
            "megatron.bin": iter((documents.values.astype(dtype, copy=False),)),
            "megatron.idx": iter((self._index(documents.offsets, np.dtype(dtype).itemsize, code),)),
        }

    @staticmethod
    def _index(offsets: np.ndarray, width: int, code: int) -> bytes:
        """The index of consecutive documents."""
        count = len(offsets) - 1
        return b"".join(
            (
                _MEGATRON_HEAD.pack(_MEGATRON_MAGIC, 1, code, count, count + 1),
                np.diff(offsets).astype("<i4").tobytes(),
                (offsets[:-1] * width).astype("<i8").tobytes(),
                np.arange(count + 1, dtype="<i8").tobytes(),
            )
        )

    def decode(self, paths: Mapping[str, str], schema: Schema) -> Ragged:
        """Token ids of the documents; the index must equal the one that `encode` writes."""
        dtype, code = _MEGATRON_TYPES[token_dtype(schema.vocab_size)]
        width, path = np.dtype(dtype).itemsize, paths["megatron.idx"]
        with open(path, "rb") as file:
            head = file.read(_MEGATRON_HEAD.size)
            count = _MEGATRON_HEAD.unpack(head)[3] if len(head) == _MEGATRON_HEAD.size else 0
            if os.path.getsize(path) != _MEGATRON_HEAD.size + 12 * count + 8 * (count + 1):
                raise DataError(
                    f"{path} is not an index of {count:,} documents: it was cut or changed"
                )
            index = head + file.read()
        lengths = np.frombuffer(index, "<i4", count, _MEGATRON_HEAD.size).astype(np.int64)
        offsets = np.append(0, np.cumsum(lengths))
        if lengths.min(initial=0) < 0 or index != self._index(offsets, width, code):
            raise DataError(f"{path} is not as Textmill writes it: a length or an offset differs")
        if os.path.getsize(paths["megatron.bin"]) != offsets[-1] * width:
            raise DataError(
                f"{paths['megatron.bin']} does not hold the {offsets[-1]:,} ids of its index"
            )
        if not offsets[-1]:  # an empty file cannot be mapped
            return Ragged(np.zeros(0, dtype), offsets)
        return Ragged(np.memmap(paths["megatron.bin"], dtype, "r"), offsets)


def _refuse_without_edges(name: str, schema: Schema) -> None:
    """Raises UsageError if no special token separates documents."""
    if not schema.parameters["prefix_ids"] and not schema.parameters["suffix_ids"]:
        raise UsageError(
            f"{flag('eos', False)}: no token would separate documents in the format {name}; leave "
            f"the flag out, or set {flag('bos', True)}"
        )


def _map_documents(path: str, dtype: str, schema: Schema, *, head: int = 0) -> Ragged:
    """Maps the ids of a file and cuts them after each eos, or before each bos if there is no eos.

    A text that contains such a token itself is cut there too. `head` bytes precede the ids.

    Raises:
      DataError: the file does not hold a whole number of ids.
    """
    size = os.path.getsize(path) - head
    if size % np.dtype(dtype).itemsize:
        raise DataError(f"{path} has {size:,} bytes of ids of {dtype}: it was cut or changed")
    ids = np.memmap(path, dtype, "r", head) if size else np.zeros(0, dtype)
    suffix = schema.parameters["suffix_ids"]
    [edge] = suffix or schema.parameters["prefix_ids"]
    cuts = np.flatnonzero(ids == edge) + bool(suffix)
    return Ragged(ids, np.unique(np.concatenate(([0], cuts, [len(ids)]))))


_FORMATS: dict[str, Callable[[], DocumentCodec]] = {
    "megatron": Megatron,
    # The library of the format is imported with it.
    "array_record": import_later(
        "textmill.pipelines.writers.array_record_documents:ArrayRecordDocuments"
    ),
    "npy": Npy,
    "llmc": Llmc,
}


def document_codec(name: str) -> DocumentCodec:
    """The codec of a row of `schemas.format.records.DOCUMENT_FORMATS`."""
    return _FORMATS[name]()


def refuse_formats(schema: Schema) -> None:
    """Raises UsageError if a dataset's ids or settings do not fit one of its formats."""
    for name in schema.file_formats:
        document_codec(name).refuse(schema)


def open_documents(schema: Schema, path: str, locate: Callable[[str], str]) -> Ragged:
    """Token ids of the documents or pieces of one shard.

    Args:
      schema: of the dataset.
      path: of the shard's first file in a format, relative to the dataset's directory.
      locate: maps the path of a file in the dataset to its path on this machine.

    Raises:
      DataError: the files are damaged, or of a different dataset.
    """
    shard, ending = path.split(".", 1)
    name = next(name for name, row in DOCUMENT_FORMATS.items() if ending == row.endings[0])
    paths = {each: locate(f"{shard}.{each}") for each in DOCUMENT_FORMATS[name].endings}
    return document_codec(name).decode(paths, schema)


def document_rows(documents: Ragged, rows: range) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """Yields chunks of rows, padded to the longest: the number of the first row, the columns.

    [5, 6, 7], [0, 1, 3] -> tokens [[5 0] [6 7]], segment_ids [[1 0] [1 1]]

    Args:
      documents: of a shard.
      rows: numbers of the rows; its step is the largest chunk, and long rows make it smaller.

    Raises:
      DataError: the shard has fewer documents.
    """
    lengths = documents.lengths
    if rows.stop > len(lengths):
        raise DataError(
            f"a shard holds {len(lengths):,} documents, fewer than MANIFEST.json lists: copy or "
            "build the dataset again"
        )
    start = rows.start
    while start < rows.stop:
        stop = min(start + rows.step, rows.stop)
        longest = np.maximum.accumulate(lengths[start:stop])
        room = longest * np.arange(1, len(longest) + 1) <= _CHUNK_TOKENS
        stop = start + max(1, int(np.count_nonzero(room)))
        used = np.arange(longest[stop - start - 1]) < lengths[start:stop, None]
        tokens = np.zeros(used.shape, documents.values.dtype)
        tokens[used] = documents.values[documents.offsets[start] : documents.offsets[stop]]
        yield start, {"tokens": tokens, "segment_ids": used.astype(np.uint8)}
        start = stop
