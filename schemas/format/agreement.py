"""Checks that metadata files, each valid by itself, describe one and the same thing.

The checks run whenever a directory is opened, and read no other files: names, splits, rows and
bytes of MANIFEST.json are compared with schema.json and stats.json, the equations of stats.json are
checked, and the list of files. `pipelines.verify` checks what must be read for it (rows, documents,
tokenizer.json, config.yaml, the files for TensorFlow Datasets). Python 3.8 syntax.
"""

from __future__ import annotations

from typing import Iterable, Iterator

from textmill.schemas.format.corpus_metadata import (
    DOCUMENTS,
    OLDER_DUPLICATES,
    SIGNATURES,
    CorpusSchema,
    CorpusStatistics,
)
from textmill.schemas.format.features import is_training
from textmill.schemas.format.manifest import (
    DECONTAMINATION,
    EVALUATION,
    FORGOTTEN,
    HISTOGRAM,
    HOSTS,
    QUALITY,
    REJECTED,
    REJECTS,
    ROW_DOCUMENTS,
    Manifest,
)
from textmill.schemas.format.metadata import METADATA_FILES, Schema
from textmill.schemas.format.pieces import piece_count
from textmill.schemas.format.records import framed_bytes, largest_file
from textmill.schemas.format.row_documents import largest_row_documents
from textmill.schemas.format.statistics import ShardStatistics, Statistics, split_of
from textmill.schemas.format.tokenizer_report import TokenizerReport
from textmill.schemas.tokenizers.tokenizer_json import TOKENIZER_CONFIG

# A dataset has all files of DUE, its shards, and no others than EVALUATION, FORGOTTEN and REJECTS.
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
FOR_TFDS = ("dataset_info.json", "features.json")  # if TensorFlow Datasets reads the rows
METADATA = (*DUE, EVALUATION, TOKENIZER_CONFIG)
# A corpus has all files of _DUE_IN_CORPUS and its files of documents.
_DUE_IN_CORPUS = (*METADATA_FILES, "config.yaml", "report.html")
_OPTIONAL_IN_CORPUS = (
    DECONTAMINATION,
    FORGOTTEN,
    HOSTS,
    QUALITY,
    *REJECTED,
)
REPORT = "report.json"  # of a tokenizer
TOKENIZER_FILES = (TOKENIZER, HISTOGRAM, REPORT, TOKENIZER_CONFIG, "config.yaml")
_NPY_HEAD = 128  # bytes before the counts
_SHOWN = 3  # names in an error
_MOST_NAMES = 1_000_000  # the most shards whose names are compared


def disagreements(schema: Schema, stats: Statistics, manifest: Manifest) -> Iterator[str]:
    """Yields each contradiction between the metadata files of a dataset, a sentence."""
    yield from _odd_fingerprint(manifest, "schema.json", schema.fingerprint)
    odd = list(_odd_shards(schema, stats, manifest))
    yield from odd
    if not odd:
        yield from _odd_sizes(schema, stats, manifest)
        yield from (f"stats.json: {e}" for e in stats.broken_equations(schema.copies_of))
        yield from _odd_counts(schema, stats)
    yield from _odd_metadata(schema, stats, manifest)


def _odd_shards(schema: Schema, stats: Statistics, manifest: Manifest) -> Iterator[str]:
    """Checks that all three list the same shards, and the manifest each in its split."""
    listed = {file.path: file.split for file in manifest.files if file.split is not None}
    endings = [ending for name in schema.file_formats for ending in schema.endings(name)]
    endings.append(ROW_DOCUMENTS)
    count = sum(schema.shards.values()) * len(endings)
    if count != len(listed) and count > _MOST_NAMES:
        yield f"MANIFEST.json lists {len(listed):,} files of shards, but schema.json {count:,}"
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
        shard = stats.shards[name]
        if file.rows != shard.rows:
            yield f"{file.path} has {file.rows:,} rows, but stats.json {shard.rows:,}"
        if file_format == ROW_DOCUMENTS:
            most = largest_row_documents(shard.rows, shard.segments, shard.documents)
            if file.bytes > most:
                yield f"{file.path} has {file.bytes:,} bytes, but its documents take {most:,}"
            continue
        if schema.holds_documents:
            continue
        pieces, due = len(file.pieces or ()), piece_count(stride, file.rows)
        if pieces != due:
            yield f"{file.path} has the hashes of {pieces:,} pieces, not of {due:,}"
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


def _odd_metadata(schema: Schema, stats: Statistics, manifest: Manifest) -> Iterator[str]:
    others = {file.path: file for file in manifest.files if file.split is None}
    tokenizer, counts = others.get(TOKENIZER), others.get(TOKEN_COUNTS)
    if tokenizer is not None and tokenizer.sha256 != schema.tokenizer_sha256:
        yield f"{TOKENIZER} is not the tokenizer of schema.json: its sha256 differs"
    expected = _NPY_HEAD + 8 * schema.vocab_size
    if counts is not None and counts.bytes != expected:
        yield f"{TOKEN_COUNTS} has {counts.bytes:,} bytes, but its ids take {expected:,}"
    needed: set[str] = {name for name in DUE if schema.is_for_tfds or name not in FOR_TFDS}
    evaluated = sum(c.documents for split, c in stats.splits().items() if not is_training(split))
    if evaluated and any(feature.name == "example_id" for feature in schema.features):
        needed.add(EVALUATION)
    yield from _odd_files(manifest, needed, (FORGOTTEN, REJECTS, TOKENIZER_CONFIG), "dataset")


def corpus_disagreements(
    schema: CorpusSchema, stats: CorpusStatistics, manifest: Manifest
) -> Iterator[str]:
    """Yields each contradiction between the metadata files of a corpus, a sentence."""
    yield from _odd_fingerprint(manifest, "schema.json", schema.fingerprint)
    rows = {file.path: file.rows for file in manifest.files if file.split is not None}
    splits = {file.path: file.split for file in manifest.files if file.split is not None}
    expected = {name: DOCUMENTS for name in schema.names()}
    expected.update({name: "near_duplicates" for name in schema.removed_names()})
    expected.update({name: OLDER_DUPLICATES for name in schema.older_names()})
    if SIGNATURES in splits.values():  # of corpora of near-duplicates, from version 1.1 on
        expected.update({name: SIGNATURES for name in schema.signature_names()})
    if splits != expected:
        odd = sorted(n for n in {*splits, *expected} if splits.get(n) != expected.get(n))
        yield f"MANIFEST.json and schema.json differ in the files {odd[:_SHOWN]}"
        return
    if stats.files.keys() != {*schema.names()}:
        yield "stats.json and schema.json differ in the files of documents"
        return
    for name, removed in zip(schema.names(), schema.removed_names() or schema.names()):
        counts = stats.files[name]
        if rows[name] != counts.documents:
            yield f"{name}: MANIFEST.json counts {rows[name]:,} documents, stats.json " + (
                f"{counts.documents:,}"
            )
        if removed != name and rows[removed] != counts.near_duplicates:
            yield f"{removed}: MANIFEST.json counts {rows[removed]:,} rows, stats.json " + (
                f"{counts.near_duplicates:,}"
            )
    listed = sum(rows[name] or 0 for name in schema.older_names())
    if listed != (dropped := stats.dropped.get(OLDER_DUPLICATES, 0)):
        yield f"MANIFEST.json counts {listed:,} duplicates of older corpora, stats.json {dropped:,}"
    yield from (f"stats.json: {sentence}" for sentence in stats.broken_equations(schema.keep_best))
    yield from _odd_files(manifest, {*_DUE_IN_CORPUS}, _OPTIONAL_IN_CORPUS, "corpus")


def tokenizer_disagreements(report: TokenizerReport, manifest: Manifest) -> Iterator[str]:
    """Yields each contradiction between the metadata files of a tokenizer, a sentence."""
    yield from _odd_fingerprint(manifest, REPORT, report.fingerprint)
    for file in manifest.files:
        if file.split is not None:
            yield f"MANIFEST.json lists the shard {file.path!r}, which a tokenizer does not have"
    yield from _odd_files(manifest, {*TOKENIZER_FILES}, (REJECTS,), "tokenizer")


def _odd_fingerprint(manifest: Manifest, name: str, fingerprint: str) -> Iterator[str]:
    """Compares the manifest's fingerprint with that of a metadata file."""
    if manifest.fingerprint != fingerprint:
        yield (
            f"MANIFEST.json: fingerprint is {manifest.fingerprint!r}, not {name}'s {fingerprint!r}"
        )


def _odd_files(
    manifest: Manifest, due: set[str], optional: Iterable[str], noun: str
) -> Iterator[str]:
    """Compares the names of all files but shards with those that are due and those that may be."""
    listed = {file.path for file in manifest.files if file.split is None}
    for path in sorted(due - listed):
        yield f"MANIFEST.json does not list {path}, which every such {noun} has"
    for path in sorted(listed - due - {*optional}):
        yield f"MANIFEST.json lists {path!r}, which such a {noun} does not have"
