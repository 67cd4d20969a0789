"""Damaged files are one clear error, or give their documents; none vanishes silently.

Every format and compression is flipped at every byte, cut at every length, and given bytes after
its end. Compressed files have several members, as pbzip2, pixz, zstd -T and `cat` write them.
"""

import bz2
import csv
import gzip
import io
import json
import lzma
import resource
import sys
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from tests.tools.read_sources import read_all, rejects_of, texts_of
from textmill.pipelines.readers.compression import _zstd_window
from textmill.pipelines.readers.html_text import Extraction
from textmill.schemas.errors import DataError, UsageError

TEXTS = [f"document {n}: {'blåbær ' * n}" for n in range(6)]
PACK = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
    ".lz4": lambda data: pa.compress(data, "lz4", asbytes=True),  # without checksums
}


def in_csv(texts, first):
    file = io.StringIO()
    rows = csv.writer(file, lineterminator="\n")
    rows.writerows([["text"]] * first + [[text] for text in texts])
    return file.getvalue().encode()


def warc(texts, first):
    return b"".join(
        b"WARC/1.0\r\nWARC-Type: conversion\r\nContent-Type: text/plain\r\n"
        b"Content-Length: %d\r\n\r\n%b\r\n\r\n" % (len(text), text)
        for text in map(str.encode, texts)
    )


# Some of the documents, as the bytes of a part of a file.
LINES = {
    "txt": lambda texts, first: "".join(f"{text}\n" for text in texts).encode(),
    "jsonl": lambda texts, first: "".join(
        json.dumps({"text": text}) + "\n" for text in texts
    ).encode(),
    "csv": in_csv,
    "warc": warc,
}
COMPRESSED = [*(("jsonl", pack) for pack in PACK if pack), ("warc", ".gz")]
COMPRESSED += [
    pytest.param(form, pack, marks=pytest.mark.slow)
    for form in ("txt", "csv", "warc")
    for pack in ([".zst"] if form == "warc" else filter(None, PACK))
]


def column():
    return pa.table({"text": pa.array(TEXTS)})


def parquet():
    sink = pa.BufferOutputStream()
    pq.write_table(column(), sink, row_group_size=2, compression="zstd", write_page_checksum=True)
    return sink.getvalue().to_pybytes()


def arrow():
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, column().schema) as writer:
        for batch in column().to_batches(max_chunksize=2):
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def members(form, pack):
    """Three members of two documents each, as bytes."""
    return [PACK[pack](LINES[form](TEXTS[at : at + 2], at == 0)) for at in range(0, len(TEXTS), 2)]


def read(path):
    """The documents and the number of those that were rejected, or the error's kind."""
    try:
        pieces = read_all(path, document="line", extraction=Extraction("all"))
    except (DataError, UsageError) as error:
        assert "\n" not in str(error) and path.name in str(error)
        return None
    return texts_of(pieces), len(rejects_of(pieces))


def outcomes(path, whole, damaged):
    """How often damage is reported, harmless, or changes what is read."""
    found = Counter()
    for content in damaged:
        path.write_bytes(content)
        texts = read(path)
        same = texts is not None and texts[0] == TEXTS
        found["error" if texts is None else "same" if same else "other"] += 1
    path.write_bytes(whole)
    assert read(path) == (TEXTS, 0)
    return found


def flips(whole):
    for at in range(len(whole)):
        for bit in (at % 8, (at + 4) % 8):
            yield whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]


@pytest.mark.parametrize(("form", "pack"), COMPRESSED)
def test_a_compressed_file_gives_its_documents_or_an_error(tmp_path, form, pack):
    parts = members(form, pack)
    whole, path = b"".join(parts), tmp_path / f"x.{form}{pack}"
    with_empty_members = PACK[pack](b"").join([b"", *parts, b""])
    assert outcomes(path, whole, [with_empty_members]).keys() == {"same"}
    if pack != ".lz4":
        assert outcomes(path, whole, flips(whole))["other"] == 0
    # Where a file of whole members is cut between two, the file cannot tell.
    between = {len(parts[0]), len(parts[0] + parts[1])}
    cuts = (whole[:size] for size in range(1, len(whole)) if size not in between)
    assert outcomes(path, whole, cuts).keys() == {"error"}
    garbage = [b"x", b"garbage after the end", whole[:5], parts[0][:-1], b"\n"]
    assert outcomes(path, whole, [whole + more for more in garbage]).keys() == {"error"}


def long_window(content):
    """A zstd frame whose header has a window of 2 GiB, as from `zstd --long=31`."""
    frame = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    packed = bytearray(frame.compress(content) + frame.flush())
    packed[5] = 21 << 3
    assert zstandard.get_frame_parameters(packed).window_size == 1 << 31
    return bytes(packed)


REMEDY = (
    r"x\.jsonl\.zst has a long window, .* install the package zstandard, or .* zstd -d --long=31"
)


def test_zstd_with_a_long_window_gives_its_documents_or_an_error(tmp_path, monkeypatch):
    parts = [long_window(LINES["jsonl"](TEXTS[at : at + 2], False)) for at in range(0, 6, 2)]
    whole, path = b"".join(parts), tmp_path / "x.jsonl.zst"
    short = PACK[".zst"](b"")
    assert outcomes(path, whole, [whole + short, long_window(b"\n") + whole]).keys() == {"same"}
    assert outcomes(path, whole, list(flips(whole))[::11])["other"] == 0
    between = {len(parts[0]), len(parts[0] + parts[1])}
    cuts = [whole[:size] for size in range(1, len(whole), 3) if size not in between]
    assert outcomes(path, whole, cuts).keys() == {"error"}
    garbage = [b"x", b"garbage after the end", whole[:5], parts[0][:-1], b"\n"]
    assert outcomes(path, whole, [whole + more for more in garbage]).keys() == {"error"}
    path.write_bytes(short + whole)  # Arrow has begun to read the file
    with pytest.raises(DataError, match=REMEDY):
        read_all(path)
    path.write_bytes(whole)
    monkeypatch.setitem(sys.modules, "zstandard", None)  # not installed
    with pytest.raises(DataError, match=REMEDY):
        read_all(path)


@pytest.mark.parametrize("size", [0, 5, 300, 70_000, 1 << 20])
@pytest.mark.parametrize("with_size", [True, False])
def test_the_window_of_a_frame_is_read_from_its_header(size, with_size):
    packer = zstandard.ZstdCompressor(write_content_size=with_size)
    for frame in (packer.compress(b"a" * size), long_window(b"a" * size + b"b")):
        assert _zstd_window(frame) == zstandard.get_frame_parameters(frame).window_size
    assert _zstd_window(b"\x28\xb5\x2f\xfd\xe0" + (1 << 40).to_bytes(8, "little")) == 1 << 40
    assert _zstd_window(b"plain text") == _zstd_window(b"") == 0


@pytest.mark.parametrize("pack", [".bz2", ".zst"])
def test_a_damaged_file_keeps_no_memory(tmp_path, pack):
    path, whole = tmp_path / f"x.txt{pack}", bytearray(members("txt", pack)[0])
    whole[len(whole) // 2] ^= 16
    path.write_bytes(whole)
    requested = []
    for _ in range(40):
        assert read(path) is None
        with open("/proc/self/statm") as file:
            requested.append(int(file.read().split()[5]) * resource.getpagesize())
    assert requested[-1] - requested[9] < 20 * 16e6  # a read requests 16 MB


@pytest.mark.parametrize("pack", [".bz2", ".xz"])
def test_damage_in_the_middle_of_a_later_member_is_an_error(tmp_path, pack):
    """Members are larger than what is read at once; smaller ones are flipped everywhere above."""
    lines = [b"".join(b"%d %d\n" % (n, i * i) for i in range(48_000)) for n in range(5)]
    parts = [PACK[pack](line) for line in lines]
    path = tmp_path / f"x.txt{pack}"
    for which in range(1, 5):
        begin = sum(map(len, parts[:which]))
        for at in (begin, begin + 2, begin + 9, begin + len(parts[which]) // 2):
            whole = bytearray(b"".join(parts))
            whole[at] ^= 16
            path.write_bytes(whole)
            with pytest.raises(DataError, match=r"x\.txt.*truncated or damaged"):
                read_all(path, document="line")


def test_padding_of_xz_is_no_damage(tmp_path):
    path, parts = tmp_path / "x.txt.xz", members("txt", ".xz")
    path.write_bytes((b"\0" * 8).join(parts) + b"\0" * 4)
    assert read(path) == (TEXTS, 0)
    path.write_bytes(b"".join(parts) + b"\0" * 3)
    assert read(path) is None


@pytest.mark.slow
@pytest.mark.parametrize("form", [parquet, arrow])
def test_a_cut_table_is_an_error(tmp_path, form):
    """Cut anywhere. Values that a format has no checksum of may be changed: as in plain text."""
    whole, path = form(), tmp_path / f"x.{form.__name__}"
    cuts = (whole[:size] for size in range(1, len(whole)))
    assert outcomes(path, whole, cuts).keys() == {"error"}
    # Parquet's footer has no checksum, and pyarrow ends the process for some that are changed.
    footer = int.from_bytes(whole[-8:-4], "little") + 8 if form is parquet else 0
    for content in flips(whole[: len(whole) - footer]):
        path.write_bytes(content + whole[len(whole) - footer :])
        found = read(path)
        assert found is None or len(found[0]) + found[1] == len(TEXTS)
