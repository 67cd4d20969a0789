"""Exports: every row comes out as it is in the dataset, and a failed export leaves no file."""

import hashlib
import io
import json
import signal
import subprocess
import sys
import time
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.tools.clm_factory import write_clm_set
from tests.tools.mds_rows import read_mds
from tests.tools.places import ROOT
from tests.tools.python_process import run_python
from tests.tools.shard_factory import (
    SPECIAL_IDS,
    mlm_schema,
    packed_rows,
    write_set,
)
from textmill.pipelines.export import main
from textmill.pipelines.inspection import export_formats, row_table
from textmill.pipelines.inspection.export_formats import index_mds, write_mds
from textmill.pipelines.inspection.options import Format, Layout
from textmill.pipelines.writers.output_directory import EXPORT_RECORD
from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.files.finished import read_dataset
from textmill.schemas.format.features import positions_from_segments, unmask
from textmill.schemas.format.layouts import LAYOUTS

ROWS = {"train": 21, "validation": 1, "test": 0}
SPLITS = {"train": 0.6, "validation": 0.2, "test": 0.2}
SHARDS = {"train": 2, "validation": 2, "test": 1}  # a shard of validation has no row
FORMATS = ["parquet", "jsonl", "arrow", "mds"]


def make(directory, **changes):
    """A set of a few rows; returns its columns by split."""
    schema = mlm_schema(splits=SPLITS, shards=SHARDS, **changes)
    columns = {split: packed_rows(schema, rows, seed=3) for split, rows in ROWS.items()}
    return write_set(directory, schema, columns)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Directory and columns of a set with masks."""
    directory = tmp_path_factory.mktemp("export") / "set"
    return directory, make(directory)


def export(directory, output, *flags, to="parquet"):
    main([str(directory), f"--to={to}", f"--output={output}", *flags])


def read_table(output, split, to="parquet"):
    """All rows of a split, in the order of its files."""
    if to == "mds":
        return [
            {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in row.items()}
            for row in read_mds(output / split)
        ]
    files = sorted(output.glob(f"{split}-*.{to}"))
    if to == "jsonl":
        return [json.loads(line) for f in files for line in f.read_text("utf-8").splitlines()]
    opened = pq.read_table if to == "parquet" else lambda f: pa.ipc.open_stream(f).read_all()
    tables = [opened(file) for file in files]
    assert len({table.schema for table in tables}) == 1
    return pa.concat_tables(tables).to_pylist()


def assert_rows(rows, columns):
    assert len(rows) == len(next(iter(columns.values())))
    for index, row in enumerate(rows):
        assert row == {name: values[index].tolist() for name, values in columns.items()}


def texts_of(columns):
    """Token i of these datasets is the word "wi"; segments are `<s> ... </s>`, masked or not."""
    return [
        [
            " ".join(f"w{token}" for token in ids[segments == number][1:-1])
            for number in range(1, segments.max() + 1)
        ]
        for ids, segments in zip(unmask(columns), columns["segment_ids"], strict=True)
    ]


@pytest.mark.parametrize("encoding", ["bits", "int64_list"])
@pytest.mark.parametrize("to", FORMATS)
def test_every_row_comes_out(tmp_path, monkeypatch, to, encoding):
    monkeypatch.setattr(row_table, "CHUNK_BYTES", 2000)  # several chunks a shard
    columns = make(tmp_path / "set", encoding=encoding, file_formats=("array_record",))
    text = ["--text"] if encoding == "bits" else []
    export(tmp_path / "set", tmp_path / "out", *text, to=to)
    names = {f"{s}-0000{i}-of-0000{n}.{to}" for s, n in SHARDS.items() for i in range(n)}
    if to == "mds":
        names = {f"{name.split('-')[0]}/{name}" for name in names}
        names |= {f"{split}/index.json" for split in SHARDS}
    files = {path.relative_to(tmp_path / "out").as_posix() for path in tmp_path.glob("out/**/*")}
    assert files - {*SHARDS} == names | {".lock", "export.json"}
    record = json.loads((tmp_path / "out" / "export.json").read_text())
    assert record["files"].keys() == names and sum(record["files"].values()) == 22
    for split, expected in columns.items():
        if encoding == "int64_list":
            positions = positions_from_segments(expected["segment_ids"])
            expected = {**expected, "positions": positions}
        rows = read_table(tmp_path / "out", split, to)
        if text:
            assert [row.pop("text") for row in rows] == texts_of(expected)
        assert_rows(rows, expected)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("to", FORMATS)
def test_layouts_in_every_format(tmp_path, to, layout):
    """Every format has the columns of the layout, which test_layouts.py of schemas pins."""
    packing = "concat" if layout == "llm_foundry" else "best_fit"
    columns = write_clm_set(tmp_path / "set", packing=packing)["train"]
    export(tmp_path / "set", tmp_path / "out", f"--layout={layout}", "--text", to=to)
    rows = read_table(tmp_path / "out", "train", to)
    assert [row.pop("text") for row in rows] == texts_of(columns)
    assert_rows(rows, LAYOUTS[layout](columns))
    record = json.loads((tmp_path / "out" / "export.json").read_text())
    assert record["to"] == f"{to}, {layout}"


def test_tables_of_options_name_what_there_is():
    assert sorted(get_args(Layout)) == sorted(LAYOUTS)
    assert sorted(get_args(Format)) == sorted(FORMATS)


def test_a_damaged_export_is_none(made, tmp_path):
    """It is named, and --overwrite writes it again."""
    export(made[0], tmp_path / "out")
    path = tmp_path / "out" / "train-00001-of-00002.parquet"
    whole = path.read_bytes()
    for damaged in (None, whole[:-9], whole[:50] + b"x" + whole[51:]):
        path.unlink()
        if damaged:
            path.write_bytes(damaged)
        said = f"{path.name} (of a finished|has changed).*--overwrite"
        with pytest.raises(DataError, match=said):
            export(made[0], tmp_path / "out")
        export(made[0], tmp_path / "out", "--overwrite")
        assert path.read_bytes() == whole
    (tmp_path / "out/export.json").write_text("{")
    with pytest.raises(DataError, match=r"export\.json is not JSON"):
        export(made[0], tmp_path / "out")
    export(made[0], tmp_path / "out", "--overwrite")
    export(made[0], tmp_path / "out")


def test_another_export_is_refused_or_replaced(made, tmp_path):
    """Folders of MDS go with their files, unless something else is in one."""
    output = tmp_path / "out"
    export(made[0], output, to="mds")
    (output / "train" / "mine").write_text("mine")
    with pytest.raises(UsageError, match="another export .to 'mds', not 'jsonl'; unmask F"):
        export(made[0], output, "--unmask", to="jsonl")
    make(tmp_path / "other", seed=4)
    with pytest.raises(UsageError, match="contains another export .another dataset"):
        export(tmp_path / "other", output, to="mds")
    export(made[0], output, "--unmask", "--overwrite", to="jsonl")
    left = {path.relative_to(output).as_posix() for path in output.rglob("*") if path.is_file()}
    shards = {f"{s}-0000{i}-of-0000{n}.jsonl" for s, n in SHARDS.items() for i in range(n)}
    assert left == {".lock", "export.json", "train/mine", *shards}
    assert not (output / "validation").exists() and not (output / ".staging").exists()
    columns = made[1]["train"]
    expected = {"input_ids": unmask(columns), "segment_ids": columns["segment_ids"]}
    assert (expected["input_ids"] != columns["input_ids"]).any()
    assert_rows(read_table(output, "train", "jsonl"), expected)


@pytest.mark.parametrize(
    "flags, said",
    [
        (["--layout=torch"], "--layout=torch: choose one of huggingface, llm_foundry, maxtext$"),
        (["--layout=maxtext"], "layout maxtext needs rows of decoders"),
        (["--split=dev"], "no such split; it has test, train, validation"),
        (["--output={set}"], "already contains a dataset .MANIFEST.json.: use another"),
        (["--output="], "--output is empty: give the directory of the export"),
        (["--output={set}/schema.json"], "is a file, or below a file"),
        (["--output=s3://bucket/rows"], "written to a disk; give a local directory"),
    ],
)
def test_flags_that_cannot_be_exported_are_refused(made, tmp_path, flags, said):
    with pytest.raises(UsageError, match=said):
        export(made[0], tmp_path / "out", *(flag.format(set=made[0]) for flag in flags))


def test_unmask_without_masks(tmp_path):
    make(tmp_path / "set", static_masking=False)
    with pytest.raises(UsageError, match="have no masks"):
        export(tmp_path / "set", tmp_path / "out", "--unmask")
    assert not (tmp_path / "out").exists()


def test_files_of_others_are_kept(made, tmp_path):
    (tmp_path / "out").mkdir()
    mine = tmp_path / "out" / "train-00000-of-00002.jsonl"
    mine.write_text("mine")
    with pytest.raises(UsageError, match="already has a train-00000-of-00002.jsonl, but no"):
        export(made[0], tmp_path / "out", to="jsonl")
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("to", FORMATS)
def test_a_disk_that_refuses(made, tmp_path, to):
    """Files may grow to 512 bytes here: less than the rows take."""
    code = (
        "import resource, signal\nfrom textmill.schemas.commands.entry import run_entry\n"
        "from textmill.pipelines.export import main\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))\nrun_entry(main)"
    )
    arguments = [str(made[0]), f"--to={to}", f"--output={tmp_path / 'out'}"]
    found = run_python("-c", code, *arguments)
    assert found.returncode == 1
    said = found.stderr.strip().splitlines()
    assert len(said) == 1, said
    assert said[0].startswith("error: cannot write ") and said[0].endswith("File too large")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {".lock"}
    export(made[0], tmp_path / "out", to=to)  # and the same command again completes it
    assert len(read_table(tmp_path / "out", "train", to)) == 21


def test_interrupted_it_leaves_nothing(made, tmp_path):
    """Ctrl-C while rows are written: 130, and no file that a reader would open."""
    code = (
        "import time\nfrom textmill.pipelines.inspection import row_table\n"
        "from textmill.schemas.commands.entry import run_entry\n"
        "from textmill.pipelines.export import main\n"
        "row_table.read_rows = lambda *arguments: time.sleep(60)\nrun_entry(main)"
    )
    output = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(made[0]), "--to=parquet", f"--output={output}"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not list(output.glob(".staging/*.parquet")):
        assert process.poll() is None
        time.sleep(0.05)
    with pytest.raises(UsageError, match="another run writes into"):
        export(made[0], output)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130 and said == "interrupted\n"
    assert {path.name for path in output.iterdir()} == {".lock"}


def test_what_an_export_records_and_that_a_second_run_finds_it(made, tmp_path, capsys):
    export(made[0], tmp_path / "out", "--split=train")
    assert "ok: 21 rows in 2 parquet files" in capsys.readouterr().out
    record = json.loads((tmp_path / "out" / "export.json").read_text())
    info = read_dataset(str(made[0]))
    assert record == {
        "fingerprint": info.schema.fingerprint,
        "manifest": [f.sha256 for f in info.manifest.shards("train", "tfrecord")],
        "to": "parquet",
        "unmask": False,
        "text": False,
        "files": {"train-00000-of-00002.parquet": 10, "train-00001-of-00002.parquet": 11},
        "sha256": {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in (tmp_path / "out").glob("*.parquet")
        },
    }
    schema = pq.read_schema(tmp_path / "out" / "train-00000-of-00002.parquet")
    assert schema.field("input_ids").type == pa.list_(pa.uint16(), 16)
    assert schema.field("masked_weights").type == pa.list_(pa.uint8(), 2)
    assert schema.metadata[b"textmill.fingerprint"] == info.schema.fingerprint.encode()
    assert json.loads(schema.metadata[b"textmill.special_ids"]) == SPECIAL_IDS
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("[!.]*")}
    assert EXPORT_RECORD in {path.name for path in before}
    export(made[0], tmp_path / "out", "--split=train")
    assert "already has this export" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in before} == before


# MDS, decoded by numpy as its format is documented; tests/interop/read_mds.py has its own reader


def test_a_file_worked_by_hand():
    columns = {"label": pa.array([7, 8], pa.uint8()), "text": pa.array([["é"], []])}
    ids = pa.FixedSizeListArray.from_arrays(pa.array([1, 2, 3, 65535], pa.uint16()), 2)
    chunk = pa.RecordBatch.from_pydict(
        {"text": columns["text"], "label": columns["label"], "ids": ids}
    )
    file = io.BytesIO()
    write_mds(file, chunk.schema, 2, [chunk])
    configuration = (
        b'{"column_encodings": ["ndarray:uint16:2", "uint8", "json"], '
        b'"column_names": ["ids", "label", "text"], "column_sizes": [4, 1, null], '
        b'"compression": null, "format": "mds", "hashes": [], "size_limit": null, "version": 2}'
    )
    rows = [
        b"\x0a\0\0\0" + b"\x01\0\x02\0" + b"\x07" + b'["\\u00e9"]',
        b"\x02\0\0\0" + b"\x03\0\xff\xff" + b"\x08" + b"[]",
    ]
    begin = 4 + 12 + len(configuration)
    offsets = np.array([begin, begin + 19, begin + 30], "<u4").tobytes()
    assert file.getvalue() == b"\x02\0\0\0" + offsets + configuration + b"".join(rows)
    index = json.loads(index_mds(chunk.schema, [("train/a", 2, 9), ("train/b", 0, 4)]))
    assert index == {
        "version": 2,
        "shards": [
            {
                **json.loads(configuration),
                "samples": 2,
                "raw_data": {"basename": "a", "bytes": 9, "hashes": {}},
                "zip_data": None,
            }
        ],
    }


@given(st.data())
@settings(max_examples=50)
def test_any_columns_are_read_back(tmp_path_factory, data):
    """Whatever the types, lengths, texts and chunks."""
    rows = data.draw(st.integers(1, 5))
    texts = st.lists(st.lists(st.text(max_size=4), max_size=3), min_size=rows, max_size=rows)
    dtypes = st.sampled_from(["uint8", "uint16", "uint32", "int32", "int64"])
    arrays = hnp.arrays(dtypes, st.sampled_from([(rows,), (rows, 1), (rows, 2), (rows, 3)]))
    drawn = data.draw(st.dictionaries(st.sampled_from("abcd"), texts | arrays, min_size=1))
    columns = {}
    for name, values in drawn.items():
        if isinstance(values, list):
            columns[name] = pa.array(values, pa.list_(pa.string()))
        elif values.ndim == 1:
            columns[name] = pa.array(values)
        else:
            flat = pa.array(values.ravel())
            columns[name] = pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    chunk = pa.RecordBatch.from_pydict(columns)
    folder = tmp_path_factory.mktemp("mds")
    cut = data.draw(st.integers(0, rows - 1))
    with open(folder / "one.mds", "xb") as file:
        parts = (chunk.slice(0, cut), chunk.slice(cut)) if cut else (chunk,)
        write_mds(file, chunk.schema, rows, parts)
    size = (folder / "one.mds").stat().st_size
    (folder / "index.json").write_bytes(index_mds(chunk.schema, [("one.mds", rows, size)]))
    found = read_mds(folder)
    for name, values in drawn.items():
        assert [np.asarray(row[name], object).tolist() for row in found] == [
            np.asarray(value, object).tolist() for value in values
        ]


def test_a_file_too_large_for_its_offsets(tmp_path, monkeypatch):
    write_clm_set(tmp_path / "set")
    monkeypatch.setattr(export_formats, "_MDS_BYTES", 1600)
    with pytest.raises(UsageError, match="exceeds 1,600 bytes.* larger --num_shards"):
        export(tmp_path / "set", tmp_path / "out", to="mds")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {".lock"}


def test_an_export_from_a_stranger_removes_nothing_of_others(tmp_path):
    write_clm_set(tmp_path / "set")
    output = tmp_path / "a" / "out"
    export(tmp_path / "set", output, to="mds")
    mine = [tmp_path / "mine", tmp_path / "a" / "mine", tmp_path / "a" / "b" / "mine"]
    mine[2].parent.mkdir()
    for path in mine:
        path.write_text("mine")
    record = json.loads((output / "export.json").read_text())
    names = ["../mine", "../../mine", "../b/mine", str(mine[0]), "..", "train/..", ""]
    record["files"] = dict.fromkeys(names, 1)
    (output / "export.json").write_text(json.dumps(record))
    export(tmp_path / "set", output, "--overwrite", to="mds")
    assert all(path.read_text() == "mine" for path in mine)
    assert len(read_mds(output / "train")) == 40
