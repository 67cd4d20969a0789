"""TensorFlow Datasets opens our sets, and its own form of the two files is ours."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.writers.tfds_info import tfds_files
from schemas.features import positions_from_segments
from schemas.metadata import read_set
from tests.tools.shard_factory import mlm_schema, packed_rows, write_set

# TFDS 4.9 asks protobuf for what protobuf 6 deprecates.
pytestmark = pytest.mark.filterwarnings(r"ignore:label\(\) is deprecated:DeprecationWarning")

SPLITS = {"train": 0.6, "validation": 0.2, "test": 0.2}
SHARDS = {"train": 2, "validation": 3, "test": 1}
ROWS = {"train": 30, "validation": 2, "test": 0}  # a shard of validation has no row


def _make(directory: Path, **changes) -> dict[str, dict[str, np.ndarray]]:
    """A set with the two files; returns its columns."""
    schema = mlm_schema(splits=SPLITS, shards=SHARDS, **changes)
    columns = {split: packed_rows(schema, rows, seed=3) for split, rows in ROWS.items()}
    write_set(directory, schema, columns)
    info = read_set(str(directory))
    for name, content in tfds_files(info.schema, info.manifest.files, info.stats).items():
        (directory / name).write_bytes(content)
    if schema.encoding == "int64_list":
        for split in columns.values():
            split["positions"] = positions_from_segments(split["segment_ids"])
    return columns


def _open(directory: Path) -> Any:  # TFDS's decorators hide its signatures from type checkers
    import tensorflow_datasets as tfds

    return tfds.builder_from_directory(str(directory))


@pytest.mark.parametrize("encoding", ["bytes", "int64_list"])
def test_tfds_writes_the_same_files(tmp_path, encoding):
    """TFDS reads our files, and writes equal ones."""
    directory = tmp_path / "set"
    _make(directory, file_formats=("array_record", "tfrecord"), encoding=encoding)
    builder = _open(directory)
    (tmp_path / "theirs").mkdir()
    builder.info.write_to_directory(tmp_path / "theirs")
    for name in ("dataset_info.json", "features.json"):
        ours, theirs = (json.loads((tmp_path / d / name).read_text()) for d in ("set", "theirs"))
        for split in ours.get("splits", ()):
            if split["numBytes"] == "0":
                del split["numBytes"]  # the JSON of a protocol buffer has no zeros
        added = set(theirs) - set(ours)
        assert added <= {"moduleName", "redistributionInfo"}
        assert ours == {key: value for key, value in theirs.items() if key not in added}


def test_dataset_info_worked_by_hand(tmp_path):
    directory = tmp_path / "set"
    _make(directory, file_formats=("tfrecord",))
    values = json.loads((directory / "dataset_info.json").read_text())
    stride = mlm_schema().codec().stride
    template = "{SPLIT}-{SHARD_X_OF_Y}.{FILEFORMAT}"
    assert values["fileFormat"] == "tfrecord"
    assert (values["name"], values["version"]) == ("textmill_mlm", "3.0.0")
    assert values["splits"] == [
        {
            "name": name,
            "filepathTemplate": template,
            "shardLengths": lengths,
            "numBytes": str(sum(map(int, lengths)) * stride),
        }
        for name, lengths in (
            ("test", ["0"]),
            ("train", ["15", "15"]),
            ("validation", ["0", "1", "1"]),
        )
    ]
