"""One directory, many tools: each reads, with its own public call, what was written."""

import numpy as np
import pytest

from pipelines import export
from pipelines.build_shards import main as build_shards
from pipelines.writers.tfds_info import tfds_files
from schemas.metadata import read_set
from tests.tools.reader_tools import TOOLS
from tests.tools.shard_factory import mlm_schema, packed_rows, write_set
from trainers.reader import ShardSet

pytestmark = [
    # TFDS 4.9 asks protobuf for what protobuf 6 deprecates.
    pytest.mark.filterwarnings(r"ignore:label\(\) is deprecated:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def made(corpus, tokenizer_path, tmp_path_factory):
    """Directories: a set that build_shards wrote in both formats, and its exports by format."""
    directory = tmp_path_factory.mktemp("readers")
    build_shards(
        [
            f"--input={corpus}",
            f"--tokenizer={tokenizer_path}",
            f"--output={directory / 'set'}",
            "--num_shards=train:3,validation:1",
            "--splits=train:0.9,validation:0.1",
            "--file_format=both",
            "--max_length=64",
        ]
    )
    for to in ("parquet", "arrow", "jsonl"):
        export.main([str(directory / "set"), f"--to={to}", f"--output={directory / to}"])
    return {name: directory / name for name in ("set", "parquet", "arrow", "jsonl")}


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


@pytest.fixture(scope="module")
def classic(tmp_path_factory):
    """A set with --encoding=int64_list, a vocabulary above 2**16, and its columns."""
    directory = tmp_path_factory.mktemp("classic")
    schema = mlm_schema(
        encoding="int64_list", vocab_size=70_000, file_formats=("array_record", "tfrecord")
    )
    rows = {split: packed_rows(schema, 70, seed=1) for split in ("train", "validation")}
    write_set(directory / "set", schema, rows)
    info = read_set(str(directory / "set"))
    for name, content in tfds_files(info.schema, info.manifest.files, info.stats).items():
        (directory / "set" / name).write_bytes(content)
    return directory / "set"


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


def test_grain_reads_a_mixture(made):
    import grain

    mixture = ShardSet.mix({str(made["set"]): 0.5, str(made["set"]) + "/.": 0.5})
    rows = mixture.split("validation")
    assert len(grain.MapDataset.source(rows)) == 2 * ShardSet(str(made["set"])).rows("validation")
    np.testing.assert_array_equal(rows[0]["input_ids"], rows[len(rows) // 2]["input_ids"])
