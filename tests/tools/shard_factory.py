"""Small finished datasets for tests, written without Beam."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from textmill.pipelines.encoding.backends import GOLDEN_TEXTS
from textmill.pipelines.writers.tfds_info import tfds_files
from textmill.pipelines.writers.token_counts import TOKEN_COUNTS, counts_bytes
from textmill.schemas.errors import DataError
from textmill.schemas.format.features import is_training, max_masked_slots, task_features, unmask
from textmill.schemas.format.manifest import FORMAT_VERSION as MANIFEST_VERSION
from textmill.schemas.format.manifest import ROW_DOCUMENTS, Manifest, ManifestFile
from textmill.schemas.format.metadata import FORMAT_VERSION, Inputs, Schema, shard_name
from textmill.schemas.format.pieces import sum_pieces
from textmill.schemas.format.records import FORMATS, frame, row_head
from textmill.schemas.format.row_documents import encode_row_documents
from textmill.schemas.format.statistics import ShardStatistics, Statistics, by_length, split_of
from textmill.schemas.typed_json import to_json

BOS, PAD, EOS, UNK, MASK = range(5)  # RoBERTa's order
SPECIAL_IDS = {"bos": BOS, "pad": PAD, "eos": EOS, "unk": UNK, "mask": MASK}


def with_heads(rows: np.ndarray) -> np.ndarray:
    """Rows uint8 [b, stride] as ArrayRecordFile writes them, each after the head of its chunk."""
    head = np.frombuffer(row_head(rows.shape[1]), np.uint8)
    return np.concatenate([np.tile(head, (len(rows), 1)), rows], axis=1)


def mlm_schema(**changes) -> Schema:
    """A schema of small rows; any field may be replaced."""
    fields: dict[str, Any] = dict(
        format_version=FORMAT_VERSION,
        task="mlm",
        parameters={"prefix_ids": [0], "suffix_ids": [2]},
        max_length=16,
        vocab_size=50,
        special_ids=dict(SPECIAL_IDS),
        all_special_ids=(0, 1, 2, 3, 4),
        tokenizer_sha256="",
        golden=tuple((text, (UNK,) * len(text.split())) for text in GOLDEN_TEXTS),
        packing="best_fit",
        static_masking=True,
        mask_rate=0.15,
        mask_unit="token",
        mask_copies=1,
        splits={"train": 0.9, "validation": 0.1},
        shards={"train": 2, "validation": 1},
        seed=0,
        encoding="bits",
        file_formats=("tfrecord",),
        code_version="0",
    )
    fields.update(changes)
    if changes.get("max_masked") and "mask_rate" not in changes:  # the rate that gives so many
        fields["mask_rate"] = fields["max_masked"] / fields["max_length"]
    content = tokenizer_json(fields["vocab_size"])
    fields["tokenizer_sha256"] = fields["tokenizer_sha256"] or hashlib.sha256(content).hexdigest()
    if "max_masked" not in fields:
        slots = max_masked_slots(fields["max_length"], fields["mask_rate"])
        fields["max_masked"] = slots if fields["static_masking"] else 0
    fields["features"] = task_features(
        "mlm",
        max_length=fields["max_length"],
        vocab_size=fields["vocab_size"],
        max_masked=fields["max_masked"],
    )
    return Schema(**fields)


def tokenizer_json(vocab_size: int) -> bytes:
    """A tokenizer.json of RoBERTa's specials and whole words: `<s> <pad> </s> <unk> <mask> w5 w6`.

    Words stand apart by white space, and a text gets `<s>` and `</s>` around it.
    """
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokens = specials + [f"w{number}" for number in range(len(specials), vocab_size)]
    ids = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.add_special_tokens(specials)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B:1", special_tokens=list(ids.items())[:5]
    )
    return tokenizer.to_str().encode()


def count_rows(columns: dict[str, np.ndarray], schema: Schema, copies: int = 1) -> ShardStatistics:
    """The counts of rows whose every segment is a document of its own, in each masked copy."""
    given, segment_ids = schema.parameters, columns["segment_ids"]
    names = ("prefix_ids", "middle_ids", "suffix_ids")
    specials = sum(len(given.get(name, ())) for name in names) if "prefix_ids" in given else 2
    if schema.task == "qa":
        specials = 1 + given["bos"]
    rows, places = np.nonzero(segment_ids)
    numbered = rows * (segment_ids.shape[1] + 1) + segment_ids[rows, places]
    lengths = np.unique(numbered, return_counts=True)[1] - specials
    segments = len(lengths)
    lengths = np.maximum(np.sort(lengths)[::copies], 0)
    targets = int(np.count_nonzero(columns.get("target_segment_ids", 0)))
    lengths[:1] += targets  # of any document
    classes = given.get("classes", ())
    labels = np.bincount(columns["label"], minlength=len(classes)).tolist() if classes else []
    return ShardStatistics(
        documents=len(lengths),
        text_bytes=3 * int(lengths.sum()),
        tokens=int(lengths.sum()),
        specials_added=specials * len(lengths),
        rows=len(segment_ids),
        tokens_in_rows=len(rows) + targets,
        segments=segments,
        masked=int(columns["masked_weights"].sum()) if "masked_weights" in columns else 0,
        **by_length(lengths),
        labels=dict(zip(classes, labels, strict=False)),
    )


def packed_rows(schema: Schema, rows: int, seed: int, *, step: int = 1) -> dict[str, np.ndarray]:
    """Rows of `<s> t t+step t+2*step ... </s>` segments, over the ordinary ids; padding at the end.

    With `step=0` a segment repeats one token, which a small model learns in a few steps.
    """
    random = np.random.default_rng(seed)
    length = schema.max_length
    ordinary = np.setdiff1d(np.arange(schema.vocab_size), schema.all_special_ids)
    ids = np.full((rows, length), schema.special_ids["pad"], np.int64)
    segments = np.zeros((rows, length), np.int64)
    for row in range(rows):
        place, segment = 0, 1
        while length - place >= 4:
            tokens = min(int(random.integers(2, 9)), length - place - 2)
            first = random.integers(len(ordinary))
            text = ordinary[(first + step * np.arange(tokens)) % len(ordinary)]
            ids[row, place : place + tokens + 2] = [BOS, *text, EOS]
            segments[row, place : place + tokens + 2] = segment
            place, segment = place + tokens + 2, segment + 1
    columns = {"input_ids": ids, "segment_ids": segments}
    if schema.max_masked:
        _mask(columns, schema, random)
    return columns


def _mask(columns: dict[str, np.ndarray], schema: Schema, random: np.random.Generator) -> None:
    """Masks round(rate * ordinary tokens) of each row, at least one, in place."""
    rows, slots = len(columns["input_ids"]), schema.max_masked
    for name in ("masked_positions", "masked_ids", "masked_weights"):
        columns[name] = np.zeros((rows, slots), np.int64)
    for row in range(rows):
        ids = columns["input_ids"][row]
        ordinary = np.flatnonzero(~np.isin(ids, schema.all_special_ids))
        count = min(max(1, round(schema.mask_rate * len(ordinary))), slots)
        picked = np.sort(random.choice(ordinary, count, replace=False))
        columns["masked_positions"][row, :count] = picked
        columns["masked_ids"][row, :count] = ids[picked]
        columns["masked_weights"][row, :count] = 1
        ids[picked] = schema.special_ids["mask"]


def write_set(
    directory: Path, schema: Schema, columns: dict[str, dict[str, np.ndarray]]
) -> dict[str, dict[str, np.ndarray]]:
    """Writes a finished set.

    Args:
      directory: made here.
      schema: its schema.
      columns: split to columns of all its rows; shards take consecutive parts.

    Returns:
      `columns`.
    """
    directory.mkdir(parents=True)
    codec = schema.codec()
    files, statistics = [], {}
    for split, split_columns in columns.items():
        rows = codec.encode(split_columns)
        count = schema.shards[split]
        bounds = np.linspace(0, len(rows), count + 1).astype(int)
        for index in range(count):
            part = rows[bounds[index] : bounds[index + 1]]
            name = shard_name(split, index, count)
            first, stop = bounds[index], bounds[index + 1]
            shard = {name: values[first:stop] for name, values in split_columns.items()}
            statistics[name] = count_rows(shard, schema, schema.copies_of(split))
            for file_format in schema.file_formats:
                path = directory / f"{name}.{file_format}"
                write_rows(path, part)
                files.append((path.name, split, len(part)))
            path = directory / f"{name}.{ROW_DOCUMENTS}"
            path.write_bytes(row_documents(schema, name, shard))
            files.append((path.name, split, len(part)))
    read = sum(shard.documents for shard in statistics.values())
    stats = Statistics(documents_read=read, shards=statistics)
    listed = [ManifestFile(name, 1 << 30, "0" * 64, split, rows) for name, split, rows in files]
    for name, content in {
        "schema.json": to_json(schema),
        "stats.json": to_json(stats.to_dict(schema.row_tokens)),
        "inputs.json": to_json(Inputs(files=())),
        "tokenizer.json": tokenizer_json(schema.vocab_size),
        "config.yaml": f"task: {schema.task}\n".encode(),
        "report.html": b"<p>A set for tests.</p>\n",
        TOKEN_COUNTS: counts_bytes(token_counts(schema, columns)),
        **tfds_files(schema, sorted(listed, key=lambda file: file.path), stats),
    }.items():
        (directory / name).write_bytes(content)
        files.append((name, None, None))
    evaluated = sum(c.documents for split, c in stats.splits().items() if not is_training(split))
    if evaluated and any(feature.name == "example_id" for feature in schema.features):
        (directory / "evaluation.jsonl").write_bytes(evaluation_lines(columns))
        files.append(("evaluation.jsonl", None, None))
    write_manifest(directory, schema, files)
    return columns


def row_documents(schema: Schema, name: str, columns: dict[str, np.ndarray]) -> bytes:
    """The documents of a shard's rows, each segment of which is a document of its own."""
    copies = schema.copies_of(split_of(name))
    ids, segments = unmask(columns), columns["segment_ids"]
    rows = np.arange(len(ids))
    first_R = np.arange(0, len(ids), copies)
    list_R = None
    if copies > 1:
        _, equal_R = np.unique(ids, axis=0, return_inverse=True)
        by_content, list_R = np.argsort(equal_R.ravel(), kind="stable"), np.empty_like(rows)
        list_R[by_content] = rows // copies
        first_R = by_content[::copies]
    counts = np.maximum(np.asarray(segments)[first_R].max(axis=1, initial=0), 1).astype(np.int64)
    documents = np.arange(counts.sum())
    bounds = np.append(0, np.cumsum(counts))
    zeros = np.zeros_like(documents)
    return encode_row_documents(
        routed_digests(schema, name, len(documents)), bounds, documents, zeros, list_R
    )


def routed_digests(schema: Schema, name: str, count: int) -> np.ndarray:
    """Digests of documents that belong to a shard: uint8 [count, 16]."""
    split, index = split_of(name), int(name.split("-")[1])
    before = sum(share for other, share in schema.splits.items() if other < split)
    high = int((before + schema.splits[split] / 2) * (1 << 63)) * 2
    low = np.arange(count, dtype=np.uint64) * np.uint64(schema.shards[split]) + np.uint64(index)
    halves = np.stack([np.full(count, high, np.uint64), low], axis=1)
    return halves.astype(">u8").view(np.uint8)


def token_counts(schema: Schema, columns: dict[str, dict[str, np.ndarray]]) -> np.ndarray:
    """int64 [vocab_size]: how often each id is there, masks taken off, in one masked copy."""
    counts = np.zeros(schema.vocab_size, np.int64)
    for split, rows in columns.items():
        ids = unmask(rows)[np.asarray(rows["segment_ids"]) > 0]
        in_rows = np.bincount(np.minimum(ids, schema.vocab_size - 1), minlength=len(counts))
        counts += in_rows // schema.copies_of(split)
        if "target_ids" in rows:
            ids = rows["target_ids"][rows["target_segment_ids"] > 0]
            counts += np.bincount(ids, minlength=len(counts))
    return counts


def evaluation_lines(columns: dict[str, dict[str, np.ndarray]]) -> bytes:
    """An evaluation.jsonl of all rows that are not trained on."""
    ids = {
        f"{high:08x}{low:08x}"
        for split, rows in columns.items()
        if not is_training(split)
        for high, low in np.asarray(rows["example_id"]).tolist()
    }
    return b"".join(json.dumps({"example_id": name}).encode() + b"\n" for name in sorted(ids))


def write_manifest(directory: Path, schema: Schema, files: list[tuple]) -> None:
    """MANIFEST.json of files as (name, split, rows)."""
    listed = []
    for name, split, rows in sorted(files, key=lambda file: file[0]):
        content = (directory / name).read_bytes()
        sha256 = hashlib.sha256(content).hexdigest()
        pieces = None
        if name.endswith(FORMATS) and not schema.holds_documents:
            pieces = sum_pieces(str(directory / name), schema.codec().stride, rows)
        listed.append(ManifestFile(name, len(content), sha256, split, rows, pieces))
    manifest = Manifest(MANIFEST_VERSION, schema.fingerprint, tuple(listed))
    text = json.dumps(manifest.to_dict(), sort_keys=True, indent=2)
    (directory / "MANIFEST.json").write_text(text)


def replace_file(directory: Path, name: str, content: bytes) -> None:
    """Changes a file of a finished set and its entry in the manifest, as a careful hand would."""
    manifest = json.loads((directory / "MANIFEST.json").read_text())
    (directory / name).write_bytes(content)
    for file in manifest["files"]:
        if file["path"] == name:
            file.update(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    sign(manifest)
    (directory / "MANIFEST.json").write_text(json.dumps(manifest))


def replace_tokenizer(directory: Path, content: bytes) -> None:
    """Gives a finished set another tokenizer, in its schema too."""
    values = json.loads((directory / "schema.json").read_text())
    values.update(tokenizer_sha256=hashlib.sha256(content).hexdigest(), fingerprint="")
    schema = Schema.from_dict(values, "schema.json")
    manifest = json.loads((directory / "MANIFEST.json").read_text())
    manifest["fingerprint"] = schema.fingerprint
    (directory / "MANIFEST.json").write_text(json.dumps(manifest))
    replace_file(directory, "schema.json", to_json(schema))
    replace_file(directory, "tokenizer.json", content)


def sign(manifest: dict[str, Any]) -> None:
    """Makes the digest of a changed MANIFEST.json right, in place."""
    if manifest.pop("digest", ""):
        manifest["digest"] = canonical_sha256(manifest)


def canonical_sha256(values: dict[str, Any]) -> str:
    """The sha256 of canonical JSON, as digests and fingerprints are."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def write_rows(path: Path, rows: np.ndarray) -> None:
    """A shard of rows uint8 [B, stride], in the format of its name."""
    if path.suffix == ".tfrecord":
        path.write_bytes(frame(rows).tobytes())
        return
    if path.suffix != ".array_record":
        raise DataError(f"{path}: no such format")
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(path), "group_size:1,uncompressed")
    for row in rows:
        writer.write(row.tobytes())
    writer.close()


def write_mlm_set(
    directory: Path, *, train: int = 40, validation: int = 10, **changes
) -> dict[str, dict[str, np.ndarray]]:
    """A whole small mlm set; returns its columns by split."""
    schema = mlm_schema(**changes)
    columns = {
        "train": packed_rows(schema, train, seed=1),
        "validation": packed_rows(schema, validation, seed=2),
    }
    return write_set(directory, schema, columns)
