"""One shard in its files, rows or whole documents."""

import numpy as np

from pipelines.build.make_shard import Shard
from pipelines.rows.ragged import Ragged
from pipelines.writers import sinks
from schemas.features import token_dtype
from schemas.manifest import ManifestFile
from schemas.sidecar import Schema


def stage_shard(
    shard: Shard | None, schema: Schema, staging: str, name: str
) -> tuple[ManifestFile, ...]:
    """Writes a shard in each format of the set.

    Args:
      shard: None for one without a document.
      schema: of the set.
      staging: the folder, on a disk or in a store.
      name: of the shard.

    Raises:
      DataError: the disk is full, or it or the store returned other bytes than were written.
    """
    if schema.holds_documents:
        none = Ragged.of(np.zeros(0, token_dtype(schema.vocab_size)), [])
        documents = shard.documents() if shard else none
        files = sinks.write_documents(documents, staging, name, schema)
    else:
        chunks = shard.chunks() if shard else ()
        stride = schema.codec().stride
        files = sinks.write_shard(chunks, staging, name, schema.file_formats, stride)
    return tuple(files)
