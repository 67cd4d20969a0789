"""Each tool reads, with its own public call, what was written; TFDS writes the same two files."""

import json
from typing import Any

import numpy as np
import pytest

from tests.tools.reader_tools import TOOLS, tf_data_schema_json
from tests.tools.shard_factory import mlm_schema, packed_rows, write_set
from textmill.pipelines import export
from textmill.pipelines.build_shards import main as build_shards
from textmill.pipelines.writers.tfds_info import tfds_files
from textmill.schemas.files.finished import read_dataset
from textmill.trainers.reader import ShardSet

pytestmark = [
    # TFDS 4.9 asks protobuf for what protobuf 6 deprecates.
    pytest.mark.filterwarnings(r"ignore:label\(\) is deprecated:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def made(corpus, tokenizer_path, tmp_path_factory):
    """Directories: a set that build_shards wrote in both formats, and its exports by format.

    `blobs` has the rows of the set in the encoding `bytes`.
    """
    directory = tmp_path_factory.mktemp("readers")
    for name, encoding in (("set", "bits"), ("blobs", "bytes")):
        build_shards(
            [
                f"--input={corpus}",
                f"--tokenizer={tokenizer_path}",
                f"--output={directory / name}",
                "--num_shards=train:3,validation:1",
                "--splits=train:0.9,validation:0.1",
                "--file_format=both",
                "--max_length=64",
                f"--encoding={encoding}",
            ]
        )
    for to in ("parquet", "arrow", "jsonl"):
        export.main([str(directory / "set"), f"--to={to}", f"--output={directory / to}"])
    return {name: directory / name for name in ("set", "blobs", "parquet", "arrow", "jsonl")}


@pytest.fixture(autouse=True)
def caches_of_the_test(tmp_path, monkeypatch):
    """datasets keeps what it converts: not in the home directory, and without a network."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.read.__name__)
def test_each_tool_reads_what_was_written(made, tool):
    """Three shards, and a last batch that is not full."""
    shards = ShardSet(str(made["set"]))
    assert shards.rows("train") > 1000 and shards.rows("train") % 64
    written = shards.read("train", np.arange(shards.rows("train")))
    _assert_equal(tool.read(str(made[tool.of]), "train"), written)


def _assert_equal(read: dict[str, np.ndarray], written: dict[str, np.ndarray]) -> None:
    assert set(read) == set(written)
    for name, values in written.items():
        np.testing.assert_array_equal(read[name], values, err_msg=name)
        assert read[name].dtype.kind in "iu"


SHARDS = {"train": 2, "validation": 3, "test": 1}
ROWS = {"train": 70, "validation": 2, "test": 0}  # a shard of validation has no row


def write_tfds_set(directory, **changes):
    """A dataset with the two files of TFDS."""
    schema = mlm_schema(splits=dict.fromkeys(SHARDS, 1 / 3), shards=SHARDS, **changes)
    write_set(directory, schema, {split: packed_rows(schema, n, 3) for split, n in ROWS.items()})
    info = read_dataset(str(directory))
    for name, content in tfds_files(info.schema, info.manifest.files, info.stats).items():
        (directory / name).write_bytes(content)
    return directory


BOTH = ("array_record", "tfrecord")


@pytest.fixture(scope="module")
def classic(tmp_path_factory):
    """Its vocabulary is above 2**16."""
    directory = tmp_path_factory.mktemp("classic") / "set"
    return write_tfds_set(directory, encoding="int64_list", vocab_size=70_000, file_formats=BOTH)


@pytest.mark.parametrize(
    "tool",
    [tool for tool in TOOLS if "numpy" in tool.package or "tensorflow" in tool.package],
    ids=lambda tool: tool.read.__name__,
)
def test_each_tool_that_parses_rows_reads_the_classic_encoding(classic, tool):
    written = ShardSet(str(classic)).read("train", np.arange(70))
    read = tool.read(str(classic), "train")
    if tool.read.__name__ == "tf_data_schema_json":
        del written["positions"]  # stored too, but no feature of the schema
    _assert_equal(read, written)


def test_tf_data_reads_bits_of_a_large_vocabulary(tmp_path):
    """Ids of 32 bits lie in two parts."""
    write_tfds_set(tmp_path / "set", vocab_size=70_000, file_formats=BOTH)
    written = ShardSet(str(tmp_path / "set")).read("train", np.arange(70))
    _assert_equal(tf_data_schema_json(str(tmp_path / "set"), "train"), written)
    assert written["input_ids"].max() > 1 << 16


def test_grain_reads_a_mixture(made):
    import grain

    mixture = ShardSet.mix({str(made["set"]): 0.5, str(made["set"]) + "/.": 0.5})
    rows = mixture.split("validation")
    assert len(grain.MapDataset.source(rows)) == 2 * ShardSet(str(made["set"])).rows("validation")
    np.testing.assert_array_equal(rows[0]["input_ids"], rows[len(rows) // 2]["input_ids"])


@pytest.mark.parametrize("encoding", ["bytes", "int64_list"])
def test_tfds_writes_the_same_files(tmp_path, encoding):
    """TFDS reads our files, and writes equal ones."""
    import tensorflow_datasets as tfds

    write_tfds_set(tmp_path / "set", file_formats=BOTH, encoding=encoding)
    builder: Any = tfds.builder_from_directory(str(tmp_path / "set"))
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
    directory = write_tfds_set(tmp_path / "set", file_formats=("tfrecord",), encoding="bytes")
    values = json.loads((directory / "dataset_info.json").read_text())
    stride = mlm_schema(encoding="bytes").codec().stride
    assert values["fileFormat"] == "tfrecord"
    assert (values["name"], values["version"]) == ("textmill_mlm", "4.0.0")
    fields = ("name", "shardLengths", "numBytes", "filepathTemplate")
    template = "{SPLIT}-{SHARD_X_OF_Y}.{FILEFORMAT}"
    assert [tuple(split[field] for field in fields) for split in values["splits"]] == [
        ("test", ["0"], "0", template),
        ("train", ["35", "35"], str(70 * stride), template),
        ("validation", ["0", "1", "1"], str(2 * stride), template),
    ]
