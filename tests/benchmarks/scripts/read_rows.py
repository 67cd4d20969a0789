"""Reads rows of a set shuffled, decoded to numpy batches, in one of several ways; prints seconds.

    python read_rows.py shard_set|single|grain|tf_data|mds|litdata|copies|memmap DIRECTORY ROWS

What is printed is JSON, [wall, cpu] of ROWS rows from the second batch on: opening, starting
workers and the first batch are not timed. mds and litdata read what write_rows.py made of the set.
Runs where only its own library is installed.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from glob import glob
from typing import Any

import numpy as np

from tests.benchmarks.clock import Seconds
from textmill.trainers.reader import ShardSet

BATCH = 256
WORKERS = 2
Batches = Iterator[dict[str, Any]]


def main(way: str, directory: str, wanted: str) -> None:
    """Times one way."""
    batches, rows = WAYS[way](directory), int(wanted)
    next(batches)
    began, read = Seconds.now(), 0
    while read < rows:
        batch = next(batches)
        read += len(np.asarray(batch["input_ids"]))
    print(json.dumps([seconds * rows / read for seconds in Seconds.now().since(began)]))


def shard_set(directory: str) -> Batches:
    """Ours."""
    shards = ShardSet(directory, verify=False)
    return shards.batches("train", batch_size=BATCH, seed=0)


def copies(directory: str) -> Batches:
    """Rows that lie in memory as a matrix, picked in a random order: what memory allows."""
    shards = ShardSet(directory, verify=False)
    columns = shards.read("train", np.arange(shards.rows("train")))
    rows = np.concatenate([column.view(np.uint8) for column in columns.values()], axis=1)
    while True:
        order = np.random.default_rng(0).permutation(len(rows))
        for start in range(0, len(order) - BATCH, BATCH):
            yield {"input_ids": rows[order[start : start + BATCH]]}


def memmap(directory: str) -> Batches:
    """The ids alone, of a matrix in a file that is mapped."""
    shards = ShardSet(directory, verify=False)
    with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        np.save(file, shards.read("train", np.arange(shards.rows("train")))["input_ids"])
        file.flush()
        ids = np.load(file.name, mmap_mode="r")
    while True:
        order = np.random.default_rng(0).permutation(len(ids))
        for start in range(0, len(order) - BATCH, BATCH):
            yield {"input_ids": ids[order[start : start + BATCH]]}


def single(directory: str) -> Batches:
    """One record at a time through ArrayRecord's own data source."""
    from array_record.python.array_record_data_source import ArrayRecordDataSource

    shards = ShardSet(directory, verify=False)
    source = ArrayRecordDataSource(shards.paths("train"))
    while True:
        order = np.random.default_rng(0).permutation(len(source)).tolist()
        for start in range(0, len(order) - BATCH, BATCH):
            rows = [shards.decode(source[index]) for index in order[start : start + BATCH]]
            yield {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def grain(directory: str) -> Batches:
    """grain's DataLoader in this process: with workers it is slower at rows this small."""
    import grain
    from absl import flags

    flags.FLAGS.mark_as_parsed()
    shards = ShardSet(directory, verify=False)

    class Decode(grain.transforms.Map):
        def map(self, element: bytes) -> dict[str, np.ndarray]:
            return shards.decode(element)

    source: Any = grain.sources.ArrayRecordDataSource(shards.paths("train"))
    sampler = grain.samplers.IndexSampler(len(source), shuffle=True, seed=0)
    steps = [Decode(), grain.transforms.Batch(BATCH)]
    return iter(grain.DataLoader(data_source=source, sampler=sampler, operations=steps))


def tf_data(directory: str) -> Batches:
    """tf.data over TFRecord: shuffled in a buffer, parsed a batch at a time, in parallel."""
    import tensorflow as tf

    with open(f"{directory}/schema.json") as file:
        features = json.load(file)["features"]
    spec = {f["name"]: tf.io.FixedLenFeature([], tf.string) for f in features}

    def parse(records: Any) -> dict[str, Any]:
        blobs = tf.io.parse_example(records, spec)
        return {
            f["name"]: tf.reshape(tf.io.decode_raw(blobs[f["name"]], f["dtype"]), [-1, *f["shape"]])
            for f in features
        }

    files = tf.data.TFRecordDataset(sorted(glob(f"{directory}/train-*.tfrecord")))
    batches = files.repeat().shuffle(10_000, seed=0).batch(BATCH)
    batches = batches.map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    return iter(batches.as_numpy_iterator())  # pyright: ignore[reportReturnType]


def mds(directory: str) -> Batches:
    """PyTorch's DataLoader over mosaicml-streaming."""
    from streaming import StreamingDataset  # pyright: ignore[reportMissingImports]
    from torch.utils.data import DataLoader

    rows = StreamingDataset(local=directory + "/mds", shuffle=True, batch_size=BATCH)
    return iter(DataLoader(rows, batch_size=BATCH, num_workers=WORKERS))


def litdata(directory: str) -> Batches:
    """litdata's own loader."""
    from litdata import (  # pyright: ignore[reportMissingImports]
        StreamingDataLoader,
        StreamingDataset,
    )

    rows = StreamingDataset(directory + "/litdata", shuffle=True, drop_last=True)
    return iter(StreamingDataLoader(rows, batch_size=BATCH, num_workers=WORKERS))


WAYS: dict[str, Callable[[str], Batches]] = {
    way.__name__: way for way in (shard_set, copies, memmap, single, grain, tf_data, mds, litdata)
}

if __name__ == "__main__":
    main(*sys.argv[1:])
