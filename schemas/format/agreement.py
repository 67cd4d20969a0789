"""Checks that the metadata files, each valid by itself, describe one and the same dataset.

The checks run whenever a dataset is opened, and read no other files: names, splits, rows and bytes
of MANIFEST.json are compared with schema.json and stats.json, the equations of stats.json are
checked, and the list of files. `pipelines.verify` checks what must be read for it (rows,
tokenizer.json, config.yaml, the files for TensorFlow Datasets). Python 3.8 syntax.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator

from textmill.schemas.format.features import is_training
from textmill.schemas.format.manifest import EVALUATION, REJECTS, Manifest
from textmill.schemas.format.records import framed_bytes, largest_file
from textmill.schemas.format.statistics import ShardStatistics, Statistics, split_of
from textmill.schemas.tokenizers.tokenizer_json import TOKENIZER_CONFIG

if TYPE_CHECKING:
    from textmill.schemas.format.metadata import Schema

# A dataset has all files of DUE, its shards, and no others than EVALUATION and REJECTS.
TOKEN_COUNTS, TOKENIZER = "token_counts.npy", "tokenizer.json"
DUE = (
    "config.yaml",
    "dataset_info.json",
    "features.json",
    "inputs.json",
    "report.html",
    "schema.json",
    "stats.json",
    TOKEN_COUNTS,
    TOKENIZER,
)
OF_ROWS = ("dataset_info.json", "features.json")  # for TensorFlow Datasets, if there are rows
METADATA = (*DUE, EVALUATION, TOKENIZER_CONFIG)
_NPY_HEAD = 128  # bytes before the counts
_SHOWN = 3  # names in an error
_MOST_NAMES = 1_000_000  # the most shards whose names are compared


def disagreements(schema: Schema, stats: Statistics, manifest: Manifest) -> Iterator[str]:
    """Yields each contradiction between the metadata files, a sentence."""
    if manifest.fingerprint != schema.fingerprint:
        yield (
            f"MANIFEST.json: fingerprint is {manifest.fingerprint!r}, not schema.json's "
            f"{schema.fingerprint!r}"
        )
    odd = list(_odd_shards(schema, stats, manifest))
    yield from odd
    if not odd:
        yield from _odd_sizes(schema, stats, manifest)
        yield from (f"stats.json: {e}" for e in stats.broken_equations(schema.copies_of))
        yield from _odd_counts(schema, stats)
    yield from _odd_files(schema, stats, manifest)


def _odd_shards(schema: Schema, stats: Statistics, manifest: Manifest) -> Iterator[str]:
    """Checks that all three list the same shards, and the manifest each in its split."""
    listed = {file.path: file.split for file in manifest.files if file.split is not None}
    endings = [ending for name in schema.file_formats for ending in schema.endings(name)]
    count = sum(schema.shards.values()) * len(endings)
    if count != len(listed) and count > _MOST_NAMES:
        yield f"MANIFEST.json lists {len(listed):,} shards, but schema.json {count:,}"
        return
    split_of = {name: split for split in schema.splits for name in schema.shard_names(split)}
    expected = {f"{name}.{ending}": split for name, split in split_of.items() for ending in endings}
    if stats.shards.keys() != split_of.keys():
        odd = sorted(stats.shards.keys() ^ split_of.keys())
        yield f"stats.json and schema.json differ in the shards {odd[:_SHOWN]}"
    if listed != expected:
        odd = sorted(p for p in {**listed, **expected} if listed.get(p) != expected.get(p))
        names = f"{odd[:_SHOWN]}, or in their splits"
        yield f"MANIFEST.json and schema.json differ in the shards {names}"


def _odd_sizes(schema: Schema, stats: Statistics, manifest: Manifest) -> Iterator[str]:
    stride = 0 if schema.holds_documents else schema.codec().stride
    framed = framed_bytes(stride)
    for file in manifest.files:
        if file.rows is None:
            continue
        name, file_format = file.path.split(".", 1)
        rows = stats.shards[name].rows
        if file.rows != rows:
            yield f"{file.path} has {file.rows:,} rows, but stats.json {rows:,}"
        if schema.holds_documents:
            continue
        most = file.rows * framed
        if file_format == "array_record":
            most = largest_file(file.rows, stride)
        if file.bytes > most or (file.bytes < most and file_format == "tfrecord"):
            yield f"{file.path} has {file.bytes:,} bytes, but {file.rows:,} rows take {most:,}"


def _odd_counts(schema: Schema, stats: Statistics) -> Iterator[str]:
    classes = set(schema.parameters.get("classes", ()))
    positions, slots = schema.row_tokens, schema.max_masked
    for name, shard in stats.shards.items():
        most = shard.rows * positions if positions else shard.tokens_in_rows
        copies = schema.copies_of(split_of(name))
        if not shard.rows <= shard.segments <= shard.tokens_in_rows <= most:
            rule = "rows <= segments <= tokens in rows <= positions in rows"
        elif schema.packing == "none" and shard.rows != shard.segments:
            rule = "rows = segments, since packing is none"
        elif shard.masked > shard.rows * slots:
            rule = f"masked <= rows x {slots}"
        elif not shard.labels.keys() <= classes or (
            classes and sum(shard.labels.values()) != shard.documents
        ):
            rule = "labels are the classes, and add up to the documents"
        elif _count_specials(schema, shard, copies) not in (None, shard.specials_added * copies):
            rule = "specials added are those of parameters"
        else:
            continue
        yield f"stats.json: {name}: the counts violate the rule: {rule}"


def _count_specials(schema: Schema, shard: ShardStatistics, copies: int) -> int | None:
    """The special tokens that a shard must have, in all masked copies; None if no rule is known."""
    parameters = schema.parameters
    if schema.task == "qa":
        return shard.segments * (1 + parameters["bos"])  # and eos
    if "prefix_ids" not in parameters:
        return None
    around = sum(len(parameters.get(f"{name}_ids", ())) for name in ("prefix", "middle", "suffix"))
    if schema.task == "mlm" and schema.packing != "concat":  # concat cuts after they are added
        return shard.segments * around
    return shard.documents * around * copies


def _odd_files(schema: Schema, stats: Statistics, manifest: Manifest) -> Iterator[str]:
    others = {file.path: file for file in manifest.files if file.split is None}
    tokenizer, counts = others.get(TOKENIZER), others.get(TOKEN_COUNTS)
    if tokenizer is not None and tokenizer.sha256 != schema.tokenizer_sha256:
        yield f"{TOKENIZER} is not the tokenizer of schema.json: its sha256 differs"
    expected = _NPY_HEAD + 8 * schema.vocab_size
    if counts is not None and counts.bytes != expected:
        yield f"{TOKEN_COUNTS} has {counts.bytes:,} bytes, but its ids take {expected:,}"
    needed: set[str] = {name for name in DUE if not (schema.holds_documents and name in OF_ROWS)}
    evaluated = sum(c.documents for split, c in stats.splits().items() if not is_training(split))
    if evaluated and any(feature.name == "example_id" for feature in schema.features):
        needed.add(EVALUATION)
    for path in sorted(needed - others.keys()):
        yield f"MANIFEST.json does not list {path}, which every such dataset has"
    for path in sorted(others.keys() - needed - {REJECTS, TOKENIZER_CONFIG}):
        yield f"MANIFEST.json lists {path!r}, which such a dataset does not have"
