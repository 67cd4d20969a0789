"""A set of any size from one shard: links to it, listed by metadata files of their own.

On disk it is one shard, to a reader and to verify it is all of them.
"""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.benchmarks.commands import build_set
from tests.benchmarks.corpora import write_corpus, write_tokenizer
from tests.tools.shard_factory import routed_digests
from textmill.pipelines.writers.tfds_info import tfds_files
from textmill.pipelines.writers.token_counts import TOKEN_COUNTS, counts_bytes
from textmill.schemas.files import store
from textmill.schemas.files.finished import read_dataset
from textmill.schemas.format.manifest import (
    FORMAT_VERSION,
    MANIFEST,
    ROW_DOCUMENTS,
    Manifest,
    ManifestFile,
)
from textmill.schemas.format.metadata import Schema, shard_name
from textmill.schemas.format.row_documents import RowDocuments, encode_row_documents
from textmill.schemas.format.statistics import Statistics
from textmill.schemas.typed_json import to_json


def linked_set(folder: Path, megabytes: float, rows: int) -> tuple[Path, Path, int]:
    """A set of one training shard of so much text, one of links to it, and the rows of that."""
    text, one, many = (folder / name for name in ("text.txt", "one", "many"))
    write_corpus(text, megabytes)
    tokenizer = write_tokenizer(folder / "tokenizer.json")
    build_set(one, text, tokenizer, "--num_shards=train:1,validation:1", keep=True)
    return one, many, link_copies(one, many, rows)


def link_copies(one: Path, many: Path, rows: int) -> int:
    """A set whose training shards are all links to the one of `one`; returns its rows."""
    info = read_dataset(str(one))
    (shard,) = info.manifest.shards("train", "array_record")
    copies = -(-rows // (shard.rows or 1))
    names = [shard_name("train", index, copies) for index in range(copies)]
    others = [file for file in info.manifest.files if file.split != "train"]
    of_shard = info.stats.shards[shard_name("train", 0, 1)]
    other = {name: stats for name, stats in info.stats.shards.items() if "train" not in name}
    stats = Statistics(shards={**other, **dict.fromkeys(names, of_shard)})
    kept = stats.total().documents
    stats = replace(stats, documents_read=kept + sum(stats.all_dropped().values()))
    schema = replace(info.schema, shards={**info.schema.shards, "train": copies}, fingerprint="")
    many.mkdir()
    documents, listed = RowDocuments(str(one / f"{shard_name('train', 0, 1)}.documents")), []
    for name in names:
        path = many / f"{name}.array_record"
        os.link(one / shard.path, path)
        listed.append(replace(shard, path=path.name))
        file = _write(many, f"{name}.{ROW_DOCUMENTS}", _other_digests(documents, schema, name))
        listed.append(replace(file, split="train", rows=shard.rows))
    changed = {
        "schema.json": to_json(schema),
        "stats.json": to_json(stats.to_dict(schema.row_tokens)),
        "config.yaml": _without_shards((one / "config.yaml").read_bytes()),
        TOKEN_COUNTS: _counts(one / TOKEN_COUNTS, stats, schema),
        **tfds_files(schema, sorted([*listed, *others], key=lambda file: file.path), stats),
    }
    for file in others:
        if file.path not in changed:
            os.link(one / file.path, many / file.path)
            listed.append(file)
    listed += [_write(many, name, content) for name, content in changed.items()]
    _write_manifest(many, schema, listed)
    return copies * (shard.rows or 0)


def _other_digests(documents: RowDocuments, schema: Schema, name: str) -> bytes:
    """The documents of the same rows as those of a different shard."""
    row_S, document_S, first_S = documents.documents_of(np.arange(documents.rows))
    bounds = np.searchsorted(row_S, np.arange(documents.rows + 1))
    digests = routed_digests(schema, name, len(documents.digests))
    return encode_row_documents(digests, bounds, document_S, first_S)


def _without_shards(config: bytes) -> bytes:
    return b"".join(line for line in config.splitlines(True) if not line.startswith(b"num_shards"))


def _counts(path: Path, stats: Statistics, schema: Schema) -> bytes:
    """Counts that add up to those of all rows: all that were added are of id 0."""
    counts = np.load(path)
    counts[0] += stats.total().tokens_in_rows // schema.mask_copies - counts.sum()
    return counts_bytes(counts)


def _write(directory: Path, name: str, content: bytes) -> ManifestFile:
    path = directory / name
    path.unlink(missing_ok=True)  # a link: what it leads to stays as it is
    path.write_bytes(content)
    return ManifestFile(name, len(content), store.sha256(str(path)))


def _write_manifest(directory: Path, schema: Schema, files: list[ManifestFile]) -> None:
    ordered = tuple(sorted(files, key=lambda file: file.path))
    manifest = Manifest(FORMAT_VERSION, schema.fingerprint, ordered)
    (directory / MANIFEST).write_text(json.dumps(manifest.to_dict()))
