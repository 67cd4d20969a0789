"""Files -> blocks -> documents: no cut into blocks shows, and workers have equal shares."""

import csv
import gzip
import json
import os
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.pipelines.readers.test_damage import PACK
from tests.tools.read_sources import LABELED, read_all, rejects_of, texts_of
from textmill.pipelines.readers.documents import TEXT_ROLES, Role
from textmill.pipelines.readers.formats import text as text_files
from textmill.pipelines.readers.sources import (
    Block,
    Part,
    Source,
    describe_documents,
    hash_inputs,
    plan_blocks,
    read_block,
    uneven,
)
from textmill.schemas.errors import DataError, as_flags


def read_lines(path, **settings):
    return read_all(path, **{"document": "line", **settings})


def texts(path, **settings):
    return texts_of(read_lines(path, **settings))


def paragraphs(text):
    found, lines = [], []
    for line in [*text.split("\n"), ""]:
        if line.strip(" \t\r\v\f"):
            lines.append(line)
        elif lines:
            found.append("\n".join(lines))
            lines = []
    return [p.removesuffix("\r") for p in found]


PIECES = ["a", "bb", "\n", "\n\n", "é\u2028\x85", " c", "\n \t\n", " "]
LIMITED = st.tuples(st.lists(st.sampled_from(PIECES), min_size=1), st.integers(1, 6))
UNLIMITED = st.tuples(
    st.lists(st.sampled_from([*PIECES, "\r\n", "\r"]), min_size=1), st.just(1 << 20)
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LIMITED | UNLIMITED, st.integers(1, 9), st.sampled_from([*filter(None, PACK)]))
def test_no_cut_into_blocks_shows_in_documents_nor_in_those_that_are_too_long(
    tmp_path, drawn, block_bytes, pack
):
    text, longest = "".join(drawn[0]), drawn[1]
    packed, plain = tmp_path / f"x.txt{pack}", tmp_path / "x.txt"
    data, half = text.encode(), len(text.encode()) // 2
    # Two members one after another, as parallel compressors write them.
    packed.write_bytes(PACK[pack](data[:half]) + PACK[pack](data[half:]))
    plain.write_bytes(data)
    limits = {"block_bytes": block_bytes, "max_document_bytes": longest}
    if "\n" not in text:  # lines end with returns
        text = text.replace("\r", "\n")
        data = text.encode()
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    for document, expected in (("line", lines), ("paragraph", paragraphs(text))):
        expected = [found for found in expected if found]
        small = [found for found in expected if len(found.encode()) <= longest]
        long = [found for found in expected if len(found.encode()) > longest]
        for path in (plain, packed):
            pieces = read_lines(path, document=document, **limits)
            assert texts_of(pieces) == small
            rejects = rejects_of(pieces)
            assert {reason for _, reason in rejects} <= {"too_long"}
            offsets = [offset for piece in pieces for offset in piece.offsets.tolist()]
            for places, due in ((offsets, small), ([offset for offset, _ in rejects], long)):
                starts = [data[place:].decode() for place in places]
                assert [start[: len(t)] for start, t in zip(starts, due, strict=True)] == due
            assert sum(piece.stored_bytes for piece in pieces) == path.stat().st_size
            if not long:
                assert sum(piece.source_bytes for piece in pieces) == len(data)


# A text file, --document, and its documents.
RETURNS = {
    "of an old Mac": (b"one\rtwo\rthree\r", "line", ["one", "two", "three"]),
    "after a mark": (b"\xef\xbb\xbfone\rtwo", "line", ["one", "two"]),
    "empty lines": (b"one\r\r\rtwo\r", "line", ["one", "two"]),
    "paragraphs": (b"one\rtwo\r\rthree\r", "paragraph", ["one\ntwo", "three"]),
    "a file": (b"one\rtwo\r", "file", ["one\rtwo\r"]),
    "with a newline at the end": (b"one\rtwo\n", "line", ["one\rtwo"]),
    "with a newline in the middle": (b"one\rtwo\nthree\rfour", "line", ["one\rtwo", "three\rfour"]),
    "before newlines": (b"one\r\ntwo\r\n", "line", ["one", "two"]),
    "one line": (b"one", "line", ["one"]),
}


@pytest.mark.parametrize(("content", "document", "expected"), RETURNS.values(), ids=RETURNS)
@pytest.mark.parametrize("block_bytes", [2, 1 << 20])
def test_returns_end_lines_where_no_newline_does(
    tmp_path, content, document, expected, block_bytes
):
    for name, pack in (("x.txt", bytes), ("x.txt.gz", gzip.compress)):
        (tmp_path / name).write_bytes(pack(content))
        settings = {"document": document, "block_bytes": block_bytes}
        assert texts(tmp_path / name, **settings) == expected


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_a_blank_line_without_an_end_is_an_error(tmp_path, monkeypatch, name):
    monkeypatch.setattr(text_files, "_MUCH", 100)
    path, text = tmp_path / name, b"a\n" + b" " * 1000 + b"\nb\n"
    path.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    with pytest.raises(DataError, match=r"has more than 9 bytes of white space after byte 0"):
        texts(path, document="paragraph", max_document_bytes=9, block_bytes=50)
    assert texts(path, document="paragraph", block_bytes=50) == ["a", "b"]


def test_small_files_share_blocks_and_large_ones_are_cut(tmp_path):
    for name, size in {"a.txt": 3, "b.txt": 4, "c.txt": 25, "empty.txt": 0}.items():
        (tmp_path / name).write_bytes(b"x" * size)
    blocks = plan_blocks(Source((str(tmp_path / "*.txt"),), "line", block_bytes=10))
    cuts = [[(p.path[-5:], p.start, p.stop) for p in block.parts] for block in blocks]
    assert cuts == [
        [("a.txt", 0, 3), ("b.txt", 0, 4)],
        [("c.txt", 0, 10)],
        [("c.txt", 10, 20)],
        [("c.txt", 20, 25)],
    ]


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_a_text_file_is_one_document_unless_it_is_too_large(tmp_path, name):
    path, text = tmp_path / name, "One.\n\n* * *\nTwo.\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    source = Source((str(path),), block_bytes=5)
    [block] = plan_blocks(source)
    assert block.parts == (Part(str(path), path.stat().st_size, 0, path.stat().st_size),)
    [documents] = read_block(block, source)
    assert documents.text.to_pylist() == [text]
    unit = as_flags(describe_documents([block], source))
    assert unit == "each text file is one document (--document=file)"
    size = path.stat().st_size
    words = rf"{name} \({size} bytes\) is too large for one document .*: give --document=line"
    with pytest.raises(DataError, match=words):
        texts(path, document="file", max_document_bytes=len(text) - 4)
    labelled = replace(source, roles=(*TEXT_ROLES, Role("label", "label", "label")))
    assert describe_documents([block], labelled) == (
        "each text file is one document (its folder is the label)"
    )
    rejected = rejects_of(read_block(block, replace(labelled, max_document_bytes=9)))
    assert rejected == [(0, "too_long")]


def test_inputs_without_text_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"--input=.*nothing.*: no file matches"):
        read_lines(tmp_path / "nothing*")
    (tmp_path / "e.txt").touch()
    with pytest.raises(DataError, match="e.txt is empty: give a file with text"):
        read_lines(tmp_path / "e.txt")


def test_labels_of_folders_are_part_of_the_digest(tmp_path):
    def content():
        source = Source((str(tmp_path),), roles=LABELED)
        return hash_inputs(plan_blocks(source)).content()

    for label, text in (("neg", "bad"), ("pos", "fun")):
        (tmp_path / label).mkdir()
        (tmp_path / label / "1.txt").write_text(text)
    before = content()
    for old, new in (("neg", "x"), ("pos", "neg"), ("x", "pos")):
        (tmp_path / old).rename(tmp_path / new)
    assert content() != before


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(["a", 'b"b', "\n", "long text", "c,d"]), min_size=1),
    st.integers(1, 30),
    st.integers(3, 20),
)
def test_no_cut_of_csv_shows_in_what_is_too_long(tmp_path, values, block_bytes, longest):
    path = tmp_path / "x.csv"
    with open(path, "w", newline="") as file:
        rows = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        rows.writerows([["text"], *([value] for value in values)])
    sizes = [len(value) + value.count('"') + 3 for value in values]
    pieces = read_lines(path, block_bytes=block_bytes, max_document_bytes=longest)
    refused = [offset for offset, _ in rejects_of(pieces)]
    assert texts_of(pieces) == [v for v, size in zip(values, sizes, strict=True) if size <= longest]
    assert refused == [i for i, size in enumerate(sizes) if size > longest]


GIB = 1 << 30


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.ndjson"])
def test_a_file_of_2_gib_is_128_blocks(tmp_path, name):
    path = tmp_path / name
    path.touch()
    os.truncate(path, 2 * GIB)  # a hole: takes no place
    blocks = plan_blocks(Source((str(path),), "line"))
    assert [block.bytes for block in blocks] == [16 << 20] * 128
    assert [part.start for block in blocks for part in block.parts] == [
        number * (16 << 20) for number in range(128)
    ]
    assert uneven(blocks, 100) is None


def test_documents_of_a_file_are_spread_evenly_over_its_blocks(topics, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in topics))
    source = Source((str(path),), block_bytes=1 << 14)
    blocks = plan_blocks(source)
    sizes = [sum(d.source_bytes for d in read_block(block, source)) for block in blocks]
    assert sum(sizes) == path.stat().st_size
    # A document that goes on belongs to the block that it begins in.
    assert max(sizes) < 1.5 * (1 << 14)
    packed = path.with_name("b.jsonl.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    pieces = read_all(packed, block_bytes=1 << 14)
    assert max(piece.source_bytes for piece in pieces) < 1.5 * (1 << 14)
    assert sum(piece.source_bytes for piece in pieces) == sum(sizes)


def block(name, size, **how):
    return Block(0, (Part(name, size, 0, size, **how),))


SMALL = [block("small.txt", 16 << 20)] * 64  # 1 GiB


def test_a_compressed_file_that_holds_workers_up_is_said_with_the_remedy():
    assert uneven([*SMALL, block("a b.txt.zst", 2 * GIB)], 4) == (
        "one of 4 workers reads 67% of the input while the others wait: a b.txt.zst (2.1 GB) is "
        "read as a whole; unpack it if it is compressed, or split it into several files"
    )
    said = uneven([*SMALL, block("a.parquet", 2 * GIB, format="parquet")], 4)
    assert said and said.endswith("is read as a whole; write it with smaller row groups")


def test_what_holds_nobody_up_is_not_said():
    packed = block("a.txt.gz", GIB)
    assert uneven([packed], 1) is None  # all of it is one worker's anyway
    assert uneven([packed] * 4, 4) is None  # to each its own
    assert uneven([packed, *SMALL], 2) is None
    assert uneven([block("a.txt.gz", 200 << 20)], 8) is None  # seconds
    assert uneven([packed, *SMALL], 3)  # half of the input, where a third is a share
