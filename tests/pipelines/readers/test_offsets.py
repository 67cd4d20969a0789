"""Each document that a reader keeps has its offset in its file, whatever stands between them."""

import csv
import gzip
import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.corpus.filter_documents import filter_documents
from pipelines.readers.sources import Source, plan_blocks, read_block
from tests.tools.filter_factory import filters_of

# None and "" are no documents; others are of every length, some over several lines.
TEXTS = [
    {0: None, 1: ""}.get(i % 7, f"document {i} " + "æ\n" * (i % 3) + "word " * (i * i % 50))
    for i in range(400)
]


def write_jsonl(path: Path) -> None:
    path.write_text("".join(json.dumps({"text": text}) + "\n\n" for text in TEXTS))


def write_broken_jsonl(path: Path) -> None:
    write_jsonl(path)
    path.write_text("{broken\n" + path.read_text().replace('{"text": "document 30 ', "{"))


def write_csv(path: Path) -> None:
    out = io.StringIO()
    csv.writer(out).writerows([["text", "n"], *([text or "", 1] for text in TEXTS)])
    path.write_text(out.getvalue().replace("document 33 ", "a,b"), newline="")  # ragged


def write_parquet(path: Path) -> None:
    pq.write_table(pa.table({"text": TEXTS}), path, row_group_size=37)


def write_arrow(path: Path) -> None:
    table = pa.table({"text": TEXTS})
    with pa.ipc.new_stream(path, table.schema) as out:
        out.write_table(table, max_chunksize=41)


def write_text(path: Path) -> None:
    path.write_text("".join((text or "").replace("\n", " ").strip() + "\r\n" for text in TEXTS))


def write_paragraphs(path: Path) -> None:
    path.write_text("\n \n".join((text or "").strip() for text in TEXTS))


FORMATS = {
    "a.jsonl": write_jsonl,
    "a.jsonl.gz": lambda path: (
        write_jsonl(path),
        path.write_bytes(gzip.compress(path.read_bytes())),
    ),
    "broken.jsonl": write_broken_jsonl,
    "a.csv": write_csv,
    "a.parquet": write_parquet,
    "a.arrow": write_arrow,
    "a.txt": write_text,
    "paragraphs.txt": write_paragraphs,
}


@pytest.mark.parametrize("name", FORMATS)
def test_offsets_point_at_their_documents(name, tmp_path):
    path, other = tmp_path / name, tmp_path / f"b-{name}"
    FORMATS[name](path)
    other.write_bytes(path.read_bytes())  # two files in a block
    kind = "paragraph" if name.startswith("paragraphs") else "line"
    source = Source((str(path), str(other)), kind, block_bytes=3000)
    stored = gzip.decompress(path.read_bytes()) if name.endswith("gz") else path.read_bytes()
    records = (
        list(csv.reader(io.StringIO(path.read_bytes().decode(), newline="")))
        if "csv" in name
        else None
    )
    seen = []
    for block in plan_blocks(source):
        for documents in read_block(block, source):
            long = filter_documents(filters_of(min_chars=30), documents).documents
            for kept in (documents, long):
                assert len(kept.offsets) == len(kept.text) == sum(n for *_, n in kept.files)
                for number, text in enumerate(kept.text.to_pylist()):
                    place = kept.reject(number, "", "")
                    assert place.offset is not None
                    if kept is documents:
                        seen.append((place.path, place.offset))
                    if place.unit == "byte":
                        begins = stored[place.offset :]
                        start = json.dumps(text)[1:-1].encode() if "json" in name else text.encode()
                        skip = begins.index(b'"text": "') + 9 if "json" in name else 0
                        assert begins[skip:].startswith(start)
                    elif records is not None:
                        assert records[1 + place.offset][0] == text
                    else:
                        assert TEXTS[place.offset] == text
    assert len(set(seen)) == len(seen) > 500
    assert np.unique([path for path, _ in seen]).tolist() == sorted([str(path), str(other)])
