"""What is not as it should be: what is said, the exit code, and that the rest arrives whole.

A case is a command as a user types it. Where a run goes on, the documents that its rows decode to
are compared with those that are left, and the refused ones are counted by reason.
"""

import bz2
import contextlib
import gzip
import io
import json
import lzma
import os
import socket
import sys
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from tokenizers import Tokenizer, models, pre_tokenizers

from pipelines import build_shards, export, inspect_shards, train_tokenizer, verify
from schemas.commands.entry import run_entry
from schemas.features import unmask
from schemas.metadata import read_set
from schemas.records import open_rows
from tests.tools.places import ROOT
from tests.tools.shard_factory import replace_file, write_mlm_set

GOOD = ("The first good document.", "A second one: blåbær, 漢字.", "And the third, the last.")
Content = bytes | Callable[[Path], object]  # of a file, or what makes it at its path
COMMANDS = {
    "build_shards": build_shards.main,
    "train_tokenizer": train_tokenizer.main,
    "verify": verify.main,
    "inspect_shards": inspect_shards.main,
    "export": export.main,
}


@dataclass(frozen=True)
class Case:
    """A command, and what becomes of it.

    Attributes:
      files: made in an empty directory; "{d}" in flags and words is that directory.
      flags: of the command; the usual ones are added where they are not among them.
      code: exit code.
      said: what must be in the message.
      refused: documents by reason.
      kept: all documents that must be in the rows; GOOD if the run goes on and nothing is said.
      command: a key of COMMANDS.
      before: done after the files are made.
    """

    files: Mapping[str, Content] = field(default_factory=dict)
    flags: Sequence[str] = ()
    code: int = 0
    said: Sequence[str] = ()
    refused: Mapping[str, int] = field(default_factory=dict)
    kept: Sequence[str] = GOOD
    command: str = "build_shards"
    before: Callable[[Path], object] = lambda directory: None


def lines(*documents: str | bytes, end: bytes = b"\n") -> bytes:
    return b"".join((d.encode() if isinstance(d, str) else d) + end for d in documents)


def objects(*records: Any) -> bytes:
    return lines(*(r if isinstance(r, bytes) else json.dumps(r) for r in records))


def texts(*documents: str) -> list[dict[str, str]]:
    return [{"text": document} for document in documents]


ONE, *REST = GOOD
A, B, C = texts(*GOOD)


def text_case(data: bytes, name: str = "in.txt", **rest: Any) -> Case:
    return Case({name: data}, **rest)


def json_case(*records: Any, **rest: Any) -> Case:
    return Case({"in.jsonl": objects(*records)}, **rest)


TEXT = {
    "NUL bytes are text": text_case(lines("a\0b", *GOOD), kept=("a\0b", *GOOD)),
    "a BOM is none": text_case(b"\xef\xbb\xbf" + lines(*GOOD)),
    "a BOM within is text": text_case(lines(ONE, "\ufeffb"), kept=(ONE, "\ufeffb")),
    "a BOM and nothing else, beside a file": Case(
        {"in1.txt": b"\xef\xbb\xbf", "in2.txt": lines(*GOOD)}
    ),
    "CRLF": text_case(lines(*GOOD, end=b"\r\n")),
    "CR alone is text": text_case(lines(*GOOD, end=b"\r"), kept=("\r".join(GOOD),)),
    "no newline at the end": text_case("\n".join(GOOD).encode()),
    "Latin-1 lines": text_case(
        lines(*GOOD, "blåbær".encode("latin-1"), "sør".encode("latin-1")), refused={"not_utf8": 2}
    ),
    "bytes that never are UTF-8": text_case(
        lines(ONE, b"\xc0\x80", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\xf0\x9f\x98", *REST),
        refused={"not_utf8": 4},
    ),
    "UTF-16, as PowerShell writes it": text_case(
        "\n".join(GOOD).encode("utf-16"), code=1, said=["in.txt", "UTF-16", "iconv"]
    ),
    "UTF-16, big-endian": text_case(
        b"\xfe\xff" + "\n".join(GOOD).encode("utf-16-be"),
        code=1,
        said=["in.txt", "UTF-16", "iconv"],
    ),
    "UTF-32": text_case("\n".join(GOOD).encode("utf-32"), code=1, said=["in.txt", "UTF-32"]),
    "UTF-16 as JSON Lines": Case(
        {"in.jsonl": objects(A, B, C).decode().encode("utf-16")},
        code=1,
        said=["in.jsonl", "UTF-16"],
    ),
    "UTF-16 as CSV": Case(
        {"in.csv": ("text\n" + "\n".join(GOOD)).encode("utf-16")}, code=1, said=["in.csv", "UTF-16"]
    ),
    "an empty file beside others": Case({"in1.txt": b"", "in2.txt": lines(*GOOD)}),
    "only empty files": Case({"in1.txt": b"", "in2.txt": b""}, code=1, said=["empty", "in1.txt"]),
    "only blank lines": text_case(b"\n\r\n\n", code=1, said=["no document", "blank"]),
    "not one good document": text_case(
        lines(b"\xff", b"\xfe9"), code=1, said=["no document", "2 not_utf8"]
    ),
    "too many bad ones": text_case(
        lines(ONE, *[b"\xff"] * 5),
        flags=["--max_rejects=4"],
        code=1,
        said=["5 documents", "--max_rejects=4", "in.txt", "not_utf8", "byte 25"],
    ),
    "a line beyond the limit": text_case(
        lines(ONE, "x" * 100, *REST), flags=["--max_document_bytes=50"], refused={"too_long": 1}
    ),
    "a paragraph beyond the limit": text_case(
        lines(ONE, "", "x" * 30, "y" * 30, "", REST[0], "", REST[1]),
        flags=["--max_document_bytes=50", "--document=paragraph"],
        refused={"too_long": 1},
    ),
    "a file beyond the limit": Case(
        {"in1.txt": b"x" * 51, **{f"in2{i}.txt": t.encode() for i, t in enumerate(GOOD)}},
        flags=["--max_document_bytes=50", "--document=file"],
        code=1,
        said=["in1.txt (51 bytes) is too large for one document", "--document=line"],
    ),
}
JSON = {
    "broken lines": json_case(
        A, b"{", b'{"text": "a"', b"nonsense", B, C, refused={"broken_json": 3}
    ),
    "the last line is cut": json_case(A, B, C, b'{"text": "cu', refused={"broken_json": 1}),
    "lines that are no objects": json_case(
        A, [1], "a string", 3, None, True, [A], B, C, refused={"not_an_object": 6}
    ),
    "lone surrogates": json_case(
        A, b'{"text": "\\ud800"}', b'{"text": "a\\udfffb"}', B, C, refused={"lone_surrogate": 2}
    ),
    "a surrogate pair": json_case(A, b'{"text": "\\ud83d\\ude42"}', kept=(ONE, "🙂")),
    "escaped NUL": json_case(A, b'{"text": "a\\u0000b"}', kept=(ONE, "a\0b")),
    "a lone surrogate in another field": json_case(
        A, b'{"x": "\\ud800", "text": "b"}', kept=(ONE, "b")
    ),
    "no such field": json_case(A, {"body": "x"}, {}, B, C, refused={"missing_field": 2}),
    "null": json_case(A, {"text": None}, B, C, refused={"missing_field": 1}),
    "values of other types": json_case(
        A,
        *({"text": v} for v in (1, 1.5, True, ["a"], {"a": "b"})),
        B,
        C,
        refused={"not_a_string": 5},
    ),
    "empty texts": json_case(A, {"text": ""}, {"text": ""}, B, C, refused={"empty": 2}),
    "blank lines": json_case(A, b"", b"  ", b"\t\r", B, C),
    "a BOM": Case({"in.jsonl": b"\xef\xbb\xbf" + objects(A, B, C)}),
    "CR-only lines": Case(
        {"in.jsonl": objects(A, B).replace(b"\n", b"\r") + b"\n" + objects(C)},
        kept=GOOD[2:],
        refused={"broken_json": 1},
    ),
    "invalid UTF-8 in a value": json_case(A, b'{"text": "\xff"}', B, C, refused={"not_utf8": 1}),
    "invalid UTF-8 in a key": json_case(
        A, b'{"\xff": 1, "text": "x"}', B, C, refused={"not_utf8": 1}
    ),
    "invalid UTF-8 in another field": json_case(
        A, b'{"x": "\xff", "text": "x"}', B, C, refused={"not_utf8": 1}
    ),
    "nesting without end": json_case(
        A,
        b'{"text": "x", "y": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        kept=(ONE, "x"),
    ),
    "nested without end beside a broken line": json_case(
        A,
        b'{"y": ' + b"[" * 200_000 + b"]" * 200_000 + b', "text": "x"}',
        b"{",
        kept=(ONE, "x"),
        refused={"broken_json": 1},
    ),
    "nested a little": json_case(A, {"text": "x", "y": [[[[1]]]]}, kept=(ONE, "x")),
    "huge numbers": json_case(
        A, b'{"n": 1e999, "m": -' + b"9" * 5000 + b', "text": "x"}', kept=(ONE, "x")
    ),
    "a huge number beside a broken line": json_case(
        A,
        b'{"n": ' + b"9" * 5000 + b', "text": "x"}',
        b"{",
        kept=(ONE, "x"),
        refused={"broken_json": 1},
    ),
    "NaN": json_case(A, b'{"n": NaN, "text": "x"}', kept=(ONE, "x")),
    "duplicate keys": json_case(A, b'{"text": "no", "text": "x"}', kept=(ONE, "x")),
    "two objects in a line": json_case(
        A, b'{"text": "x"}{"text": "y"}', B, C, refused={"broken_json": 1}
    ),
    "an object over two lines": json_case(
        A, b'{"text":', b'"x"}', B, C, refused={"broken_json": 2}
    ),
    "an array": Case(
        {"in.json": json.dumps([A, B]).encode()}, code=1, said=["in.json", "array", "jq"]
    ),
    "an array called jsonl": Case(
        {"in.jsonl": json.dumps([A, B]).encode()}, code=1, said=["no document", "not_an_object"]
    ),
    "a field within nothing": json_case(
        {"a": {"text": ONE}},
        {"a": 1},
        {"a": {}},
        {"a.text": REST[0]},
        {"a": {"text": REST[1]}},
        flags=["--text_field=a.text"],
        refused={"missing_field": 2},
    ),
    "a line beyond the limit, JSON": json_case(
        A, {"text": "x" * 100}, B, C, flags=["--max_document_bytes=60"], refused={"too_long": 1}
    ),
    "no text in any": json_case(
        {"body": "x"},
        code=1,
        said=["no document", "1 missing_field", "no field 'text'; its fields: body"],
    ),
}


def at(name: str, make: Callable[[Path], object]) -> Callable[[Path], object]:
    """Makes what `name` is in the case's directory."""
    return lambda directory: make(directory / name)


def tar(path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        entry = tarfile.TarInfo("inner.txt")
        entry.size = len(lines(*GOOD))
        archive.addfile(entry, io.BytesIO(lines(*GOOD)))


def zipped(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("inner.txt", lines(*GOOD))


def listening(path: Path) -> None:
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as server:
        directory = os.open(path.parent, os.O_RDONLY)  # names of sockets are short
        server.bind(f"/proc/self/fd/{directory}/{path.name}")
        os.close(directory)


PLACES = {
    "no such file": Case(
        flags=["--input={d}/nowhere.txt"], code=1, said=["no file matches", "nowhere.txt"]
    ),
    "a glob that matches nothing": Case(
        flags=["--input={d}/*.txt"], code=1, said=["no file matches"]
    ),
    "one glob of two matches nothing": Case(
        {"in.txt": lines(*GOOD)},
        ["--input={d}/in.txt", "--input={d}/*.csv"],
        1,
        ["no file matches", "*.csv"],
    ),
    "an empty folder": Case(
        flags=["--input={d}/folder"],
        code=1,
        said=["folder", "without files to read"],
        before=at("folder", os.mkdir),
    ),
    "a folder of other things": Case(
        {"in/a.png": b"\x89PNG"}, ["--input={d}/in"], 1, ["without files to read", ".jsonl"]
    ),
    "a glob of folders": Case({"in/a.txt": b"x"}, ["--input={d}/i*"], 1, ["folders only"]),
    "a FIFO": Case(
        flags=["--input={d}/in.txt"],
        code=1,
        said=["in.txt", "FIFO"],
        before=at("in.txt", os.mkfifo),
    ),
    "a socket": Case(
        flags=["--input={d}/in.txt"],
        code=1,
        said=["in.txt", "socket"],
        before=at("in.txt", listening),
    ),
    "a device": Case(flags=["--input=/dev/zero"], code=1, said=["/dev/zero", "device"]),
    "a FIFO beside a file": Case(
        {"in1.txt": lines(*GOOD)}, before=at("in2.txt", os.mkfifo), code=1, said=["in2.txt", "FIFO"]
    ),
    "a link in a circle": Case(
        flags=["--input={d}/in.txt"],
        code=1,
        said=["in.txt", "link"],
        before=lambda d: (d / "in.txt").symlink_to(d / "in.txt"),
    ),
    "a link to nothing": Case(
        flags=["--input={d}/in.txt"],
        code=1,
        said=["in.txt", "link"],
        before=lambda d: (d / "in.txt").symlink_to(d / "nowhere"),
    ),
    "a folder that holds itself": Case(
        {"in/a.txt": lines(*GOOD)},
        ["--input={d}/in"],
        before=lambda d: (d / "in" / "loop").symlink_to(d / "in"),
    ),
    "a file and a link to it": Case(
        {"in1.txt": lines(*GOOD)}, before=lambda d: (d / "in2.txt").symlink_to(d / "in1.txt")
    ),
    "names with spaces, newlines, quotes, brackets, other letters": Case(
        {
            "in a\nb.txt": lines(GOOD[0]),
            "in 'q\"[x]*{a,b}?$(id).txt": lines(GOOD[1]),
            "inå漢🙂\u2028-.txt": lines(GOOD[2], b"\xff"),
        },
        refused={"not_utf8": 1},
    ),
    "a name that is not UTF-8": Case(
        before=lambda d: Path(os.fsdecode(os.fsencode(d) + b"/in\xff.txt")).write_bytes(lines(ONE)),
        code=1,
        said=["not UTF-8", "rename"],
    ),
    "an output whose name is not UTF-8": Case(
        {"in.txt": lines(*GOOD)}, ["--output={d}/s\udcff t"], code=2, said=["--output", "UTF-8"]
    ),
    "a name with NUL": Case({"list.txt": b"a\0b"}, ["--input=@{d}/list.txt"], 1, ["no list"]),
    "a name of 5,000 characters": Case(
        flags=["--input={d}/" + "x" * 5000], code=1, said=["no file matches"]
    ),
    "a list of a file that is not there": Case(
        {"list.txt": b"nowhere.txt\n"}, ["--input=@{d}/list.txt"], 1, ["nowhere.txt"]
    ),
    "a list that is not there": Case(
        flags=["--input=@{d}/list.txt"], code=1, said=["list.txt", "cannot open"]
    ),
    "a list of nothing": Case(
        {"list.txt": b"# none\n\n"}, ["--input=@{d}/list.txt"], 1, ["names no file"]
    ),
    "a list of lists": Case(
        {"list.txt": b"@list.txt\n"}, ["--input=@{d}/list.txt"], 1, ["another list"]
    ),
    "a list that is none": Case(
        {"list.txt": b"\x89PNG\0\xff"}, ["--input=@{d}/list.txt"], 1, ["not UTF-8"]
    ),
    "no dataset there": Case(flags=["--input=hf:{d}/nowhere"], code=1, said=["hf:", "nowhere"]),
    "no dataset in the folder": Case({"in/a.bin": b"x"}, ["--input=hf:{d}/in"], 1, ["{d}/in"]),
    "a file grows": Case(
        {
            "in.txt": lines(*GOOD),
            "grow_in.py": b"import os\n"
            b"with open(os.path.dirname(__file__) + '/in.txt', 'a') as file: file.write('more')\n"
            b"def keep(document): pass\n",
        },
        ["--filter=grow_in:keep", "--input={d}/in.txt"],
        1,
        ["in.txt", "bytes when the run began", "run again"],
    ),
    "a file shrinks": Case(
        {
            "in.txt": lines(*GOOD),
            "shrink_in.py": b"import os\n"
            b"os.truncate(os.path.dirname(__file__) + '/in.txt', 9)\n"
            b"def keep(document): pass\n",
        },
        ["--filter=shrink_in:keep", "--input={d}/in.txt"],
        1,
        ["in.txt", "has 9 now", "run again"],
    ),
    "a file vanishes": Case(
        {
            "in.txt": lines(*GOOD),
            "vanish_in.py": b"import os\n"
            b"os.remove(os.path.dirname(__file__) + '/in.txt')\n"
            b"def keep(document): pass\n",
        },
        ["--filter=vanish_in:keep", "--input={d}/in.txt"],
        1,
        ["cannot open", "in.txt"],
    ),
}
ZST = zstandard.ZstdCompressor()
PACK = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": ZST.compress}
LONG = lines(*GOOD, *(os.urandom(40).hex() for _ in range(999)))
PACKED = {
    **{
        f"{end} cut short": text_case(
            pack(LONG)[:-99],
            f"in.txt{end}",
            code=1,
            said=[f"in.txt{end}", "truncated", "get the file again"],
        )
        for end, pack in PACK.items()
    },
    **{
        f"{end} that is not": text_case(
            lines(*GOOD), f"in.txt{end}", code=1, said=[f"in.txt{end}", "is not"]
        )
        for end, pack in PACK.items()
    },
    **{
        f"two {end} in one file": text_case(pack(lines(ONE)) + pack(lines(*REST)), f"in.txt{end}")
        for end, pack in PACK.items()
    },
    "a bit of gzip flipped": text_case(
        gzip.compress(LONG)[:5000] + b"\xa5" + gzip.compress(LONG)[5001:],
        "in.txt.gz",
        code=1,
        said=["in.txt.gz", "damaged"],
    ),
    "gzip of nothing, beside a file": Case(
        {"in1.txt.gz": gzip.compress(b""), "in2.txt": lines(*GOOD)}
    ),
    "an empty .gz beside a file": Case({"in1.txt.gz": b"", "in2.txt": lines(*GOOD)}),
    "gzip of gzip": text_case(
        gzip.compress(gzip.compress(lines(*GOOD))),
        "in.txt.gz",
        code=1,
        said=["in.txt.gz", "gzip", "unpack it once"],
    ),
    "gzip called text": text_case(
        gzip.compress(lines(*GOOD)), code=1, said=["in.txt", "gzip", ".gz"]
    ),
    "zstd called JSON Lines": Case(
        {"in.jsonl": ZST.compress(objects(A, B))}, code=1, said=["in.jsonl", "zstd", ".zst"]
    ),
    "zip": Case({"in.zip": zipped}, code=1, said=["in.zip", "zip"]),
    "tar": Case({"in.tar": tar}, code=1, said=["in.tar", "tar"]),
    "tar.gz": Case(
        {"in.tar.gz": lambda path: (tar(path), path.write_bytes(gzip.compress(path.read_bytes())))},
        code=1,
        said=["in.tar.gz", "tar"],
    ),
    "Parquet called text": Case(
        {"in.txt": lambda path: pq.write_table(pa.table({"text": GOOD}), path)},
        code=1,
        said=["in.txt", "Parquet"],
    ),
    "PDF called text": text_case(b"%PDF-1.7\n%\xe2\xe3\n1 0 obj\n", code=1, said=["in.txt", "PDF"]),
    "a Parquet file in gzip": Case(
        {"in.parquet.gz": gzip.compress(b"PAR1")}, code=2, said=["its own compression"]
    ),
}


def csv_case(data: str | bytes, **rest: Any) -> Case:
    data = data if isinstance(data, bytes) else data.encode()
    return Case({"in.csv": data}, **rest)


ROWS = "".join(f'"{text}"\n' for text in GOOD)
CSV = {
    "ragged rows": csv_case(
        f'text,n\n"{ONE}",1\na\nb,1,2\n' + "".join(f'"{t}",1\n' for t in REST),
        refused={"ragged_row": 2},
    ),
    "a quote that is never closed": csv_case(
        f'text\n{ROWS}"no end\nx\ny\n', code=1, said=["in.csv", "quote", "record 3", "never closed"]
    ),
    "a quote in the header is never closed": csv_case(
        '"text\na\n', code=1, said=["in.csv", "quote"]
    ),
    "no such column": csv_case(f"body\n{ROWS}", code=2, said=["in.csv", "'text'", "body"]),
    "semicolons": csv_case("text;n\na;1\n", code=2, said=["in.csv", "'text'", "text;n"]),
    "two columns of the name": csv_case("text,text\na,b\n", code=2, said=["2 columns are 'text'"]),
    "a header and no more": csv_case("text\n", code=1, said=["no document"]),
    "no header": csv_case("\n\n", code=1, said=["no header row"]),
    "a header that is not UTF-8": csv_case(b"t\xff\na\n", code=1, said=["header", "UTF-8"]),
    "values that are not UTF-8": csv_case(b"text\n\xff\n" + ROWS.encode(), refused={"not_utf8": 1}),
    "NUL in CSV": csv_case(f"text\na\0b\n{ROWS}", kept=("a\0b", *GOOD)),
    "CSV with returns alone": csv_case(f"text\n{ROWS}".replace("\n", "\r")),
    "CSV with a BOM and CRLF": csv_case("\ufeff" + f"text\n{ROWS}".replace("\n", "\r\n")),
    "blank rows and empty values": csv_case(f'text\n\n{ROWS}""\n\n', refused={"empty": 1}),
    "a newline in quotes": csv_case(f'text\n"a\nb"\n{ROWS}', kept=("a\nb", *GOOD)),
    "a record beyond the limit": csv_case(
        "text,n\n" + "".join(f'"{t}",1\n' for t in GOOD) + f"x,{'9' * 99}\n",
        flags=["--max_document_bytes=60"],
        refused={"too_long": 1},
    ),
    "TSV called CSV": csv_case("text\tn\na\t1\n", code=2, said=["'text'"]),
}


def parquet_case(
    table: pa.Table | None = None, change: Callable[[bytes], bytes] | None = None, **rest: Any
) -> Case:
    """A table as Parquet, and what is done to its bytes."""

    def make(path: Path) -> None:
        given = pa.table({"text": GOOD}) if table is None else table
        pq.write_table(
            given, path, write_page_checksum=True, compression="zstd", use_dictionary=False
        )
        if change:
            path.write_bytes(change(path.read_bytes()))

    return Case({"in.parquet": make}, **rest)


def flip(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :]


TABLES = {
    "Parquet with a page damaged": parquet_case(
        pa.table({"text": [os.urandom(50).hex() for _ in range(500)]}),
        lambda data: flip(data, 9000),
        code=1,
        said=["in.parquet", "row group 0", "damaged"],
    ),
    "Parquet cut short": parquet_case(
        change=lambda data: data[:-9], code=1, said=["in.parquet", "no complete Parquet file"]
    ),
    "Parquet without its end": parquet_case(
        change=lambda data: data[: len(data) // 2], code=1, said=["no complete Parquet file"]
    ),
    "Parquet whose footer is damaged": parquet_case(
        change=lambda data: flip(flip(data, -60), -50), code=1, said=["in.parquet"]
    ),
    "text called Parquet": Case(
        {"in.parquet": lines(*GOOD)}, code=1, said=["no complete Parquet file", "--input_format"]
    ),
    "an empty file called Parquet": Case(
        {"in.parquet": b"", "in.txt": lines(*GOOD)}, code=1, said=["in.parquet"]
    ),
    "Parquet without rows": parquet_case(
        pa.table({"text": pa.array([], pa.string())}), code=1, said=["no rows", "in.parquet"]
    ),
    "Parquet without rows beside others": Case(
        {
            "in.txt": lines(*GOOD),
            "in.parquet": lambda p: pq.write_table(
                pa.table({"text": pa.array([], pa.string())}), p
            ),
        }
    ),
    "no such column, Parquet": parquet_case(
        pa.table({"a": [1], "b": [2]}), code=2, said=["in.parquet", "'text'", "a, b"]
    ),
    "a column of numbers": parquet_case(
        pa.table({"text": [1, 2]}), code=2, said=["--text_field=text", "int64"]
    ),
    "a nested column": parquet_case(
        pa.table({"text": [{"a": "x"}]}), code=2, said=["--text_field=text", "struct"]
    ),
    "a field of a nested column": parquet_case(
        pa.table({"a": [{"text": t} for t in GOOD]}), flags=["--text_field=a.text"]
    ),
    "no such field of a nested column": parquet_case(
        pa.table({"a": [{"x": "y"}]}), flags=["--text_field=a.text"], code=2, said=["'a.text'"]
    ),
    "lists": parquet_case(
        pa.table({"text": [["a"], ["b"]]}), code=2, said=["--text_field=text", "list"]
    ),
    "nulls and empty ones": parquet_case(
        pa.table({"text": [None, "", *GOOD]}), refused={"missing_field": 1, "empty": 1}
    ),
    "bytes that are no text": parquet_case(
        pa.table({"text": pa.array([t.encode() for t in GOOD] + [b"\xff"], pa.binary())}),
        refused={"not_utf8": 1},
    ),
    "strings that are not UTF-8": parquet_case(
        pa.table(
            {
                "text": pa.Array.from_buffers(
                    pa.string(),
                    2,
                    [None, pa.py_buffer(np.array([0, 1, 2], np.int32)), pa.py_buffer(b"a\xff")],
                )
            }
        ),
        kept=("a",),
        refused={"not_utf8": 1},
    ),
    "a long value": parquet_case(
        pa.table({"text": [*GOOD, "x" * 99]}),
        flags=["--max_document_bytes=50"],
        refused={"too_long": 1},
    ),
    "Arrow cut short": Case(
        {"in.arrow": lambda p: arrow_file(p, cut=100)}, code=1, said=["in.arrow"]
    ),
    "text called Arrow": Case({"in.arrow": lines(*GOOD)}, code=1, said=["in.arrow"]),
    "Arrow without batches": Case(
        {"in.arrow": lambda p: arrow_file(p, batches=0)}, code=1, said=["no document"]
    ),
}


def arrow_file(path: Path, *, cut: int = 0, batches: int = 1) -> None:
    batch = pa.record_batch({"text": pa.array(GOOD)})
    with pa.ipc.new_file(str(path), batch.schema) as writer:
        for _ in range(batches):
            writer.write_batch(batch)
    if cut:
        path.write_bytes(path.read_bytes()[:-cut])


def flags_case(*flags: str, said: Sequence[str], code: int = 2, **rest: Any) -> Case:
    return Case({"in.txt": lines(*GOOD)}, flags, code, said, **rest)


FLAGS = {
    "no tokenizer": Case({"in.txt": b"x"}, ["--tokenizer="], 2, ["--tokenizer"]),
    "no output": flags_case("--output=", said=["--output"]),
    "an empty input": flags_case("--input=", said=["--input is empty"]),
    "an unknown flag": flags_case(
        "--max_lenght=3", said=["--max_lenght", "did you mean --max_length"]
    ),
    "an argument without a flag": flags_case("corpus.txt", said=["corpus.txt"]),
    "a flag without its value": flags_case("--max_length", said=["max_length"]),
    "no number": flags_case("--max_length=many", said=["max_length", "many"]),
    "an unknown task": flags_case("--task=poetry", said=["--task=poetry", "mlm"]),
    "a flag of another task": flags_case("--task=clm", "--mask_rate=0.3", said=["mask_rate"]),
    "rows of no token": flags_case("--max_length=0", said=["--max_length=0"]),
    "rows of minus one token": flags_case("--max_length=-1", said=["--max_length=-1"]),
    "rows of the specials alone": flags_case(
        "--max_length=2", said=["--max_length=2", "no room for text"]
    ),
    "rows of one word": Case(
        {"in.txt": lines(*GOOD)}, ["--max_length=3", "--packing=none"], kept=()
    ),
    "rows too long": flags_case("--max_length=99999999", said=["--max_length=99999999"]),
    "the longest rows": Case({"in.txt": lines(*GOOD)}, ["--max_length=65535"]),
    "a seed below zero": flags_case("--seed=-1", said=["--seed=-1"]),
    "shares above one": flags_case("--splits=train:0.9,test:0.2", said=["add up to 1.1"]),
    "a share of nothing": flags_case("--splits=train:1,test:0", said=["share of test"]),
    "a share that is no number": flags_case("--splits=train:nan", said=["--splits=train:nan"]),
    "an endless share": flags_case("--splits=train:inf", said=["--splits=train:inf"]),
    "a name of a split that is a path": flags_case("--splits=../x:1", said=["../x"]),
    "no splits": flags_case("--splits=", said=["--splits="]),
    "a split that gets no document": Case(
        {"in.txt": lines(*GOOD)},
        ["--splits=train:0.999999,test:0.000001", "--num_shards=train:1,test:2"],
    ),
    "more shards than documents": Case({"in.txt": lines(*GOOD)}, ["--num_shards=50"]),
    "no shards": flags_case("--num_shards=0", said=["--num_shards=0"]),
    "too many shards": flags_case("--num_shards=100000", said=["--num_shards=100000"]),
    "shards of another split": flags_case("--num_shards=test:3", said=["names test", "train"]),
    "a mask rate of nan": flags_case(
        "--mask_rate=nan", "--static_masking", said=["--mask_rate=nan"]
    ),
    "a limit of no bytes": flags_case("--max_document_bytes=0", said=["--max_document_bytes=0"]),
    "a limit beyond Arrow's": flags_case(
        "--max_document_bytes=9999999999", said=["--max_document_bytes=9999999999"]
    ),
    "the wrong format": flags_case(
        "--input_format=parquet", said=["no complete Parquet file"], code=1
    ),
    "given splits and --input": flags_case(
        "--train_input={d}/in.txt", "--input={d}/in.txt", said=["give --input or these"]
    ),
    "an unknown runner": flags_case("--runner=NoSuchRunner", said=["NoSuchRunner"]),
    "a configuration that is not there": flags_case(
        "--config={d}/no.yaml", said=["no.yaml", "no such file"]
    ),
}
# Ten lists of ten of the list before: written out, 30 GB.
LAUGHS = (
    b"seed: ["
    + b", ".join(
        b"&x%d [%s]" % (i, b", ".join([b"*x%d" % (i - 1) if i else b"1"] * 10)) for i in range(10)
    )
    + b"]"
)
CONFIGS = {
    f"a configuration with {what}": Case(
        {"in.txt": lines(*GOOD), "c.yaml": content}, ["--config={d}/c.yaml"], 2, ["c.yaml", *said]
    )
    for what, content, said in (
        ("an unknown flag", b"max_lenght: 3", ["max_lenght", "max_length"]),
        ("no YAML", b"a: [", ["YAML"]),
        ("a list", b"- a", ["mapping"]),
        ("nothing", b"", ["nothing"]),
        ("a flag twice", b"seed: 1\nseed: 2", ["seed is given twice"]),
        ("no mapping but a word", b"seed", ["mapping"]),
        ("a key of keys", b"? {a: 1}\n: 2", ["YAML"]),
        ("an endless alias", b"seed: &a {b: *a}", ["seed is", "must be a value"]),
        ("depth without end", b"a: " + b"[" * 9999, ["YAML"]),
        ("a mapping for a number", b"seed: [[1]]", ["seed"]),
        ("Python in it", b"seed: !!python/object/apply:os.system [id]", ["YAML"]),
        ("bytes that are not UTF-8", b"\xff\xfe", ["YAML"]),
        ("a billion laughs", LAUGHS, ["more than 20 aliases"]),
        ("a date", b"seed: 2020-01-01", ["seed"]),
    )
}
FILTER = b"def f(document): %s\n"
FILTERS = {
    "a filter that raises": Case(
        {"in.txt": lines(*GOOD), "bad1.py": FILTER % b"return document['nothing']"},
        ["--filter=bad1:f"],
        1,
        ["--filter=bad1:f", "KeyError", "The first good"],
    ),
    "a filter that returns no reason": Case(
        {"in.txt": lines(*GOOD), "bad2.py": FILTER % b"return 7"},
        ["--filter=bad2:f"],
        1,
        ["returned 7", "reason"],
    ),
    "a filter that is not there": flags_case(
        "--filter=nowhere_at_all:f", said=["cannot be imported"]
    ),
    "a filter of another name": Case(
        {"in.txt": lines(*GOOD), "bad3.py": FILTER % b"pass"},
        ["--filter=bad3:g"],
        2,
        ["no function 'g'", "it has f"],
    ),
    "a filter that is no Python": Case(
        {"in.txt": lines(*GOOD), "bad4.py": b"def ("},
        ["--filter=bad4:f"],
        2,
        ["cannot be imported", "SyntaxError"],
    ),
    "a filter that exits": Case(
        {"in.txt": lines(*GOOD), "bad5.py": FILTER % b"raise SystemExit(0)"},
        ["--filter=bad5:f"],
        1,
        ["--filter=bad5:f", "SystemExit"],
    ),
    "a filter that drops all": Case(
        {"in.txt": lines(*GOOD), "bad6.py": FILTER % b"return 'no'"},
        ["--filter=bad6:f"],
        1,
        ["no document", "filter:no"],
    ),
    "a filter without a colon": flags_case("--filter=thing", said=["--filter=thing"]),
    "a flag that cleans text": flags_case(
        "--quality=c4", said=["--quality is a flag of build_corpus", "reads as --input"]
    ),
}


def tokenizer_case(
    content: bytes | Callable[[Path], object],
    *said: str,
    code: int = 1,
    flags: Sequence[str] = (),
    **rest: Any,
) -> Case:
    files = {"in.txt": lines(*GOOD), "tok/tokenizer.json": content}
    return Case(files, ["--tokenizer={d}/tok", *flags], code, said, **rest)


def changed_tokenizer(change: Callable[[dict], object]) -> Callable[[Path], object]:
    """A byte-level tokenizer of single bytes, whose JSON is changed."""

    def make(path: Path) -> None:
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate([*specials, *letters])}, []))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.add_special_tokens(specials)
        config = json.loads(tokenizer.to_str())
        change(config)
        path.write_text(json.dumps(config))

    return make


def saved(model: Any) -> Callable[[Path], object]:
    def make(path: Path) -> None:
        tokenizer = Tokenizer(model)
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        tokenizer.save(str(path))

    return make


REGEX = {"type": "Split", "pattern": {"Regex": "(a|aa)+$"}, "behavior": "Isolated", "invert": False}
TOKENIZERS = {
    "a tokenizer that is not there": flags_case(
        "--tokenizer={d}/none.json", said=["none.json", "no such file"]
    ),
    "a folder without a tokenizer": flags_case(
        "--tokenizer={d}", said=["neither tokenizer.json", "in.txt"]
    ),
    "an empty tokenizer.json": tokenizer_case(b"", "tokenizer.json", "train_tokenizer"),
    "a tokenizer.json that is no JSON": tokenizer_case(b"\x00\xff", "tokenizer.json"),
    "a tokenizer.json that is a list": tokenizer_case(b"[]", "tokenizer.json"),
    "a tokenizer.json of another program": tokenizer_case(b'{"vocab": {"a": 1}}', "tokenizer.json"),
    "a tokenizer.json that is cut": tokenizer_case(
        lambda p: (changed_tokenizer(lambda c: None)(p), p.write_bytes(p.read_bytes()[:999])),
        "tokenizer.json",
    ),
    "a tokenizer.json that is a folder": Case(
        {"in.txt": lines(*GOOD), "tok/tokenizer.json/x": b""},
        ["--tokenizer={d}/tok/tokenizer.json"],
        2,
        ["tokenizer.json"],
    ),
    "a vocabulary of nothing": tokenizer_case(
        changed_tokenizer(
            lambda c: c.update(model={"type": "BPE", "vocab": {}, "merges": []}, added_tokens=[])
        ),
        "its vocabulary is empty",
    ),
    "an id of four billion": tokenizer_case(
        changed_tokenizer(lambda c: c["model"]["vocab"].update(x=(1 << 32) - 1)), "4,294,967,295"
    ),
    "an id below zero": tokenizer_case(
        changed_tokenizer(lambda c: c["model"]["vocab"].update(x=-1)), "tokenizer.json"
    ),
    "a merge of unknown tokens": tokenizer_case(
        changed_tokenizer(lambda c: c["model"].update(merges=["no such"])), "tokenizer.json"
    ),
    "a regex that runs away": tokenizer_case(
        changed_tokenizer(lambda c: c.update(pre_tokenizer=REGEX)),
        "tokenizer",
        "pattern",
        before=lambda d: (d / "in.txt").write_bytes(lines(*GOOD, "a" * 5000 + "b")),
    ),
    "a regex that is none": tokenizer_case(
        changed_tokenizer(lambda c: c.update(pre_tokenizer={**REGEX, "pattern": {"Regex": "(["}})),
        "tokenizer.json",
    ),
    "BPE with dropout": tokenizer_case(
        changed_tokenizer(lambda c: c["model"].update(dropout=0.1)), "dropout", "null"
    ),
    "no mask token": tokenizer_case(
        changed_tokenizer(lambda c: (c["added_tokens"].pop(), c["model"]["vocab"].pop("<mask>"))),
        "no mask token",
        code=2,
        flags=["--static_masking"],
    ),
    "a role that is no token": Case(
        {
            "in.txt": lines(*GOOD),
            "tok/tokenizer.json": changed_tokenizer(lambda c: None),
            "tok/special_tokens_map.json": b'{"mask_token": "[M]"}',
        },
        ["--tokenizer={d}/tok"],
        1,
        ["'[M]'", "special_tokens_map.json"],
    ),
    "a broken map of roles": Case(
        {
            "in.txt": lines(*GOOD),
            "tok/tokenizer.json": changed_tokenizer(lambda c: None),
            "tok/special_tokens_map.json": b"{",
        },
        ["--tokenizer={d}/tok"],
        1,
        ["special_tokens_map.json", "not JSON"],
    ),
    "Unigram": tokenizer_case(
        saved(models.Unigram([("<unk>", 0.0), *((c, -1.0) for c in "abcdefgh")], unk_id=0)),
        code=0,
        flags=["--task=clm", "--no_bos", "--no_eos"],
        kept=(),
    ),
    "WordPiece": tokenizer_case(
        saved(models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]")),
        code=0,
        flags=["--task=clm", "--no_bos", "--no_eos"],
        kept=(),
    ),
    "WordLevel without an unknown token": tokenizer_case(
        saved(models.WordLevel({"a": 0}, unk_token="[UNK]")),
        "tokenizer",
        flags=["--task=clm", "--no_bos", "--no_eos"],
    ),
    "a vocabulary above 65,536": tokenizer_case(
        changed_tokenizer(
            lambda c: c["model"]["vocab"].update({f"w{i}": 300 + i for i in range(70_000)})
        ),
        code=0,
        flags=["--task=clm", "--no_bos", "--no_eos"],
        kept=(),
    ),
}


def made_set(directory: Path) -> None:
    write_mlm_set(directory / "other", train=4, validation=2)


OUTPUTS = {
    "a file": Case(
        {"in.txt": lines(*GOOD), "set": b"x"},
        code=2,
        said=["--output={d}/set", "is a file, or below a file"],
    ),
    "below a file": flags_case(
        "--output={d}/in.txt/set", said=["--output={d}/in.txt/set", "is a file, or below a file"]
    ),
    "no store": flags_case("--output=nowhere://bucket/set", said=["nowhere://bucket/set", "gs://"]),
    "the folder of the input": flags_case(
        "--output={d}", "--input={d}/in.txt", said=["--output={d}", "in.txt", "another"]
    ),
    "the input folder": Case(
        {"in/a.txt": lines(*GOOD)},
        ["--input={d}/in", "--output={d}/in"],
        2,
        ["--output={d}/in", "another"],
    ),
    "a finished set among the inputs": Case(
        {"in/a.txt": lines(*GOOD)},
        ["--input={d}/in"],
        before=lambda d: write_mlm_set(d / "in" / "done", train=4, validation=2),
    ),
    "below the input folder": Case(
        {"in/a.txt": lines(*GOOD)}, ["--input={d}/in", "--output={d}/in/set"]
    ),
    "a model, or a run of a trainer": Case(
        {"in.txt": lines(*GOOD), "run/config.json": b"{}"},
        ["--output={d}/run"],
        2,
        ["--output={d}/run already contains a model or a run of a trainer (config.json)"],
    ),
    "a tokenizer of transformers": Case(
        {"in.txt": lines(*GOOD), "hf/tokenizer_config.json": b"{}"},
        ["--output={d}/hf"],
        2,
        ["--output={d}/hf already contains a tokenizer (tokenizer_config.json)"],
    ),
    "a set of other settings": flags_case(
        "--output={d}/other", said=["other", "--overwrite"], before=made_set
    ),
    "a tokenizer": Case(
        {"in.txt": lines(*GOOD)},
        ["--output={d}/tok", "--tokenizer={d}/tok"],
        2,
        ["{d}/tok", "tokenizer"],
        before=lambda d: COMMANDS["train_tokenizer"](
            [f"--input={d}/in.txt", f"--output={d}/tok", "--vocab_size=270"]
        ),
    ),
    "/dev/full": flags_case("--output=/dev/full", said=["--output=/dev/full"]),
}
TRAIN = {
    "tokenizer of nothing": Case(
        {"in.txt": b""}, code=1, said=["empty"], command="train_tokenizer"
    ),
    "tokenizer of bad lines": Case(
        {"in.txt": b"\xff\n"}, code=1, said=["no document", "not_utf8"], command="train_tokenizer"
    ),
    "tokenizer of 5 tokens": flags_case(
        "--vocab_size=5", said=["--vocab_size=5", "261"], command="train_tokenizer"
    ),
    "tokenizer of a billion": flags_case(
        "--vocab_size=1000000000", said=["--vocab_size=1000000000"], command="train_tokenizer"
    ),
    "a special token twice": flags_case(
        "--special_tokens=<s>,<s>", said=["<s> is given twice"], command="train_tokenizer"
    ),
    "a histogram that is not there": Case(
        flags=["--from_histogram={d}/h.parquet"],
        code=2,
        said=["h.parquet"],
        command="train_tokenizer",
    ),
    "a histogram that is none": Case(
        {"h.parquet": b"PAR1"},
        ["--from_histogram={d}/h.parquet"],
        1,
        ["h.parquet"],
        command="train_tokenizer",
    ),
    "a histogram of other columns": Case(
        {"h.parquet": lambda p: pq.write_table(pa.table({"text": GOOD}), p)},
        ["--from_histogram={d}/h.parquet"],
        1,
        ["h.parquet"],
        command="train_tokenizer",
    ),
    "a tokenizer into a set": flags_case(
        "--output={d}/other",
        said=["{d}/other", "contains a dataset"],
        before=made_set,
        command="train_tokenizer",
    ),
    "UTF-16, for a tokenizer": Case(
        {"in.txt": "a\nb".encode("utf-16")}, code=1, said=["UTF-16"], command="train_tokenizer"
    ),
}
SHARD = "train-00000-of-00002.tfrecord"


def broken(name: str, change: Callable[[bytes], bytes | None]) -> Callable[[Path], None]:
    """A finished set with one file changed or, for None, removed."""

    def make(directory: Path) -> None:
        made_set(directory)
        path = directory / "other" / name
        content = change(path.read_bytes())
        path.unlink() if content is None else path.write_bytes(content)

    return make


def rewritten(name: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    """A finished set with one JSON file changed, and the manifest fitting to it."""

    def make(directory: Path) -> None:
        made_set(directory)
        values = json.loads((directory / "other" / name).read_bytes())
        replaced = change(values)
        content = json.dumps(values if replaced is None else replaced).encode()
        if name == "MANIFEST.json":
            (directory / "other" / name).write_bytes(content)
        else:
            replace_file(directory / "other", name, content)

    return make


def without(name: str) -> Callable[[Any], None]:
    def remove(values: Any) -> None:
        del values[name]

    return remove


def first_path(path: str) -> Callable[[Any], None]:
    return lambda manifest: manifest["files"][0].update(path=path)


SETS = {
    f"{command}: {what}": Case(
        flags=["{d}/other", *flags], before=make, code=code, said=said, command=command
    )
    for what, make, code, said in (
        ("no such folder", lambda d: None, 1, ["other", "MANIFEST.json"]),
        ("no manifest", broken("MANIFEST.json", lambda data: None), 1, ["other", "MANIFEST.json"]),
        (
            "the manifest is cut",
            broken("MANIFEST.json", lambda data: data[:99]),
            1,
            ["MANIFEST.json"],
        ),
        (
            "the manifest is a list",
            rewritten("MANIFEST.json", lambda values: []),
            1,
            ["MANIFEST.json"],
        ),
        (
            "the manifest is deep",
            broken("MANIFEST.json", lambda data: b"[" * 99_999),
            1,
            ["MANIFEST.json"],
        ),
        (
            "the manifest leads outside",
            rewritten("MANIFEST.json", first_path("../../etc/passwd")),
            1,
            ["../../etc/passwd"],
        ),
        (
            "the manifest leads to the root",
            rewritten("MANIFEST.json", first_path("/etc/passwd")),
            1,
            ["/etc/passwd"],
        ),
        ("a shard is missing", broken(SHARD, lambda data: None), 1, [SHARD]),
        ("a shard is cut", broken(SHARD, lambda data: data[:-5]), 1, [SHARD]),
        ("a shard is longer", broken(SHARD, lambda data: data + b"x"), 1, [SHARD]),
        ("a shard is empty", broken(SHARD, lambda data: b""), 1, [SHARD]),
        ("schema.json is cut", broken("schema.json", lambda data: data[:99]), 1, ["schema.json"]),
        (
            "schema.json is of another version",
            rewritten("schema.json", lambda s: s.update(format_version=999)),
            1,
            ["999"],
        ),
        (
            "schema.json lacks a field",
            rewritten("schema.json", without("max_length")),
            1,
            ["schema.json", "max_length"],
        ),
        (
            "schema.json has rows of a terabyte",
            rewritten("schema.json", lambda s: s.update(max_length=1 << 40)),
            1,
            ["schema.json"],
        ),
        ("stats.json is a number", rewritten("stats.json", lambda s: 7), 1, ["stats.json"]),
        (
            "tokenizer.json is another",
            broken("tokenizer.json", lambda data: data + b" "),
            1,
            ["tokenizer.json"],
        ),
    )
    for command, flags in (
        ("verify", ()),
        ("inspect_shards", ()),
        ("export", ("--to=jsonl", "--output={d}/export")),
    )
    if not (command != "verify" and what.startswith(("tokenizer.json",)))
}
SETS |= {
    "verify: a bit of a shard": Case(
        flags=["{d}/other"],
        before=broken(SHARD, lambda data: flip(data, 50)),
        code=1,
        said=[SHARD, "sha256"],
        command="verify",
    ),
    "export: a bit of a shard": Case(
        flags=["{d}/other", "--to=jsonl", "--output={d}/export"],
        before=broken(SHARD, lambda data: flip(data, 50)),
        code=1,
        said=[SHARD],
        command="export",
    ),
    "inspect: a row that is not there": Case(
        flags=["{d}/other", "--row=99999"],
        before=made_set,
        code=2,
        said=["99999"],
        command="inspect_shards",
    ),
    "inspect: a row below zero": Case(
        flags=["{d}/other", "--row=-1"],
        before=made_set,
        code=2,
        said=["--row=-1"],
        command="inspect_shards",
    ),
    "inspect: a split that is not there": Case(
        flags=["{d}/other", "--split=trian"],
        before=made_set,
        code=2,
        said=["trian", "train", "validation"],
        command="inspect_shards",
    ),
    "verify: nothing given": Case(code=2, said=["verify DATASET"], command="verify"),
    "verify: a file": Case({"in.txt": b"x"}, ["{d}/in.txt"], 1, ["in.txt"], command="verify"),
    "export: over a file": Case(
        {"export": b"x"},
        ["{d}/other", "--to=parquet", "--output={d}/export"],
        2,
        ["{d}/export"],
        command="export",
        before=made_set,
    ),
    "export: to nothing known": Case(
        flags=["{d}/other", "--to=xml", "--output={d}/export"],
        code=2,
        said=["xml"],
        command="export",
        before=made_set,
    ),
}
QUESTION = {"id": "q1", "question": "Who?", "context": "It was Bo."}
ANSWERED = {**QUESTION, "answers": [{"text": "Bo", "answer_start": 7}]}


def question_case(*records: Any, code: int = 0, flags: Sequence[str] = (), **rest: Any) -> Case:
    return Case({"in.jsonl": objects(*records)}, ["--task=qa", *flags], code, kept=(), **rest)


def squad_case(content: Any, *said: str, code: int = 1, **rest: Any) -> Case:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return Case({"in.json": data}, ["--task=qa"], code, said, **rest)


def answers(*found: Any, **changes: Any) -> dict[str, Any]:
    return {**QUESTION, "id": "q2", "answers": list(found), **changes}


HELD = ("--train_input={d}/in.jsonl", "--validation_input={d}/in.jsonl")
QUESTIONS = {
    "an answer that is not in its context": question_case(
        ANSWERED, answers({"text": "Al", "answer_start": 7}), refused={"answer_not_at_offset": 1}
    ),
    "no question that can be trained on, beside a file": Case(
        {
            "in1.jsonl": objects(answers({"text": "Al", "answer_start": 7})),
            "in2.jsonl": objects(ANSWERED),
        },
        ["--task=qa"],
        refused={"answer_not_at_offset": 1},
        kept=(),
    ),
    "an answer at another place": question_case(
        ANSWERED, answers({"text": "Bo", "answer_start": 3}), refused={"answer_not_at_offset": 1}
    ),
    "an answer beyond the context": question_case(
        ANSWERED,
        answers({"text": "Bo", "answer_start": 10**15}),
        refused={"answer_not_at_offset": 1},
    ),
    "an answer below zero": question_case(
        ANSWERED, answers({"text": "Bo", "answer_start": -5}), refused={"answer_not_at_offset": 1}
    ),
    "an empty answer": question_case(
        ANSWERED, answers({"text": "", "answer_start": 0}), refused={"empty_answer": 1}
    ),
    "an answer of spaces": question_case(
        ANSWERED, answers({"text": " ", "answer_start": 2}), refused={"empty_answer": 1}
    ),
    "an answer that is too long": question_case(
        ANSWERED,
        answers({"text": "word " * 50, "answer_start": 0}, context="word " * 60),
        flags=["--max_answer_length=8"],
        refused={"answer_too_long": 1},
    ),
    "an answer without text": question_case(
        ANSWERED, answers({"answer_start": 7}), refused={"not_answers": 1}
    ),
    "a place that is no number": question_case(
        ANSWERED, answers({"text": "Bo", "answer_start": "7"}), refused={"not_answers": 1}
    ),
    "a number for answers": question_case(
        ANSWERED, {**answers(), "answers": 3}, refused={"not_answers": 1}
    ),
    "no answers": question_case(ANSWERED, QUESTION, refused={"missing_field": 1}),
    "no context": question_case(
        ANSWERED, {"id": "q", "question": "Who?", "answers": []}, refused={"missing_field": 1}
    ),
    "an empty context": question_case(ANSWERED, answers(context=""), refused={"empty_context": 1}),
    "an empty question": question_case(
        ANSWERED, {**ANSWERED, "question": ""}, refused={"empty": 1}
    ),
    "the same question twice": question_case(ANSWERED, ANSWERED),
    "two questions of one id, in training": question_case(
        ANSWERED, {**ANSWERED, "question": "What?"}
    ),
    "two questions of one id, in evaluation": question_case(
        ANSWERED, {**ANSWERED, "question": "What?"}, flags=HELD, code=1, said=["'q1'", "its own id"]
    ),
    "an id of another type": question_case(ANSWERED, answers(id=[1]), refused={"not_an_id": 1}),
    "text for questions": Case(
        {"in.txt": b"x"}, ["--task=qa"], 2, ["in.txt", "no field 'context'"]
    ),
    "rows too short for a question": question_case(
        ANSWERED,
        flags=["--max_length=50"],
        code=2,
        said=["--max_length=50", "use --max_length=119 or more"],
    ),
    "a template without an answer": question_case(
        ANSWERED, flags=["--qa_template={{question}}"], code=2, said=["--qa_template"]
    ),
    "SQuAD cut short": squad_case(
        json.dumps({"data": [{"paragraphs": []}]}).encode()[:-3], "in.json", "complete JSON"
    ),
    "SQuAD without questions": squad_case(
        {"data": [{"paragraphs": [{"context": "x"}]}]}, "in.json", "'qas'", "data[0].paragraphs[0]"
    ),
    "SQuAD of nothing": squad_case({"data": [{"paragraphs": []}]}, "no document"),
    "SQuAD that nests without end": squad_case(
        b'{"data": [{"paragraphs": ' + b"[" * 99_999, "in.json", "not complete JSON"
    ),
    "lists where SQuAD has objects": squad_case(
        b'{"data": [' + b"[" * 99_999, "no document", "1 broken_json"
    ),
    "SQuAD that is not UTF-8": squad_case(b'{"data": [{"title": "\xff"}]}', "in.json", "UTF-8"),
}


def labelled(*labels: Any) -> bytes:
    return objects(*({"text": f"text {i}", "label": label} for i, label in enumerate(labels)))


def label_case(data: bytes, *flags: str, code: int = 0, **rest: Any) -> Case:
    return Case({"in.jsonl": data}, ["--task=classification", *flags], code, kept=(), **rest)


LABELS = {
    "a label outside the classes": label_case(
        labelled("pos", "neg", "odd"), "--classes=neg,pos", refused={"unknown_label": 1}
    ),
    "no label": label_case(
        labelled("pos", "neg", None) + objects(A), "--classes=neg,pos", refused={"missing_field": 2}
    ),
    "an empty label": label_case(labelled("pos", "neg", ""), refused={"missing_field": 1}),
    "a label of another type": label_case(
        labelled("1", 1, True, 1.5, [1]), "--classes=1,true", refused={"not_a_label": 2}
    ),
    "one label for all": label_case(labelled("x", "x"), code=2, said=["'x'", "--label_field"]),
    "a label for each": label_case(
        labelled(*(f"l{i}" for i in range(1001))), code=2, said=["1,000", "--label_field"]
    ),
    "a class twice": label_case(labelled("a", "b"), "--classes=a,a", code=2, said=["twice"]),
    "one class": label_case(labelled("a", "b"), "--classes=a", code=2, said=["--classes=a"]),
    "classes that are no list": label_case(
        labelled("a", "b"), "--classes=[a", code=2, said=["JSON list"]
    ),
    "a label of a megabyte": label_case(
        labelled("a", "b", "x" * (1 << 20)), "--classes=a,b", refused={"unknown_label": 1}
    ),
    "files beside folders that are labels": Case(
        {"in/a.txt": b"x", "in/neg/b.txt": b"y", "in/pos/c.txt": b"z"},
        ["--task=classification", "--input={d}/in"],
        2,
        ["{d}/in", "beside folders"],
    ),
    "a class number that no class has": Case(
        {"in.parquet": lambda path: classes_of_two(path)},
        ["--task=classification"],
        refused={"label_outside_classes": 1},
        kept=(),
    ),
    "no sentinels": Case(
        {"in.txt": lines(*GOOD)},
        ["--task=span_corruption"],
        2,
        ["<extra_id_0>", "--special_tokens"],
    ),
}


def classes_of_two(path: Path) -> None:
    """As `datasets` writes it, with numbers 0, 1 and 7 of the classes neg and pos."""
    features = {
        "label": {"names": ["neg", "pos"], "_type": "ClassLabel"},
        "text": {"dtype": "string", "_type": "Value"},
    }
    stored = json.dumps({"info": {"features": features}})
    table = pa.table({"text": GOOD, "label": [0, 1, 7]})
    pq.write_table(table.replace_schema_metadata({"huggingface": stored}), path)


CASES = {
    **TEXT,
    **JSON,
    **PLACES,
    **PACKED,
    **CSV,
    **TABLES,
    **FLAGS,
    **CONFIGS,
    **FILTERS,
    **TOKENIZERS,
}
CASES |= (
    {f"output: {name}": case for name, case in OUTPUTS.items()} | TRAIN | SETS | QUESTIONS | LABELS
)


def command_line(case: Case, directory: Path, tokenizer_path: str) -> list[str]:
    """The case's flags, and the usual ones where they are not among them."""
    flags = [flag.replace("{d}", str(directory)) for flag in case.flags]
    given = {flag.partition("=")[0] for flag in flags}
    usual: dict[str, str] = {}
    if case.command == "build_shards":
        usual = {"tokenizer": tokenizer_path, "output": f"{directory}/set"}
        usual |= {"splits": "train:1", "num_shards": "1"}
    if case.command == "train_tokenizer":
        usual = {"vocab_size": "300", "output": f"{directory}/out"}
    if usual and not given & {"--input", "--train_input", "--from_histogram"}:
        usual["input"] = f"{directory}/in*"
    if usual:
        usual["document"] = "line"
    if "--train_input" in given:
        del usual["splits"]
    flags += [f"--{name}={value}" for name, value in usual.items() if f"--{name}" not in given]
    if case.command == "build_shards" and not given & {"--task", "--static_masking", "--config"}:
        flags.append("--no_static_masking")
    return flags


def in_words(text: str) -> str:
    """What was said, without tyro's frame and line breaks."""
    return " ".join(text.replace("│", " ").split())


def documents_of(directory: Path) -> list[str]:
    """The text of every segment of a set's rows, by `tokenizers` itself."""
    info = read_set(str(directory))
    codec, tokenizer = info.schema.codec(), Tokenizer.from_file(str(directory / "tokenizer.json"))
    found = []
    for file in (file for file in info.manifest.files if file.split):
        reader = open_rows(str(directory / file.path), codec.stride)
        rows = codec.decode(reader.read_range(0, file.rows or 0))
        for ids, numbers in zip(unmask(rows), rows["segment_ids"], strict=True):
            for number in range(1, int(numbers.max()) + 1):
                segment = ids[numbers == number][1:-1].tolist()
                found.append(tokenizer.decode(segment, skip_special_tokens=False))
    return found


def test_the_page_of_inputs_explains_every_reason():
    page = (ROOT / "docs/inputs.md").read_text(encoding="utf-8")
    explained = page.partition("## Rejected documents")[2].partition("\n## ")[0]
    reasons = {reason for case in CASES.values() for reason in case.refused}
    assert {reason for reason in reasons if f"`{reason}`" not in explained} == set()


@pytest.mark.parametrize("name", CASES)
def test_bad_input(name, tmp_path, tokenizer_path, monkeypatch, capfd):
    case = CASES[name]
    for path, content in case.files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        content(tmp_path / path) if callable(content) else (tmp_path / path).write_bytes(content)
    case.before(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "argv", [case.command, *command_line(case, tmp_path, tokenizer_path)])
    monkeypatch.setattr("schemas.commands.entry._prepare_end", lambda: None)  # this process goes on
    capfd.readouterr()
    try:
        run_entry(COMMANDS[case.command])
        code = 0
    except SystemExit as exit_:
        code = exit_.code
    captured = capfd.readouterr()
    said = in_words(captured.err)
    assert code == case.code, said
    assert "Traceback" not in said
    for words in case.said:
        assert words.replace("{d}", str(tmp_path)) in said
    if code:
        assert not (tmp_path / "set" / "MANIFEST.json").exists()
        return
    if case.command == "build_shards":
        output = next(f for f in sys.argv if f.startswith("--output=")).partition("=")[2]
        assert read_set(output).stats.dropped == case.refused
        if case.kept:
            assert sorted(documents_of(Path(output))) == sorted(case.kept)


GIGABYTE = 1 << 30


def line_of_a_gigabyte(path: Path) -> None:
    """Between good lines; its zeros take no disk."""
    with open(path, "wb") as file:
        file.write(lines(ONE))
        file.seek(GIGABYTE, os.SEEK_CUR)
        file.write(lines("", *REST))


def bomb_of_a_gigabyte(path: Path) -> None:
    """The same, 1,000 times as small."""
    zeros = gzip.compress(bytes(GIGABYTE // 64))
    path.write_bytes(gzip.compress(lines(ONE)) + zeros * 64 + gzip.compress(lines("", *REST)))
    assert path.stat().st_size < GIGABYTE / 900


def peak_of(build: Callable[[], object]) -> int:
    """The most bytes of memory that this process has meanwhile."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what is there now
    build()
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="no /proc of Linux")
def test_a_gigabyte_takes_at_most_512_mb_more_than_the_usual(tmp_path, tokenizer_path):
    def build(name: str) -> None:
        output = f"--output={tmp_path}/{name} set"
        flags = [
            f"--input={tmp_path}/{name}",
            output,
            f"--tokenizer={tokenizer_path}",
            "--document=line",
            "--runner=FnApiRunner",
        ]
        build_shards.main([*flags, "--no_static_masking", "--num_shards=1", "--splits=train:1"])

    (tmp_path / "usual.txt").write_bytes(lines(*GOOD))
    line_of_a_gigabyte(tmp_path / "line.txt")
    bomb_of_a_gigabyte(tmp_path / "bomb.txt.gz")
    build("usual.txt")  # imports
    usual = peak_of(lambda: build("usual.txt"))
    # Seen: 160 MB more for the line, 191 for the bomb. Here one process does all there is to do.
    for name in ("line.txt", "bomb.txt.gz"):
        more = peak_of(lambda name=name: build(name)) - usual
        print(f"{name}: {more >> 20} MB more")
        made = read_set(str(tmp_path / f"{name} set"))
        assert made.stats.dropped == {"too_long": 1}
        assert sorted(documents_of(Path(made.directory))) == sorted(GOOD)
        assert more < 512 << 20
