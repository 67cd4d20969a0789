"""Exports in MDS, decoded by numpy as the format is documented; tests/interop/read_mds.py has its
own reader do it, and test_export has what all formats share."""

import io
import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pipelines.export import main
from pipelines.inspection import export_formats
from pipelines.inspection.export_formats import index_mds, write_mds
from schemas.errors import UsageError
from tests.tools.clm_factory import write_clm_set
from tests.tools.mds_rows import read_mds


def export(directory, output, *flags, to="mds"):
    main([str(directory), f"--to={to}", f"--output={output}", *flags])


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
        export(tmp_path / "set", tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {".lock"}


def test_an_export_from_a_stranger_removes_nothing_of_others(tmp_path):
    write_clm_set(tmp_path / "set")
    output = tmp_path / "a" / "out"
    export(tmp_path / "set", output)
    mine = [tmp_path / "mine", tmp_path / "a" / "mine", tmp_path / "a" / "b" / "mine"]
    mine[2].parent.mkdir()
    for path in mine:
        path.write_text("mine")
    record = json.loads((output / "export.json").read_text())
    names = ["../mine", "../../mine", "../b/mine", str(mine[0]), "..", "train/..", ""]
    record["files"] = dict.fromkeys(names, 1)
    (output / "export.json").write_text(json.dumps(record))
    export(tmp_path / "set", output, "--overwrite")
    assert all(path.read_text() == "mine" for path in mine)
    assert len(read_mds(output / "train")) == 40
