"""dataset_info.json and features.json, so that `tfds.builder_from_directory` opens a dataset. Pure.

TensorFlow Datasets is not imported: the two files are the JSON form of its protocol buffers
(tensorflow_datasets/core/proto/dataset_info.proto and feature.proto).
"""

from collections.abc import Iterable, Sequence
from typing import Any

from textmill.schemas.format.features import Feature
from textmill.schemas.format.manifest import ManifestFile
from textmill.schemas.format.metadata import Schema
from textmill.schemas.format.statistics import Statistics
from textmill.schemas.typed_json import to_json

_FEATURES = "tensorflow_datasets.core.features"
_FILE_NAMES = "{SPLIT}-{SHARD_X_OF_Y}.{FILEFORMAT}"


def tfds_files(
    schema: Schema, files: Sequence[ManifestFile], stats: Statistics
) -> dict[str, bytes]:
    """The files that describe a dataset to TensorFlow Datasets.

    ArrayRecord opens as `builder.as_data_source(split=...)`, TFRecord as `builder.as_dataset(...)`,
    in the order of the shards with `tfds.ReadConfig(interleave_cycle_length=1)`. A dataset in both
    formats is declared as array_record. TFDS 4.9 rejects `file_format="tfrecord"` for it, although
    the file names tfrecord as an alternative; use `builder.info.set_file_format("tfrecord",
    override=True, override_if_initialized=True)`. TFDS does not open a split without rows. Whole
    documents and the encoding `bits`, which it does not read, get no such files.
    """
    if not schema.is_for_tfds:
        return {}
    return {
        "dataset_info.json": to_json(_dataset_info(schema, files, stats)),
        "features.json": to_json(_features(schema)),
    }


def _dataset_info(
    schema: Schema, files: Iterable[ManifestFile], stats: Statistics
) -> dict[str, Any]:
    first, *others = sorted(schema.file_formats)  # array_record before tfrecord
    total = stats.total()
    shards = sorted(
        (f for f in files if f.split is not None and f.path.endswith("." + first)),
        key=lambda file: file.path,
    )
    splits = []
    for split in sorted(schema.splits):
        rows = [shard.rows or 0 for shard in shards if shard.split == split]
        splits.append(
            {
                "name": split,
                "filepathTemplate": _FILE_NAMES,
                "shardLengths": list(map(str, rows)),  # int64 is a string in JSON
                "numBytes": str(sum(rows) * schema.codec().stride),
            }
        )
    return {
        "name": f"textmill_{schema.task}",
        "version": f"{schema.format_version}.0.0",
        "description": (
            f"Rows of {schema.max_length} tokens for {schema.task}, written by Textmill "
            f"{schema.code_version}: {total.documents:,} documents, {total.tokens:,} tokens, "
            f"packing efficiency {total.packing_efficiency(schema.row_tokens):.2%}. schema.json "
            "describes the rows, stats.json has the counts."
        ),
        "fileFormat": first,
        "alternativeFileFormats": others,
        "splits": splits,
    }


def _features(schema: Schema) -> dict[str, Any]:
    return {
        "pythonClassName": f"{_FEATURES}.features_dict.FeaturesDict",
        "featuresDict": {
            "features": {
                feature.name: _tensor(feature, schema.encoding)
                for feature in schema.codec().features
            }
        },
    }


def _tensor(feature: Feature, encoding: str) -> dict[str, Any]:
    # tf.io.decode_raw does not support uint32. Ids are below 2**31, so int32 reads them right.
    dtype = "int32" if feature.dtype == "uint32" else feature.dtype
    return {
        "pythonClassName": f"{_FEATURES}.tensor_feature.Tensor",
        "description": feature.meaning,
        "tensor": {
            "dtype": dtype,
            "encoding": "bytes" if encoding == "bytes" else "none",
            "shape": {"dimensions": [str(size) for size in feature.shape]},
        },
    }
