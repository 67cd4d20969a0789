"""The same documents in any format are the same documents, and the same shards."""

import csv
import gzip
import json
import os
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tools.read_sources import read_all, rejects_of, rows_of, texts_of
from textmill.pipelines.readers.documents import Role
from textmill.pipelines.readers.sources import (
    Source,
    file_digests,
    hash_inputs,
    plan_blocks,
    read_block,
)
from textmill.schemas.errors import DataError, UsageError

ROLES = (
    Role("text", "string", "text"),
    Role("label", "label", "label"),
    Role("id", "id", "id", optional=True),
)


def write_csv(path, rows, delimiter=","):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)


def lines_of(name, rows):
    """JSON Lines, escaped beyond ASCII where they are compressed."""
    dumped = (json.dumps(row, ensure_ascii=name.endswith(".gz")) + "\n" for row in rows)
    return [line.encode() for line in dumped]


def write_jsonl(path, rows):
    path.write_bytes(b"".join(lines_of(path.name, rows)))


def write_gzip(path, rows):
    path.write_bytes(gzip.compress(b"".join(lines_of(path.name, rows))))


def write_arrow(path, rows, new=pa.ipc.new_stream, **options):
    table = pa.Table.from_pylist(rows)
    with new(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=max(len(rows) // 5, 1))


def write_hugging_face(path, rows):
    import datasets

    datasets.disable_progress_bars()
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    datasets.Dataset.from_dict(columns).save_to_disk(str(path), num_shards=min(2, len(rows)))


WRITERS = {
    "x.jsonl": write_jsonl,
    "x.jsonl.gz": write_gzip,
    "x.csv": write_csv,
    "x.tsv": lambda path, rows: write_csv(path, rows, "\t"),
    "x.parquet": lambda path, rows: pq.write_table(
        pa.Table.from_pylist(rows), path, row_group_size=max(len(rows) // 5, 1)
    ),
    "x.arrow": write_arrow,
    "x.feather": lambda path, rows: write_arrow(path, rows, pa.ipc.new_file, compression="zstd"),
    "hf:x": write_hugging_face,
}


def write(folder, name, rows):
    """Writes a file and returns what --input names it by."""
    WRITERS[name](folder / name.removeprefix("hf:"), rows)
    return ("hf:" if name.startswith("hf:") else "") + str(folder / name.removeprefix("hf:"))


@pytest.mark.parametrize("name", WRITERS)
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.text(st.sampled_from('ab"\n\r,\té\\\u2028\U0001f600 \0')), st.integers(0, 99)),
        min_size=1,
        max_size=30,
    ),
    st.integers(1, 99),
)
def test_any_format_gives_the_same_documents_however_it_is_cut(
    tmp_path_factory, name, records, block_bytes
):
    rows = [{"text": t, "label": n, "other": "o"} for t, n in records]
    pattern = write(tmp_path_factory.mktemp("a b\nc%20é#?"), name, rows)
    settings = {"roles": ROLES, "block_bytes": block_bytes, "quoting": "double"}
    found = read_all(pattern, **settings)
    assert rows_of(found) == [{"text": t, "label": str(n), "id": ""} for t, n in records if t]
    assert sum(piece.empty for piece in found) == sum(not t for t, _ in records)
    assert not [piece.rejects for piece in found if piece.rejects]
    offsets = [0, *accumulate(map(len, lines_of(name, rows)))]
    if ".jsonl" not in name:  # numbers of records, in both files of a saved dataset from 0 on
        numbers = range((len(rows) + 1) // 2 if name == "hf:x" else len(rows))
        offsets = [*numbers, *numbers]
    due = [offset for offset, (t, _) in zip(offsets, records, strict=False) if t]
    assert [offset for piece in found for offset in piece.offsets.tolist()] == due
    blocks = plan_blocks(Source((pattern,), **settings))
    read = [digest for piece in found for digest in piece.digests]
    assert file_digests(read) == hash_inputs(blocks)
    assert sum(piece.stored_bytes for piece in found) == sum(block.bytes for block in blocks)
    starts = [part for block in blocks for part in block.parts if not part.start]
    assert len(starts) == len({part.path for part in starts})


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "x.feather", "hf:x"])
def test_no_cut_shows_in_the_digest_and_every_change_does(tmp_path, name, topics):
    def content(block_bytes, split=""):
        blocks = plan_blocks(Source((pattern,), block_bytes=block_bytes))
        return hash_inputs([block.of_split(split) for block in blocks]).content()

    rows = [{"text": t, "n": i} for i, t in enumerate(topics[:100])]
    pattern = write(tmp_path, name, rows)
    before = content(100)
    assert before == content(10_000) == content(1 << 24)
    assert before != content(100, "test") == content(10_000, "test") != content(100, "train")
    changed = [*rows[:-1], {"text": rows[-1]["text"][:-1] + "#", "n": 99}]
    pattern = write(tmp_path, name, changed)
    assert content(1 << 24) != before


@pytest.mark.parametrize("name", [name for name in WRITERS if ".jsonl" not in name])
def test_a_missing_field_names_those_that_are_there(tmp_path, name):
    pattern = write(tmp_path, name, [{"body": "a", "n": 1}])
    with pytest.raises(UsageError, match=r"no field 'text', which --text_field.*: body, n"):
        read_all(pattern)


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "hf:x"])
def test_a_column_of_another_type_is_refused_before_anything_runs(tmp_path, name):
    pattern = write(tmp_path, name, [{"text": "a", "label": 0.5}])
    with pytest.raises(UsageError, match=r"--label_field=label has type double, but must be"):
        plan_blocks(Source((pattern,), roles=ROLES))


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "hf:x"])
def test_rows_with_nulls_are_refused_by_number(tmp_path, name):
    rows = [{"text": f"t{i}", "label": i} for i in range(9)]
    rows[4]["text"] = rows[7]["label"] = None
    found = read_all(write(tmp_path, name, rows), roles=ROLES, block_bytes=50)
    assert texts_of(found) == ["t0", "t1", "t2", "t3", "t5", "t6", "t8"]
    assert rejects_of(found) == [
        (4, "missing_field"),
        (2 if name == "hf:x" else 7, "missing_field"),  # its second file begins with row 5
    ]


@pytest.mark.parametrize("name", ["x.jsonl", "x.parquet", "x.arrow"])
def test_every_role_is_a_column_though_its_field_is_nested(tmp_path, name):
    roles = (
        Role("question", "string", "q.text"),
        Role("id", "id", "n"),
        Role("answers", "answers", "a"),
        Role("label", "label", "q.flag"),
    )
    rows = [
        {"q": {"text": text, "flag": n == 7}, "n": n, "a": {"text": words, "answer_start": starts}}
        for n, text, words, starts in (
            (7, "Who?", ["x", "y"], [1, 2]),
            (8, "What?", [], []),
            (9, "When?", ["z"], [3]),
        )
    ]
    pieces = read_all(write(tmp_path, name, rows), roles=roles, block_bytes=10)
    assert [tuple(row.values()) for row in rows_of(pieces)] == [
        ("Who?", "7", [{"text": "x", "start": 1}, {"text": "y", "start": 2}], "true"),
        ("What?", "8", [], "false"),
        ("When?", "9", [{"text": "z", "start": 3}], "false"),
    ]
    assert pieces[0].columns.schema.names == [role.name for role in roles]
    assert texts_of(pieces) == ["Who?", "What?", "When?"]


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("change", [1, -1])
def test_a_file_that_changes_its_size_is_noticed(tmp_path, name, change):
    pattern = write(tmp_path, name, [{"text": "a" * 99}] * 9)
    source = Source((pattern,))
    [block] = plan_blocks(source)
    os.truncate(block.parts[0].path, block.parts[0].size + change)
    with pytest.raises(DataError, match="bytes when the run began and has .* now"):
        list(read_block(block, source))


# Any piece of a text file may be good.
@pytest.mark.parametrize("name", [n for n in WRITERS if n not in ("x.jsonl", "x.csv", "x.tsv")])
def test_what_is_not_of_the_format_is_said_by_name(tmp_path, name):
    pattern = write(tmp_path, name, [{"text": "a\nb " * 50}] * 50)
    [block] = plan_blocks(Source((pattern,)))
    path = Path(block.parts[0].path)
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], whole[:-4], b"\1\2\3" * 99):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"hf:|x\.|data-") as raised:
            read_all(pattern)
        assert len(str(raised.value)) < 900


@pytest.mark.parametrize("name", ["x.txt", "x.jsonl", "x.csv", "x.json"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_refused_by_name(tmp_path, name, encoding):
    (tmp_path / name).write_bytes('{"text": "a b"}\nBlåbær\n'.encode(encoding))
    named = f"UTF-16{encoding[-2:].upper()}"
    with pytest.raises(DataError, match=f"is {named}, not UTF-8: convert it, iconv -f {named}"):
        read_all(tmp_path / name, document="line" if name == "x.txt" else "file")


def test_a_format_can_be_forced(tmp_path):
    path = tmp_path / "table.txt"
    path.write_text("text\na\n")
    assert texts_of(read_all(path, document="line")) == ["text", "a"]
    assert texts_of(read_all(path, input_format="csv")) == ["a"]
    with pytest.raises(UsageError, match="--input_format=xml: give one of auto"):
        Source((str(path),), input_format="xml")  # pyright: ignore


def test_many_small_files_are_few_pieces(tmp_path):
    for i in range(300):
        (tmp_path / f"{i:03}.txt").write_text(f"text {i}\n")
    [piece] = read_all(tmp_path)
    assert len(piece.text) == 300 and len(piece.digests) == 300
    left = np.arange(1, 300, 2)
    kept = piece.keep(left, piece.columns.take(pa.array(left)))
    for documents, numbers in ((piece, range(300)), (kept, left)):
        paths = [documents.reject(place, "", "").path for place in range(len(numbers))]
        assert paths == [str(tmp_path / f"{number:03}.txt") for number in numbers]
