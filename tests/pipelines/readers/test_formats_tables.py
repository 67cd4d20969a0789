"""Parquet, Arrow and saved datasets: what is read of them, and what is damaged."""

import io
import json
import math
import os
import uuid
import zipfile
from datetime import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.tools.python_process import run_python
from tests.tools.read_sources import LABELED, read_all, rejects_of, rows_of, texts_of
from textmill.pipelines.readers.documents import TEXT_ROLES, Role
from textmill.pipelines.readers.formats import arrow_ipc, parquet
from textmill.pipelines.readers.sources import Source, hash_inputs, plan_blocks, read_block
from textmill.pipelines.readers.stored import Part
from textmill.schemas.errors import DataError, UsageError


def write_table(path, table, rows_per_batch=None):
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=rows_per_batch)


class CountedReads(io.BytesIO):
    bytes_read = 0

    def read(self, size=-1, /):
        data = super().read(size)
        self.bytes_read += len(data)
        return data


def test_of_parquet_only_the_needed_columns_are_read():
    sink = io.BytesIO()
    table = pa.table({"image": [bytes([i]) * 99_999 for i in range(50)], "text": ["a"] * 50})
    pq.write_table(table, sink, row_group_size=10, compression="none", use_dictionary=False)
    file = CountedReads(sink.getvalue())
    size = len(sink.getvalue())
    assert size > 4_900_000
    source = Source(("p",), block_bytes=1 << 20)
    parts = parquet.plan(file, Part("p", size, 0, size, "parquet"), source)
    assert [(part.group, part.record) for part in parts] == [(i, i * 10) for i in range(5)]
    assert [part.start for part in parts] == [size * i // 5 for i in range(5)]
    rows = [row for p in parts for row in rows_of(parquet.read(file, p, source))]
    assert rows == [{"text": "a"}] * 50
    assert file.bytes_read < 1_000_000


def test_a_corrupt_page_is_an_error_that_names_its_row_group(tmp_path):
    path = tmp_path / "x.parquet"
    table = pa.table({"text": [f"text {i}" for i in range(3000)]})
    checked: dict = {"use_dictionary": False, "write_page_checksum": True}
    pq.write_table(table, path, row_group_size=1000, compression="none", **checked)
    content = bytearray(path.read_bytes())
    at = content.index(b"text 1500")
    content[at + 5] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"x\.parquet: row group 1, rows 1,000 to 1,999, is dam"):
        read_all(path)


def test_row_groups_without_rows_and_files_without_any(tmp_path):
    path = tmp_path / "x.parquet"
    with pq.ParquetWriter(path, pa.schema([("text", pa.string())])) as writer:
        for texts in ([], ["a"], [], ["b", "c"]):
            writer.write_table(pa.table({"text": pa.array(texts, pa.string())}))
    assert texts_of(read_all(path)) == ["a", "b", "c"]
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), path)
    with pytest.raises(DataError, match="have no rows"):
        read_all(path)


STRINGS = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()]


@pytest.mark.parametrize("kind", [*STRINGS, pa.dictionary(pa.int8(), pa.string())])
@pytest.mark.parametrize("name", ["x.parquet", "x.arrow"])
def test_every_type_of_string_is_text(tmp_path, kind, name):
    table = pa.table({"text": pa.array(["a", "é", "a"], pa.string()).cast(kind)})
    write_table(tmp_path / name, table, rows_per_batch=2)
    assert texts_of(read_all(tmp_path / name)) == ["a", "é", "a"]


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow"])
def test_bytes_that_are_not_utf8_are_refused_by_number(tmp_path, name):
    table = pa.table({"text": pa.array([b"a", b"\xff", b"c"])})
    if name == "x.arrow":
        column = pa.Array.from_buffers(pa.string(), 3, table["text"].chunk(0).buffers())
        table = pa.table({"text": column})
    write_table(tmp_path / name, table)
    [piece] = read_all(tmp_path / name)
    assert piece.text.to_pylist() == ["a", "c"]
    assert rejects_of([piece]) == [(1, "not_utf8")]
    assert "0xff" in piece.rejects[0].detail


def test_a_large_batch_is_gone_through_in_slices(tmp_path, monkeypatch):
    """A local file is mapped; a file object without a number is read."""
    monkeypatch.setattr(arrow_ipc, "_MAPPED_BYTES", 1000)
    path = tmp_path / "x.arrow"
    table = pa.table({"text": [f"text {i}" for i in range(3000)]})
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    source = Source((str(path),), block_bytes=1000)
    [block] = plan_blocks(source)
    for file in (open(path, "rb"), io.BytesIO(path.read_bytes())):
        with file:
            pieces = list(arrow_ipc.read(file, block.parts[0], source))
        assert len(pieces) > 10
        assert rows_of(pieces) == table.to_pylist()


@pytest.mark.parametrize("new", [pa.ipc.new_stream, pa.ipc.new_file])
def test_arrow_files_that_are_cut_or_damaged_are_refused(tmp_path, new):
    path = tmp_path / "x.arrow"
    table = pa.table({"text": [f"text {i}" for i in range(3000)]})
    with new(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=1000)
    whole = path.read_bytes()
    [block] = plan_blocks(Source((str(path),)))
    spans = block.parts[0].spans
    for stop in (spans[1][1], spans[2][0] + 100, spans[-1][1]):  # between batches too
        path.write_bytes(whole[:stop])
        with pytest.raises(DataError, match="x.arrow has neither a complete Arrow message .* mark"):
            read_all(path)
    damaged = bytearray(whole)
    damaged[spans[2][0] + 300 : spans[2][0] + 5000] = b"\xff" * 4700  # offsets of strings
    path.write_bytes(damaged)
    with pytest.raises(DataError, match=r"the record batch that begins with row 1,000 is damaged"):
        read_all(path)


@pytest.fixture
def saved(tmp_path):
    """A dataset of two splits with named classes."""
    import datasets

    datasets.disable_progress_bars()
    classes = datasets.ClassLabel(names=["neg", "pos"])
    rows = {"text": ["a", "b", "c"], "label": [1, 0, -1]}
    split = datasets.Dataset.from_dict(rows).cast_column("label", classes)
    folder = tmp_path / "set: one"
    datasets.DatasetDict({"train": split, "test": split.select([0])}).save_to_disk(str(folder))
    return folder


def test_class_numbers_are_read_as_names_which_count_where_they_are_renamed(saved, tmp_path):
    def content():
        return hash_inputs(plan_blocks(Source((pattern,), roles=LABELED))).content()

    pattern = f"hf:{saved}:train"
    found = read_all(pattern, roles=LABELED)
    expected = [{"text": "a", "label": "pos"}, {"text": "b", "label": "neg"}]
    assert rows_of(found) == expected
    assert rejects_of(found) == [(2, "missing_field")]
    [file] = (saved / "train").glob("*.arrow")
    assert rows_of(read_all(file, roles=LABELED)) == expected
    with pa.memory_map(str(file)) as mapped:
        write_table(tmp_path / "x.parquet", pa.ipc.open_stream(mapped).read_all())
    assert rows_of(read_all(tmp_path / "x.parquet", roles=LABELED)) == expected
    before, info = content(), saved / "train" / "dataset_info.json"
    info.write_text(info.read_text().replace('"pos"', '"good"'))
    assert [row["label"] for row in rows_of(read_all(pattern, roles=LABELED))] == ["good", "neg"]
    assert content() != before


def test_class_numbers_of_any_width_are_compared_exactly(tmp_path):
    label = pa.array([1, (1 << 64) - 1, None], pa.uint64())
    features = {"label": {"_type": "ClassLabel", "names": ["neg", "pos"]}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    table = pa.table({"text": ["a", "b", "c"], "label": label}).replace_schema_metadata(metadata)
    write_table(tmp_path / "x.parquet", table)
    found = read_all(tmp_path / "x.parquet", roles=LABELED)
    assert rows_of(found) == [{"text": "a", "label": "pos"}]
    assert rejects_of(found) == [(1, "label_outside_classes"), (2, "missing_field")]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", r"several splits; name one: hf:.*:train, hf:"),
        (":dev", "there is no split 'dev'; name one"),
        (":plain:train", "no config 'plain'"),
        (":train[:1]", "slices of a split cannot be read"),
        (":a:b:c", "not hf:PATH_OR_NAME"),
        ("/test:train", "holds one dataset without splits"),
    ],
)
def test_a_split_that_a_saved_dataset_lacks_is_refused(saved, name, message):
    with pytest.raises(UsageError, match=message):
        read_all(f"hf:{saved}{name}")
    for right in ("/test", "::test"):
        assert rows_of(read_all(f"hf:{saved}{right}")) == [{"text": "a"}]


def test_an_hf_path_that_is_not_there_or_holds_nothing(tmp_path):
    (tmp_path / "x.arrow").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "state.json").write_text("{}")
    for name, message in (
        ("none", f"hf:{tmp_path}/none: there is no directory {tmp_path}/none"),
        ("x.arrow", "without hf: it can be read as"),
        ("empty", "datasets cannot open it"),
        ("state", "datasets cannot open it"),
    ):
        with pytest.raises(DataError, match=message):
            read_all(f"hf:{tmp_path / name}")


def test_a_folder_that_datasets_builds(tmp_path, monkeypatch):
    from datasets import config

    monkeypatch.setattr(config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "built"
    folder.mkdir()
    (folder / "train.csv").write_text("text,label\na,1\nb,2\n")
    (folder / "test.csv").write_text("text,label\nc,3\n")
    assert rows_of(read_all(f"hf:{folder}:test", roles=LABELED)) == [{"text": "c", "label": "3"}]
    with pytest.raises(UsageError, match="several splits"):
        read_all(f"hf:{folder}")


OUTSIDE = r"names a file outside of it, .*, which is not read: correct data_files in its README\.md"
# Lines under a config of README.md, where {} is the folder above the dataset.
OUT = {
    "above it": ("data_files: ../secret.jsonl", OUTSIDE),
    "above it by a detour": ("data_files: data/../../secret.jsonl", OUTSIDE),
    "an absolute path": ("data_files: '{}/secret.jsonl'", OUTSIDE),
    "a URL of a file": ("data_files: 'file://{}/secret.jsonl'", OUTSIDE),
    "one of a list": ("data_files: [data/a.jsonl, ../secret.jsonl]", OUTSIDE),
    "a folder": ("data_dir: ..", OUTSIDE),
    "in a zip archive": ("data_files: 'zip://s.jsonl::{}/secret.zip'", OUTSIDE),
    "a link": (
        "data_files: data/*.jsonl",
        r"is a link out of the dataset's directory, to .*secret",
    ),
}


@pytest.mark.parametrize(("lines", "message"), OUT.values(), ids=OUT)
def test_a_dataset_that_names_files_outside_of_it_is_refused(tmp_path, monkeypatch, lines, message):
    from datasets import config

    monkeypatch.setattr(config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "set" / "data").mkdir(parents=True)
    (tmp_path / "secret.jsonl").write_text('{"text": "secret"}\n')
    with zipfile.ZipFile(tmp_path / "secret.zip", "w") as archive:
        archive.write(tmp_path / "secret.jsonl", "s.jsonl")
    (tmp_path / "set" / "data" / "a.jsonl").write_text('{"text": "a"}\n')
    head = f"---\nconfigs:\n- config_name: default\n  {lines.format(tmp_path)}\n---\n"
    (tmp_path / "set" / "README.md").write_text(head)
    if "link" in message:
        os.symlink("../../secret.jsonl", tmp_path / "set" / "data" / "b.jsonl")
    with pytest.raises(DataError, match=message):
        read_all(f"hf:{tmp_path}/set")
    if "link" in message:
        found = rows_of(read_all(f"hf:{tmp_path}/set", follow_links=True))
        assert found == [{"text": "a"}, {"text": "secret"}]


def test_a_saved_dataset_that_names_files_outside_of_it_is_refused(saved, tmp_path):
    state = saved / "train" / "state.json"
    values = json.loads(state.read_text())
    [file] = values["_data_files"]
    os.rename(saved / "train" / file["filename"], tmp_path / "out.arrow")
    file["filename"] = "../../out.arrow"
    state.write_text(json.dumps(values))
    with pytest.raises(DataError, match=r"names a file outside of it, .*out\.arrow"):
        read_all(f"hf:{saved}:train", roles=LABELED)


def test_values_of_any_shape_are_kept_as_json(tmp_path):
    """The same text from every format: one document is the same wherever it lies."""
    chats = [[{"role": "user", "content": "Blåbær"}], [{"role": "user", "content": "b"}] * 2]
    expected = [json.dumps(chat, ensure_ascii=False) for chat in chats]
    roles = (Role("messages", "json", "messages"),)
    for name in ("x.parquet", "x.arrow"):
        write_table(tmp_path / name, pa.table({"messages": chats}))
    bad = ["{}", '{"messages": null}', '{"messages": ["\\ud800"]}']
    lines = [json.dumps({"messages": chat}) for chat in chats] + bad
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    for ending in ("parquet", "arrow", "jsonl"):
        pieces = read_all(tmp_path / f"x.{ending}", roles=roles)
        assert [row["messages"] for row in rows_of(pieces)] == expected
    reasons = [reason for _, reason in rejects_of(pieces)]
    assert reasons == ["missing_field", "missing_field", "lone_surrogate"]
    write_table(tmp_path / "y.parquet", pa.table({"messages": [datetime(2026, 1, 1)]}))
    with pytest.raises(UsageError, match="must be JSON: text, numbers"):
        read_all(tmp_path / "y.parquet", roles=roles)


UTC = pa.timestamp("us", "UTC")
WHEN = datetime(2026, 1, 1)
UUID = uuid.UUID("12345678-1234-5678-1234-567812345678")
# A value of a table, and the text that --keep_fields keeps of it.
KEPT = {
    "a time": (pa.array([WHEN]), "2026-01-01 00:00:00.000000"),
    "a time of a zone": (pa.array([WHEN], UTC), "2026-01-01 00:00:00.000000Z"),
    "a time of an unknown zone": (
        pa.array([WHEN], pa.timestamp("us", "Mars/Phobos")),
        "2026-01-01 00:00:00.000000Z",
    ),
    "nanoseconds": (pa.array([1], pa.timestamp("ns")), "1970-01-01 00:00:00.000000001"),
    "a date": (pa.array([WHEN.date()]), "2026-01-01"),
    "a decimal": (pa.array([Decimal("0.25")]), "0.25"),
    "a decimal with zeros": (pa.array([Decimal("-3.00")]), "-3.00"),
    "a long decimal": (pa.array([Decimal("12345678901234567890.125")]), "12345678901234567890.125"),
    "a UUID": (pa.array([UUID.bytes], pa.uuid()), str(UUID)),
    "bytes that are text": (pa.array(["blå".encode()]), "blå"),
    "an image": (pa.array([b"\xff\xd8"]), "/9g="),
    "bytes of one size": (pa.array([b"\xff\xd8"], pa.binary(2)), "/9g="),
    "an object with a time": (pa.array([{"at": WHEN}]), '{"at": "2026-01-01 00:00:00.000000"}'),
    "an object with a decimal": (pa.array([{"x": Decimal("0.25")}]), '{"x": "0.25"}'),
    "times": (pa.array([[WHEN.date(), None]]), '["2026-01-01", null]'),
    "a time of an unknown zone inside": (
        pa.array([[WHEN]], pa.list_(pa.timestamp("ms", "Mars/Phobos"))),
        '["2026-01-01 00:00:00.000Z"]',
    ),
    "an object with bytes": (pa.array([{"b": b"\xff\xd8", "p": b"a"}]), '{"b": "/9g=", "p": "a"}'),
    "an object with a UUID": (
        pa.StructArray.from_arrays([pa.array([UUID.bytes], pa.uuid())], names=["u"]),
        f'{{"u": "{UUID}"}}',
    ),
    "a map": (
        pa.array([[("b", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64())),
        '{"b": 1, "a": 2}',
    ),
    "a map of times": (
        pa.array([[("a", WHEN)]], pa.map_(pa.string(), UTC)),
        '{"a": "2026-01-01 00:00:00.000000Z"}',
    ),
    "a map of numbers": (pa.array([[(1, [])]], pa.map_(pa.int64(), pa.list_(UTC))), '{"1": []}'),
    "an empty map": (pa.array([[]], pa.map_(pa.string(), pa.int64())), "{}"),
}


@pytest.mark.parametrize(("value", "text"), KEPT.values(), ids=KEPT)
@pytest.mark.parametrize("name", ["x.parquet", "x.arrow"])
def test_values_of_every_type_are_kept_as_text_or_json(tmp_path, value, text, name):
    value = pa.concat_arrays([value, pa.nulls(1, value.type)])
    write_table(tmp_path / name, pa.table({"text": ["a", "b"], "meta": value}))
    roles = (*TEXT_ROLES, Role("meta", "field", "meta", optional=True))
    assert [row["meta"] for row in rows_of(read_all(tmp_path / name, roles=roles))] == [text, ""]


@pytest.mark.parametrize(("value", "text"), KEPT.values(), ids=KEPT)
def test_other_fields_of_messages_do_not_refuse_a_conversation(tmp_path, value, text):
    """WildChat's messages have times, others scores and images."""
    texts = [pa.array(["user"]), pa.array(["Hi"]), value]
    message = pa.StructArray.from_arrays(texts, names=["role", "content", "more"])
    messages = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), message)
    write_table(tmp_path / "x.parquet", pa.table({"messages": messages}))
    roles = (Role("messages", "json", "messages"),)
    [row] = rows_of(read_all(tmp_path / "x.parquet", roles=roles))
    [found] = json.loads(row["messages"])
    more = found.pop("more", {})
    assert found == {"role": "user", "content": "Hi"}
    assert more == (json.loads(text) if text[:1] in "[{" else text)


ODD = {
    "a map of objects": pa.array(
        [[({"a": 1}, 2)]], pa.map_(pa.struct([("a", pa.int8())]), pa.int8())
    ),
    "a map of bytes": pa.array([[(b"a", 2)]], pa.map_(pa.binary(), pa.int8())),
    "a span of months": pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
    "runs": pa.RunEndEncodedArray.from_arrays([1], ["a"]),
}


@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
def test_values_that_are_no_text_nor_json_are_refused_by_type(tmp_path, value):
    write_table(tmp_path / "x.arrow", pa.table({"text": ["a"], "meta": value}))
    roles = (*TEXT_ROLES, Role("meta", "field", "meta"))
    with pytest.raises(UsageError, match="--keep_fields=meta has type .*, but must be text, numb"):
        read_all(tmp_path / "x.arrow", roles=roles)


def test_numbers_that_json_does_not_have_are_null(tmp_path):
    """Missing as a whole, and null inside a list, whatever the format."""
    roles = (*TEXT_ROLES, Role("x", "field", "x", optional=True))
    rows = [{"text": "a", "x": math.nan}, {"text": "b", "x": -math.inf}, {"text": "c", "x": 1.5}]
    deep = [{"text": "d", "x": [{"y": math.nan}, {"y": 2.0}]}]
    for name, some, expected in (("x", rows, ["", "", "1.5"]), ("y", deep, None)):
        write_table(tmp_path / f"{name}.parquet", pa.Table.from_pylist(some))
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, some)))
        for ending in ("parquet", "jsonl"):
            read = rows_of(read_all(tmp_path / f"{name}.{ending}", roles=roles))
            assert [r["x"] for r in read] == (expected or ['[{"y": null}, {"y": 2.0}]'])
    nested = "[" * 600 + "NaN" + "]" * 600
    (tmp_path / "z.jsonl").write_text(f'{{"text": "e", "x": {nested}}}')
    [row] = rows_of(read_all(tmp_path / "z.jsonl", roles=roles))
    assert row["x"] == nested.replace("NaN", "null")


@pytest.mark.parametrize("kind", ["text", "answers"])
def test_a_dictionary_that_expands_is_read_a_few_rows_at_once(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "_MOST_BYTES", 1 << 20)
    long = pa.DictionaryArray.from_arrays(np.zeros(5000, np.int32), ["a" * 10_000])
    columns: dict = {"text": long}
    if kind == "answers":  # two in each row
        starts = pa.array(np.arange(0, 5001, 2, dtype=np.int32))
        answers = pa.ListArray.from_arrays(starts, long.cast(pa.string()))
        columns = {"text": ["q"] * 2500, "answers": answers}
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(columns), path, compression="zstd")
    assert path.stat().st_size < 10_000
    roles = (*TEXT_ROLES, Role("answers", "answers", "answers"))[: len(columns)]
    source = Source((str(path),), roles=roles, block_bytes=1000)
    [block] = plan_blocks(source)
    sizes = [documents.source_bytes for documents in read_block(block, source)]
    assert sum(sizes) == 50_000_000 + 2500 * (kind == "answers")
    assert max(sizes) <= 1 << 20


def test_a_null_among_answers_is_no_answer(tmp_path):
    """Arrow keeps values below a null, which are none of the file's."""
    fields = [pa.array(["left over", "b"]), pa.array([5, 1])]
    names, mask = ["text", "answer_start"], pa.array([True, False])
    answers = pa.StructArray.from_arrays(fields, names=names, mask=mask)
    lists = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), answers)
    write_table(tmp_path / "x.arrow", pa.table({"text": ["q"], "answers": lists}))
    roles = (*TEXT_ROLES, Role("answers", "answers", "answers"))
    assert rejects_of(read_all(tmp_path / "x.arrow", roles=roles)) == [(0, "not_answers")]


FLIPS = """
import io, sys
import pyarrow as pa, pyarrow.parquet as pq
from textmill.pipelines.readers.formats import parquet
from textmill.pipelines.readers.sources import Source
from textmill.pipelines.readers.stored import Part
from textmill.schemas.errors import TextmillError
sink = io.BytesIO()
pq.write_table(pa.table({"text": ["a", "bcd"] * 9}), sink, row_group_size=9, store_schema=False)
content = sink.getvalue()
size = len(content)
source = Source(("a.parquet",))
messages = set()
for place in range(size - 8 - int.from_bytes(content[-8:-4], "little"), size - 8):
    for flip in (1, 2, 3, 4, 5, 6, 7, 16, 128):
        damaged = bytearray(content)
        damaged[place] ^= flip
        raw = io.BytesIO(damaged)
        try:
            for part in parquet.plan(raw, Part("a.parquet", size, 0, size, "parquet"), source):
                list(parquet.read(raw, part, source))
        except TextmillError as error:
            messages.add(str(error))
print("\\n".join(messages))
"""


def test_flips_in_a_parquet_footer_never_end_the_process():
    run = run_python("-c", FLIPS)
    assert run.returncode == 0, run.stderr[-500:]
    assert "is not a complete Parquet file (a column from byte " in run.stdout
    # Asked of the metadata itself, Arrow ends the process with this.
    assert "is not a complete Parquet file (Definition level histogram size mismatch" in run.stdout
