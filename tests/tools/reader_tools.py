"""The shortest way to read a set with each tool: the columns of a split, in its order.

docs/readers.md shows these; tests compare what they read with what was written, and
tests/benchmarks/bench_readers.py counts and times it. A set in both formats is expected, and for
`polars`, `pandas` and two of `datasets` what `python -m pipelines.export` made of it.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from glob import glob
from typing import Any

import numpy as np

from textmill.trainers.reader import ShardSet

Columns = dict[str, np.ndarray]
BATCH = 64


@dataclass(frozen=True)
class Tool:
    """A way to read.

    Attributes:
      package: whose version counts.
      call: the public call, for people.
      read: (directory of the set or of the export, split) -> columns.
      of: what the directory holds: "set", or "blobs", a set of --encoding=bytes, or "parquet",
        "arrow" or "jsonl", an export.
    """

    package: str
    call: str
    read: Callable[[str, str], Columns]
    of: str = "set"


def numpy_batches(directory: str, split: str) -> Columns:
    batches = list(ShardSet(directory).sequential_batches(split, batch_size=BATCH))
    real = np.concatenate([batch.pop("row_weights") for batch in batches]) == 1
    columns = _joined({k: b[k] for k in b if k not in ("row_index", "epoch")} for b in batches)
    return {name: values[real] for name, values in columns.items()}


def tfds_data_source(directory: str, split: str) -> Columns:
    import tensorflow_datasets as tfds

    builder: Any = tfds.builder_from_directory(directory)
    return _stacked(builder.as_data_source(split=split))


def tfds_dataset(directory: str, split: str) -> Columns:
    import tensorflow_datasets as tfds

    builder: Any = tfds.builder_from_directory(directory)
    if builder.info.file_format.value != "tfrecord":  # a set in both formats
        builder.info.set_file_format("tfrecord", override=True, override_if_initialized=True)
    in_order = tfds.ReadConfig(interleave_cycle_length=1)
    dataset = builder.as_dataset(split=split, read_config=in_order, batch_size=BATCH)
    return _joined(tfds.as_numpy(dataset))


def tf_data_features_json(directory: str, split: str) -> Columns:
    import tensorflow as tf
    import tensorflow_datasets as tfds

    features: Any = tfds.features.FeatureConnector.from_config(directory)
    files = tf.data.TFRecordDataset(sorted(glob(f"{directory}/{split}-*.tfrecord")))
    dataset = files.map(features.deserialize_example).batch(BATCH)
    return _joined(dataset.as_numpy_iterator())


def tf_data_schema_json(directory: str, split: str) -> Columns:
    import tensorflow as tf

    with open(f"{directory}/schema.json") as file:
        schema = json.load(file)
    if schema["encoding"] == "int64_list":
        spec = {f["name"]: tf.io.FixedLenFeature(f["shape"], tf.int64) for f in schema["features"]}
    else:
        spec = {f["name"]: tf.io.FixedLenFeature([], tf.string) for f in schema["features"]}

    def bits(blobs: Any) -> Any:
        found = tf.cast(tf.io.decode_raw(blobs, tf.uint8), tf.int32)[:, :, None]
        found = found // [1, 2, 4, 8, 16, 32, 64, 128] % 2
        return tf.reshape(found, [tf.shape(found)[0], -1])

    def values(blobs: Any, f: dict[str, Any]) -> Any:
        kind = f["kind"] if schema["encoding"] == "bits" else "numbers"
        dtype = f["dtype"].replace("uint32", "int32")  # decode_raw has none; ids are below 2**31
        if kind == "numbers":
            return tf.io.decode_raw(blobs, dtype)
        if kind == "flags":
            return bits(blobs)[:, : f["shape"][0]]
        if kind == "ids":
            low = 2 * f["shape"][0]
            ids = tf.io.decode_raw(tf.strings.substr(blobs, 0, low), tf.uint16)
            if f["dtype"] == "uint16":
                return ids
            high = tf.io.decode_raw(tf.strings.substr(blobs, low, low // 2), tf.uint8)
            return tf.cast(ids, tf.int32) + 65_536 * tf.cast(high, tf.int32)
        head = np.dtype(dtype).itemsize
        segments = tf.io.decode_raw(tf.strings.substr(blobs, 0, head), dtype)
        begun = tf.cumsum(bits(tf.strings.substr(blobs, head, 1 << 20))[:, : f["shape"][0]], axis=1)
        return tf.where(begun <= tf.cast(segments, tf.int32), begun, 0)

    def parse(records: Any) -> dict[str, Any]:
        batch = tf.io.parse_example(records, spec)
        if schema["encoding"] == "int64_list":
            return batch
        shapes = {f["name"]: [-1, *f["shape"]] for f in schema["features"]}
        found = {f["name"]: values(batch[f["name"]], f) for f in schema["features"]}
        return {name: tf.reshape(column, shapes[name]) for name, column in found.items()}

    files = tf.data.TFRecordDataset(sorted(glob(f"{directory}/{split}-*.tfrecord")))
    return _joined(files.batch(BATCH).map(parse).as_numpy_iterator())


def grain_array_record(directory: str, split: str) -> Columns:
    import grain

    shards = ShardSet(directory)
    source: Any = grain.sources.ArrayRecordDataSource(shards.paths(split))
    return _stacked(grain.MapDataset.source(source).map(shards.decode))


def grain_workers(directory: str, split: str) -> Columns:
    import grain
    from absl import flags

    flags.FLAGS.mark_as_parsed()  # grain's workers read flags, which absl.app.run would parse
    shards, workers = ShardSet(directory), 2

    class Decode(grain.transforms.Map):
        def map(self, element: bytes) -> Columns:
            return shards.decode(element)

    source: Any = grain.sources.ArrayRecordDataSource(shards.paths(split))
    loader = grain.DataLoader(
        data_source=source,
        sampler=grain.samplers.SequentialSampler(len(source), grain.sharding.NoSharding()),
        operations=[Decode(), grain.transforms.Batch(BATCH)],
        worker_count=workers,
    )
    # Arrays lie in shared memory, a file each, until they are dropped: what is kept is copied.
    batches = [{name: values.copy() for name, values in batch.items()} for batch in loader]
    # Worker w takes the rows w, w + 2, w + 4 ..., and batches come from each worker in turn.
    parts = [_joined(batches[worker::workers]) for worker in range(workers)]
    columns = {k: np.empty((len(source), *v.shape[1:]), v.dtype) for k, v in parts[0].items()}
    for worker, part in enumerate(parts):
        for name, values in part.items():
            columns[name][worker::workers] = values
    return columns


def grain_rows(directory: str, split: str) -> Columns:
    import grain

    return _joined(grain.MapDataset.source(ShardSet(directory).split(split)).batch(BATCH))


def torch_workers(directory: str, split: str) -> Columns:
    from torch.utils.data import DataLoader

    rows = ShardSet(directory).split(split)
    loader = DataLoader(rows, batch_size=BATCH, num_workers=2)  # pyright: ignore
    return _joined({k: v.numpy() for k, v in batch.items()} for batch in loader)


def datasets_generator(directory: str, split: str) -> Columns:
    from datasets import Dataset

    rows = ShardSet(directory).split(split)
    dataset: Any = Dataset.from_generator(rows.__iter__)
    return _joined([dataset.with_format("numpy")[:]])


def datasets_arrow(directory: str, split: str) -> Columns:
    from datasets import Dataset, concatenate_datasets

    files = sorted(glob(f"{directory}/{split}-*.arrow"))
    dataset = concatenate_datasets([Dataset.from_file(file) for file in files])
    return _joined([dataset.with_format("numpy")[:]])


def datasets_parquet(directory: str, split: str) -> Columns:
    from datasets import load_dataset

    dataset: Any = load_dataset(directory, split=split)
    return _joined([dataset.with_format("numpy")[:]])


def polars_parquet(directory: str, split: str) -> Columns:
    import polars

    frame = polars.read_parquet(f"{directory}/{split}-*.parquet")
    return {name: frame[name].to_numpy() for name in frame.columns}


def pandas_parquet(directory: str, split: str) -> Columns:
    import pandas

    files = sorted(glob(f"{directory}/{split}-*.parquet"))
    frame = pandas.concat([pandas.read_parquet(file) for file in files])
    return {name: np.stack(frame[name].tolist()) for name in frame.columns}


def json_lines(directory: str, split: str) -> Columns:
    rows = []
    for path in sorted(glob(f"{directory}/{split}-*.jsonl")):
        with open(path, encoding="utf-8") as file:
            rows += [json.loads(line) for line in file]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


_TFDS = "tensorflow-datasets"
TOOLS = (
    Tool("numpy", "ShardSet(DIR).sequential_batches(split)", numpy_batches),
    Tool(_TFDS, "builder_from_directory(DIR).as_data_source", tfds_data_source, "blobs"),
    Tool(_TFDS, "builder_from_directory(DIR).as_dataset", tfds_dataset, "blobs"),
    Tool("tensorflow", "TFRecordDataset, features.json", tf_data_features_json, "blobs"),
    Tool("tensorflow", "TFRecordDataset, schema.json", tf_data_schema_json),
    Tool("grain", "ArrayRecordDataSource, ShardSet.decode", grain_array_record),
    Tool("grain", "DataLoader(worker_count=2)", grain_workers),
    Tool("grain", "MapDataset.source(ShardSet.split)", grain_rows),
    Tool("torch", "DataLoader(ShardSet.split, num_workers=2)", torch_workers),
    Tool("datasets", "Dataset.from_generator(ShardSet.split)", datasets_generator),
    Tool("datasets", "Dataset.from_file(export)", datasets_arrow, "arrow"),
    Tool("datasets", "load_dataset(export)", datasets_parquet, "parquet"),
    Tool("polars", "read_parquet(export)", polars_parquet, "parquet"),
    Tool("pandas", "read_parquet(export)", pandas_parquet, "parquet"),
    Tool("python", "json.loads(line of export)", json_lines, "jsonl"),
)


def _joined(batches: Iterable[Any]) -> Columns:
    batches = list(batches)
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def _stacked(rows: Any) -> Columns:
    rows = [rows[index] for index in range(len(rows))]
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
