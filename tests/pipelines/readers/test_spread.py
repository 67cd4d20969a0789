"""A large file is spread evenly over workers; the plan warns of others."""

import json
import os

import pytest

from pipelines.readers.sources import Block, Source, plan_blocks, read_block, uneven
from pipelines.readers.stored import Part

GIB = 1 << 30


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.ndjson"])
def test_a_file_of_2_gib_is_128_blocks(tmp_path, name):
    path = tmp_path / name
    path.touch()
    os.truncate(path, 2 * GIB)  # a hole: takes no place
    blocks = plan_blocks(Source((str(path),), "line"))
    assert [block.bytes for block in blocks] == [16 << 20] * 128
    assert [part.start for block in blocks for part in block.parts] == [
        number * (16 << 20) for number in range(128)
    ]
    assert uneven(blocks, 100) is None


def test_documents_of_a_file_are_spread_evenly_over_its_blocks(topics, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in topics))
    source = Source((str(path),), block_bytes=1 << 14)
    blocks = plan_blocks(source)
    sizes = [sum(d.source_bytes for d in read_block(block, source)) for block in blocks]
    assert sum(sizes) == path.stat().st_size
    # A document that goes on belongs to the block that it begins in.
    assert max(sizes) < 1.5 * (1 << 14)


def block(name, size, **how):
    return Block(0, (Part(name, size, 0, size, **how),))


SMALL = [block("small.txt", 16 << 20)] * 64  # 1 GiB


def test_a_compressed_file_that_holds_workers_up_is_said_with_the_remedy():
    assert uneven([*SMALL, block("a b.txt.zst", 2 * GIB)], 4) == (
        "one of 4 workers reads 67% of the input while the others wait: a b.txt.zst (2.1 GB) is "
        "read as a whole; unpack it if it is compressed, or split it into several files"
    )
    said = uneven([*SMALL, block("a.parquet", 2 * GIB, format="parquet")], 4)
    assert said and said.endswith("is read as a whole; write it with smaller row groups")


def test_what_holds_nobody_up_is_not_said():
    packed = block("a.txt.gz", GIB)
    assert uneven([packed], 1) is None  # all of it is one worker's anyway
    assert uneven([packed] * 4, 4) is None  # to each its own
    assert uneven([packed, *SMALL], 2) is None
    assert uneven([block("a.txt.gz", 200 << 20)], 8) is None  # seconds
    assert uneven([packed, *SMALL], 3)  # half of the input, where a third is a share
