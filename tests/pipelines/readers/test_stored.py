"""Stored bytes are read once: what is hashed is what is parsed."""

import io
from dataclasses import replace
from hashlib import sha256

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from textmill.pipelines.readers import stored
from textmill.pipelines.readers.formats.table import FORMATS
from textmill.pipelines.readers.sources import Source, plan_blocks
from textmill.pipelines.readers.stored import Part, part_digest, read_once
from textmill.schemas.errors import DataError

TEXTS = [f"document {number}" for number in range(40)]


class Unsteady(io.BytesIO):
    """A file from a bucket of which each byte of some spans is right only once."""

    def __init__(self, content, spans):
        super().__init__(content)
        self._spans, self._read = spans, set()

    def read(self, size=-1, /):
        place = self.tell()
        data = bytearray(super().read(size))
        for start, stop in self._spans:
            for at in range(max(start, place), min(stop, place + len(data))):
                data[at - place] ^= at in self._read
                self._read.add(at)
        return bytes(data)


def parquet(path):
    pq.write_table(pa.table({"text": TEXTS, "other": TEXTS}), path, row_group_size=10)


def arrow(path):
    table = pa.table({"text": TEXTS})
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=10)


def arrow_with_a_dictionary(path):
    table = pa.table({"text": pa.array(TEXTS).dictionary_encode()})
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table)


def packed(path):
    lines = "".join(f'{{"text": "{text}"}}\n' for text in TEXTS)
    path.write_bytes(zstandard.compress(lines.encode()))


WRITERS = {
    "x.parquet": parquet,
    "x.arrow": arrow,
    "y.arrow": arrow_with_a_dictionary,
    "x.jsonl.zst": packed,
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("kept_bytes", [1 << 20, 0])
@pytest.mark.parametrize("is_corpus", [False, True])
def test_what_is_hashed_is_what_is_parsed(tmp_path, monkeypatch, name, kept_bytes, is_corpus):
    monkeypatch.setattr(stored, "_KEPT_BYTES", kept_bytes)
    path = tmp_path / name
    WRITERS[name](path)
    content = path.read_bytes()
    source = Source((str(path),), block_bytes=200)
    parts = [part for block in plan_blocks(source) for part in block.parts]
    texts = []
    for part in parts:
        digest = part_digest(io.BytesIO(content), part)
        part = replace(
            part,
            path=f"gs://b/{name}",
            sha256=sha256(content).hexdigest() if is_corpus else "",
        )
        spans = part.spans or ((part.start, part.stop),)
        pieces = list(FORMATS[part.format].module.read(Unsteady(content, spans), part, source))
        texts += [text for piece in pieces for text in piece.text.to_pylist()]
        assert [d for piece in pieces for d in piece.digests] == [(part.path, *digest[1:])]
    assert texts == TEXTS
    assert len(parts) == (4 if name in ("x.parquet", "x.arrow") else 1)


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_of_a_corpus_that_was_changed_anywhere_is_an_error(tmp_path, name):
    path = tmp_path / name
    WRITERS[name](path)
    content = path.read_bytes()
    source = Source((str(path),), block_bytes=200)
    [part, *_] = [part for block in plan_blocks(source) for part in block.parts]
    part = replace(part, sha256=sha256(content).hexdigest())
    read = FORMATS[part.format].module.read
    assert list(read(io.BytesIO(content), part, source))
    for place in range(0, len(content), max(len(content) // 40, 1)):
        changed = bytearray(content)
        changed[place] ^= 1
        with pytest.raises(DataError, match=f"{name} was changed after it was published"):
            list(read(io.BytesIO(changed), part, source))


def test_many_bytes_of_a_local_file_are_not_copied(monkeypatch):
    monkeypatch.setattr(stored, "_KEPT_BYTES", 4)
    raw = io.BytesIO(b"0123456789")
    for part, is_copied in (
        (Part("x", 10, 2, 9, spans=((2, 3), (5, 8))), True),
        (Part("x", 10, 2, 9, spans=((2, 3), (5, 9))), False),
        (Part("gs://b/x", 10, 2, 9, spans=((2, 3), (5, 9))), True),
    ):
        with read_once(raw, part) as (file, digest):
            assert (file is not raw) == is_copied
            assert digest == part_digest(raw, part)
            file.seek(0)
            assert file.read() == b"0123456789"
            assert (file.seek(-4, io.SEEK_END), file.read(2)) == (6, b"67")
