"""An ArrayRecord file with a record per document: a tf.train.Example with the int64_list `tokens`.

A document of more than max_length tokens is cut into consecutive records of max_length: no token is
lost, and a loader that packs or truncates to max_length has nothing to truncate. The library writes
each record as a chunk of its own, so that a reader can read any of them alone.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from array_record.python import (
    array_record_module,  # pyright: ignore[reportAttributeAccessIssue]
)
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.message import DecodeError

from textmill.pipelines.rows.ragged import Ragged, cut
from textmill.pipelines.writers.document_codec import Contents, DocumentCodec
from textmill.schemas.errors import DataError
from textmill.schemas.format.features import token_dtype
from textmill.schemas.format.metadata import Schema

_OPTIONS = "group_size:1,uncompressed,max_parallelism:1"
_READ = "readahead_buffer_size:0,max_parallelism:0"
_AT_ONCE = 4096  # records per read


# tf.train.Example of int64 lists (tensorflow/core/example/example.proto), without TensorFlow. Entry
# is an entry of a map, as on the wire.
_PROTO = """
name: "example.proto" syntax: "proto3"
message_type { name: "Int64List"
  field { name: "value" number: 1 type: TYPE_INT64 label: LABEL_REPEATED } }
message_type { name: "Feature"
  field { name: "int64_list" number: 3 type: TYPE_MESSAGE type_name: ".Int64List" } }
message_type { name: "Entry"
  field { name: "key" number: 1 type: TYPE_STRING }
  field { name: "value" number: 2 type: TYPE_MESSAGE type_name: ".Feature" } }
message_type { name: "Features"
  field { name: "feature" number: 1 type: TYPE_MESSAGE type_name: ".Entry" label: LABEL_REPEATED } }
message_type { name: "Example"
  field { name: "features" number: 1 type: TYPE_MESSAGE type_name: ".Features" } }
"""
_pool = descriptor_pool.DescriptorPool()
_pool.Add(text_format.Parse(_PROTO, descriptor_pb2.FileDescriptorProto()))
_Example: Any = message_factory.GetMessageClass(_pool.FindMessageTypeByName("Example"))


class ArrayRecordDocuments(DocumentCodec):
    """A tf.train.Example per document."""

    def encode(self, documents: Ragged, schema: Schema) -> Contents:
        """The content of the file, written by the library."""
        return {"array_record": _file(documents, schema.max_length)}

    def decode(self, paths: Mapping[str, str], schema: Schema) -> Ragged:
        """Token ids of the records, each with at most max_length."""
        path = paths["array_record"]
        try:
            reader = array_record_module.ArrayRecordReader(path, _READ)
            if not reader.ok():  # closing raises the error
                reader.close()
                raise DataError(f"{path} is not a complete ArrayRecord file")
            count = reader.num_records()
            pieces = [
                _tokens(record, path)
                for start in range(0, count, _AT_ONCE)
                for record in reader.read(start, min(start + _AT_ONCE, count))
            ]
            reader.close()
        except (RuntimeError, ValueError, IndexError) as error:
            raise DataError(f"{path} is not a complete ArrayRecord file: {error}") from error
        lengths = [len(piece) for piece in pieces]
        if min(lengths, default=1) < 1 or max(lengths, default=1) > schema.max_length:
            raise DataError(f"{path} has a record of 0 or more than {schema.max_length:,} tokens")
        values = np.concatenate([np.zeros(0, np.uint32), *pieces])
        if values.max(initial=0) < schema.vocab_size:  # `verify` reports larger ids
            values = values.astype(token_dtype(schema.vocab_size))
        return Ragged.of(values, lengths)


def _file(documents: Ragged, longest: int) -> Iterator[bytes]:
    """The bytes of a file of records, through a temporary file: the library writes to a path."""
    with tempfile.TemporaryDirectory(prefix="textmill-") as folder:
        path = os.path.join(folder, "records")
        writer = array_record_module.ArrayRecordWriter(path, _OPTIONS)
        for start, stop in pairwise(cut(documents.offsets, longest)[0].tolist()):
            example = _Example()
            entry = example.features.feature.add(key="tokens")
            entry.value.int64_list.value.extend(documents.values[start:stop].tolist())
            writer.write(example.SerializeToString())
        writer.close()
        with open(path, "rb") as file:
            yield from iter(lambda: file.read(1 << 20), b"")


def _tokens(record: bytes, path: str) -> np.ndarray:
    """The ids of a record, uint32 [n]; raises DataError unless `encode` would write the same."""
    try:
        example = _Example.FromString(record)
    except DecodeError:
        example = _Example()
    features = example.features.feature
    if len(features) != 1 or features[0].key != "tokens" or example.SerializeToString() != record:
        raise DataError(f"{path} has a record that is not a tf.train.Example of tokens alone")
    ids = np.array(features[0].value.int64_list.value, np.int64)
    if len(ids) and not 0 <= ids.min() <= ids.max() < 1 << 32:
        raise DataError(f"{path} has a token that is not an unsigned number of 32 bits")
    return ids.astype(np.uint32)
