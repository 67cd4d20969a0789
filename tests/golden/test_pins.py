"""The pure functions that decide the bytes of a dataset give the values that they gave before.

The inputs are drawn by numpy's RandomState, whose numbers never change.
"""

from collections.abc import Iterator
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from textmill.pipelines.corpus.near_duplicates.buckets import band_keys, signatures, sketches
from textmill.pipelines.corpus.near_duplicates.flags import Bands, Shingle
from textmill.pipelines.corpus.near_duplicates.shingles import shingle_sets
from textmill.pipelines.rows.example_batch import ExampleBatch
from textmill.pipelines.rows.masking import Masking
from textmill.pipelines.rows.packing import pack, try_ways
from textmill.pipelines.rows.ragged import Ragged
from textmill.pipelines.rows.routing import Routes, content_digests, joint_digests
from textmill.pipelines.tasks.span_corruption import Noise, SpanCorruption
from textmill.trainers.data.row_order import epoch_and_row

TEXTS = pa.array(
    ["", "a", "the wheel turns", "the wheel turns slowly and the miller sleeps", "møllehjulet 水車"]
    + [" ".join(f"word{n * n % 97}" for n in range(size)) for size in range(1, 400, 37)],
    pa.large_string(),
)


def lengths_of(kind: str, length: int) -> np.ndarray:
    """Lengths of segments as documents, sentences, or a few lengths have them."""
    draw = np.random.RandomState(0)
    if kind == "documents":
        lengths = np.rint(np.exp(draw.normal(np.log(length) - 1, 1, 900)))
    elif kind == "sentences":
        lengths = draw.gamma(2.0, length / 12, 900)
    else:
        lengths = draw.choice([length // 3, length // 2 + 1, length - 5, 7], 900)
    return np.clip(lengths, 1, length).astype(np.int64)


def packings() -> Iterator[np.ndarray]:
    """Segments of rows, and the parts of rows that each search finds."""
    for length in (128, 513, 1024, 4096):
        for kind in ("documents", "sentences", "few"):
            lengths = lengths_of(kind, length)
            offsets = np.append(0, np.cumsum(lengths))
            for method in ("best_fit", "concat", "none"):
                packing = pack(offsets, length, method)
                yield from (packing.row_S, packing.offset_S, packing.segment_S)
                yield from (packing.start_S, packing.length_S, packing.bounds)
            yield from (parts for _, parts in try_ways(np.bincount(lengths, minlength=length + 1)))
            room = np.minimum(lengths + 3, length)
            yield pack(offsets, length, "best_fit", room).row_S


def masks() -> Iterator[np.ndarray]:
    """Columns of masked rows, by token, word and span."""
    draw = np.random.RandomState(1)
    ids = draw.randint(0, 500, (64, 96)).astype(np.uint16)
    segments = np.minimum(np.arange(96) // 30, 3).astype(np.uint8)[None].repeat(64, 0)
    segments[::2, 70:] = 0
    keys = draw.randint(0, 1 << 62, 64).astype(np.uint64)
    is_special, is_start = np.arange(500) < 5, np.arange(500) % 3 > 0
    for unit in ("token", "word", "span"):
        for rate, slots in ((0.15, 20), (1.0, 96)):
            masking = Masking(rate, slots, 4, is_special, is_start, unit)
            yield from masking.apply(ids, segments, keys).values()


def noises() -> Iterator[np.ndarray]:
    """Spans of noise, with the inputs and targets of T5."""
    draw = np.random.RandomState(2)
    lengths = draw.randint(0, 200, 300)
    offsets, keys = (
        np.append(0, np.cumsum(lengths)),
        draw.randint(0, 1 << 62, 300).astype(np.uint64),
    )
    ids, sentinels = draw.randint(0, 900, lengths.sum()), np.arange(1000, 1100)
    for share, mean in ((0.15, 3.0), (0.5, 3.0), (0.15, 32.0)):
        noise = Noise(share, mean)
        yield from noise.row_lengths(lengths)
        spans = noise.spans(offsets, keys)
        yield from (spans.start_N, spans.length_N)
        for side in spans.pairs(ids, sentinels, 1):
            yield from (side.values, side.offsets)
    schema: Any = SimpleNamespace(
        vocab_size=1100,
        max_length=64,
        seed=3,
        parameters={"max_target_length": 20, "sentinel_ids": sentinels.tolist()},
        special_ids={"eos": 1},
    )
    digests = draw.randint(0, 256, (300, 16)).astype(np.uint8)
    columns = {"ids": Ragged(ids.astype(np.uint16), offsets)}
    batch = ExampleBatch.of(digests, np.ones(300, np.int64), columns)
    segments = SpanCorruption().segments(batch, schema)
    yield from (segments.stream, segments.offsets, segments.pairs["target_ids"].values)


def routes() -> Iterator[np.ndarray]:
    """Digests of documents, and their splits and shards."""
    digests = content_digests(TEXTS)
    yield digests
    yield joint_digests([TEXTS, TEXTS[::-1]])
    table = Routes(
        {"train": 0.7, "validation": 0.2, "test": 0.1}, {"train": 5, "validation": 2, "test": 1}
    )
    yield table.of(digests)
    yield table.of_split(digests, "validation")


def orders() -> Iterator[np.ndarray]:
    """Epochs and rows of the positions of three epochs."""
    for rows in (1, 2, 10, 1000, 1023):
        for stream in (0, 1):
            yield from epoch_and_row(np.arange(3 * rows), rows=rows, seed=7, stream=stream)
    yield from epoch_and_row(np.arange(1000) + (1 << 50), rows=(1 << 45) + 3, seed=0)


def near_duplicates() -> Iterator[np.ndarray]:
    """Shingles, signatures, keys of buckets and sketches."""
    for unit, size in (("word", 3), ("word", 5), ("char", 9)):
        shingle, bands = Shingle(unit, size), Bands(16, 8)
        sets = shingle_sets(TEXTS, shingle)
        yield from (sets.values, sets.offsets)
        signature = signatures(TEXTS, shingle, bands)
        yield from (signature, band_keys(signature, bands), sketches(signature))


PINS = {
    packings: "7388e7f6017f9f4d069b29689a598272a924eafef7d6e07d1f9462447a6901f3",
    masks: "30d5ec92e26a575c36150ef187bc276ae3e546ee74f13f7da26c640190e28bea",
    noises: "5b8b00a26a45ebf1407f685ceb57a86734f34eebf75f730447bcaaaa3dd23d4d",
    routes: "21bf6b42001e9ea1b457a10f97dc265d33cc24c8082ddc1ed8cdea304524f0ab",
    orders: "92067e664ebe785f08b2eb2b36312ba1850c6861dadae9dd447380837db266af",
    near_duplicates: "26166e6fd4c438224c9e81158354ddb28358678a1c9b1bc95242705b24f784ec",
}


@pytest.mark.parametrize("function", PINS, ids=lambda function: function.__name__)
def test_values_are_those_of_before(function):
    digest = sha256()
    for value in function():
        little = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
        digest.update(f"{little.dtype.str} {little.shape} ".encode() + little.tobytes())
    assert digest.hexdigest() == PINS[function]
