"""A job is as small for a large corpus as for a small one."""

import apache_beam as beam
import pytest

from pipelines.build_shards import main as build_shards
from pipelines.readers.sources import Block, Part, read_blocks, write_blocks
from pipelines.train_tokenizer import main as train_tokenizer
from schemas.errors import DataError


@pytest.fixture
def jobs(monkeypatch):
    """(steps, bytes) of each pipeline as a runner receives it."""
    found, run = [], beam.Pipeline.run

    def keep(pipeline, *arguments, **named):
        proto = pipeline.to_runner_api()
        found.append((len(proto.components.transforms), len(proto.SerializeToString())))
        return run(pipeline, *arguments, **named)

    monkeypatch.setattr(beam.Pipeline, "run", keep)
    return found


def write_files(folder, count):
    folder.mkdir()
    for i in range(count):
        (folder / f"{i:05d}.txt").write_text(f"Document {i} has a text of its own, like all.\n")
    return folder


@pytest.mark.parametrize("command", [build_shards, train_tokenizer])
def test_neither_files_nor_shards_make_a_job_larger(command, tmp_path, tokenizer_path, jobs):
    for name, count, shards in (("few", 10, 2), ("many", 300, 40)):
        given = write_files(tmp_path / name, count)
        flags = [f"--input={given}", f"--output={tmp_path / name}-out"]
        if command is build_shards:
            flags += [f"--tokenizer={tokenizer_path}", f"--num_shards={shards}", "--max_length=32"]
        else:
            flags += ["--vocab_size=300"]
        command(flags)
    (steps, size), (steps_of_many, size_of_many) = jobs
    assert steps == steps_of_many
    assert abs(size - size_of_many) < 200  # paths and numbers of other lengths
    assert size < 100_000


def test_many_blocks_go_by_a_file(tmp_path):
    blocks = [Block(i, (Part(f"some/where/{i}.txt", 5, 0, 5),)) for i in range(20_000)]
    write_blocks(str(tmp_path), blocks)
    assert read_blocks(str(tmp_path)) == blocks
    with pytest.raises(DataError, match="that all workers share"):
        read_blocks(str(tmp_path / "elsewhere"))
