"""A set of any size from one shard: links to it, listed by sidecars of their own.

On disk it is one shard, to a reader and to verify it is all of them.
"""

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

from schemas.manifest import MANIFEST, Manifest, ManifestFile, file_sha256
from schemas.sidecar import Schema, read_set, shard_name
from schemas.statistics import Statistics
from schemas.typed_json import to_json
from tests.benchmarks.commands import build_set
from tests.benchmarks.corpora import write_corpus, write_tokenizer


def linked_set(folder: Path, megabytes: float, rows: int) -> tuple[Path, Path, int]:
    """A set of one training shard of so much text, one of links to it, and the rows of that."""
    text, one, many = (folder / name for name in ("text.txt", "one", "many"))
    write_corpus(text, megabytes)
    tokenizer = write_tokenizer(folder / "tokenizer.json")
    build_set(one, text, tokenizer, "--num_shards=train:1,validation:1", keep=True)
    return one, many, link_copies(one, many, rows)


def link_copies(one: Path, many: Path, rows: int) -> int:
    """A set whose training shards are all links to the one of `one`; returns its rows."""
    info = read_set(str(one))
    (shard,) = info.manifest.shards("train", "array_record")
    copies = -(-rows // (shard.rows or 1))
    names = [shard_name("train", index, copies) for index in range(copies)]
    left = ("token_counts.npy", "report.html")  # which tell of one shard
    files = [file for file in info.manifest.files if file.path not in left]
    kept = [file for file in files if file.split != "train"]
    of_shard = info.stats.shards[shard_name("train", 0, 1)]
    other = {name: stats for name, stats in info.stats.shards.items() if "train" not in name}
    stats = Statistics(shards={**other, **dict.fromkeys(names, of_shard)})
    stats = replace(stats, documents_read=stats.total().documents + stats.total().duplicates)
    schema = replace(info.schema, shards={**info.schema.shards, "train": copies}, fingerprint="")
    many.mkdir()
    listed = []
    for name in names:
        path = many / f"{name}.array_record"
        os.link(one / shard.path, path)
        listed.append(replace(shard, path=path.name))
    for file in kept:
        os.link(one / file.path, many / file.path)
    listed += [_write(many, "schema.json", to_json(schema))]
    listed += [_write(many, "stats.json", to_json(stats.to_dict(schema.row_tokens)))]
    listed += [file for file in kept if file.path not in ("schema.json", "stats.json")]
    _write_manifest(many, schema, listed)
    return copies * (shard.rows or 0)


def _write(directory: Path, name: str, content: bytes) -> ManifestFile:
    path = directory / name
    path.unlink(missing_ok=True)  # a link: what it leads to stays as it is
    path.write_bytes(content)
    return ManifestFile(name, len(content), file_sha256(str(path)))


def _write_manifest(directory: Path, schema: Schema, files: list[ManifestFile]) -> None:
    ordered = tuple(sorted(files, key=lambda file: file.path))
    manifest = Manifest(schema.format_version, schema.fingerprint, ordered)
    (directory / MANIFEST).write_text(json.dumps(asdict(manifest)))
