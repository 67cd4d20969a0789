"""Contradictions between the metadata files, each by hand; both sides of each limit."""

from dataclasses import replace
from typing import Any

import pytest

from tests.tools.class_factory import class_schema
from tests.tools.clm_factory import chat_schema, clm_schema
from tests.tools.shard_factory import mlm_schema
from textmill.schemas.format.agreement import DUE, FOR_TFDS, disagreements
from textmill.schemas.format.features import task_features
from textmill.schemas.format.manifest import (
    EVALUATION,
    FORMAT_VERSION,
    REJECTS,
    Manifest,
    ManifestFile,
)
from textmill.schemas.format.metadata import Schema
from textmill.schemas.format.records import framed_bytes, largest_file
from textmill.schemas.format.statistics import ShardStatistics, Statistics
from textmill.schemas.tokenizers.tokenizer_json import TOKENIZER_CONFIG

NAMES = ["train-00000-of-00002", "train-00001-of-00002", "validation-00000-of-00001"]
DOCUMENTS = replace(
    clm_schema(),
    task="tokens",
    features=task_features("tokens", max_length=16, vocab_size=50),
    file_formats=("npy",),
    fingerprint="",
)
QA = replace(
    clm_schema(),
    task="qa",
    parameters={
        **{"bos": True, "max_answer_length": 4, "max_question_length": 4, "qa_form": "causal"},
        "qa_template": "{question} {context} {answer}",
    },
    features=task_features("qa", max_length=16, vocab_size=50, parameters={"qa_form": "causal"}),
    fingerprint="",
)


# A head of 56 bytes, 2 digests, and 4 bytes for each number of 1 row and 2 segments.
MOST_DOCUMENTS = 56 + 2 * 16 + 2 * 4 * (1 + 2)


def told(schema: Schema, *, files=None, names=NAMES, **counts) -> list[str]:
    """What `disagreements` yields but for the equations of stats.json.

    Args:
      schema: of rows of 16 positions, 2 of them masked at most.
      files: replaces files of the manifest: path -> its changes, or None to take it out.
      names: shards of stats.json, whose counts are two segments of 3 tokens in 1 row.
      **counts: replace those of the first shard.
    """
    usual: dict[str, Any] = dict(
        documents=2, tokens=2, specials_added=4, rows=1, tokens_in_rows=6, segments=2
    )
    shards = {name: ShardStatistics(**usual) for name in names}
    shards[names[0]] = ShardStatistics(**{**usual, **counts})
    row = 99 if schema.holds_documents else framed_bytes(schema.codec().stride)
    pieces = None if schema.holds_documents else ("0" * 16,)
    listed: dict[str, dict[str, Any]] = {
        f"{name}.{ending}": dict(bytes=row, split=split, rows=1, pieces=pieces)
        for split in schema.splits
        for name in (schema.shard_names(split) if schema.shards.get("train") == 2 else NAMES)
        for file_format in schema.file_formats
        for ending in schema.endings(file_format)
    }
    of_rows = [(path.split(".")[0], values) for path, values in listed.items()]
    other = {"bytes": MOST_DOCUMENTS, "pieces": None}
    listed |= {f"{name}.documents": {**values, **other} for name, values in of_rows}
    due = set(DUE) - (set() if schema.is_for_tfds else set(FOR_TFDS))
    listed |= {name: dict(bytes=1) for name in due}
    listed["tokenizer.json"]["sha256"] = schema.tokenizer_sha256
    listed["token_counts.npy"]["bytes"] = 128 + 8 * 50
    for path, changes in (files or {}).items():
        if changes is None:
            del listed[path]
        else:
            listed[path] = listed.get(path, {}) | changes
    entries = [
        ManifestFile(**{"path": path, "bytes": 1, "sha256": "0" * 64, **values})
        for path, values in sorted(listed.items())
    ]
    manifest = Manifest(FORMAT_VERSION, schema.fingerprint, tuple(entries))
    found = disagreements(schema, Statistics(2 * len(names), shards=shards), manifest)
    return [line for line in found if " != " not in line]


MLM, CLASSES = mlm_schema(), class_schema()
ONE_PER_ROW = mlm_schema(packing="none")
ORDER = "rows <= segments <= tokens in rows <= positions in rows"
LABELS = "labels are the classes, and add up to the documents"
SPECIALS = "specials added are those of parameters"


@pytest.mark.parametrize(
    ("schema", "counts", "rule"),
    [
        (MLM, {}, None),
        (MLM, {"rows": 3}, ORDER),
        (MLM, {"segments": 7}, ORDER),
        (MLM, {"segments": 6, "specials_added": 12}, None),
        (MLM, {"tokens_in_rows": 16}, None),
        (MLM, {"tokens_in_rows": 17}, ORDER),
        (ONE_PER_ROW, {}, "rows = segments, since packing is none"),
        (MLM, {"masked": 2}, None),
        (MLM, {"masked": 3}, "masked <= rows x 2"),
        (MLM, {"labels": {"neg": 2}}, LABELS),
        (CLASSES, {"segments": 1, "labels": {"neg": 1, "pos": 1}}, None),
        (CLASSES, {"segments": 1, "labels": {"neg": 2}}, None),
        (CLASSES, {"segments": 1, "labels": {"neg": 1}}, LABELS),
        (CLASSES, {"segments": 1, "labels": {"odd": 2}}, LABELS),
        (MLM, {"specials_added": 3}, SPECIALS),
        (mlm_schema(mask_copies=3), {"segments": 3, "specials_added": 2}, None),  # of one copy
        (mlm_schema(mask_copies=3), {"segments": 3, "specials_added": 6}, SPECIALS),
        (mlm_schema(packing="concat", mask_copies=2), {"specials_added": 4}, None),  # 2 documents
        (mlm_schema(packing="concat", mask_copies=2), {"specials_added": 2}, SPECIALS),
        (clm_schema(), {"documents": 3, "specials_added": 6}, None),
        (clm_schema(), {"documents": 3, "specials_added": 4}, SPECIALS),
        (chat_schema(), {"specials_added": 0}, None),
        (QA, {"segments": 3, "specials_added": 6}, None),  # bos and eos of each
        (QA, {"specials_added": 3}, SPECIALS),
        (DOCUMENTS, {"tokens_in_rows": 1 << 40}, None),
    ],
)
def test_counts_of_a_shard(schema, counts, rule):
    lines = [line for line in told(schema, **counts) if NAMES[0] in line and "violate" in line]
    said = f"stats.json: {NAMES[0]}: the counts violate the rule: {rule}"
    assert lines == ([said] if rule else [])


SHARD = f"{NAMES[0]}.tfrecord"
BESIDE = f"{NAMES[0]}.documents"
ARRAYS, ARRAY = mlm_schema(file_formats=("array_record",)), f"{NAMES[0]}.array_record"
ROW, MOST = framed_bytes(MLM.codec().stride), largest_file(1, MLM.codec().stride)
EVALUATED = f"MANIFEST.json does not list {EVALUATION}, which every such dataset has"
DIFFER = "MANIFEST.json and schema.json differ in the shards ['{}'], or in their splits"


@pytest.mark.parametrize(
    ("schema", "changes", "said"),
    [
        (MLM, {}, []),
        (MLM, {SHARD: {"rows": 2, "bytes": 2 * ROW}}, [f"{SHARD} has 2 rows, but stats.json 1"]),
        (MLM, {SHARD: {"bytes": ROW - 1}}, [f"{SHARD} has {ROW - 1} bytes, but 1 rows take {ROW}"]),
        (MLM, {SHARD: {"bytes": ROW + 1}}, [f"{SHARD} has {ROW + 1} bytes, but 1 rows take {ROW}"]),
        (ARRAYS, {ARRAY: {"bytes": ROW}}, []),
        (ARRAYS, {ARRAY: {"bytes": MOST}}, []),
        (
            ARRAYS,
            {ARRAY: {"bytes": MOST + 1}},
            [f"{ARRAY} has {MOST + 1:,} bytes, but 1 rows take {MOST:,}"],
        ),
        (DOCUMENTS, {f"{NAMES[0]}.{DOCUMENTS.read_ending}": {"bytes": 1}}, []),
        (MLM, {BESIDE: {"bytes": 1}}, []),
        (
            MLM,
            {BESIDE: {"bytes": MOST_DOCUMENTS + 1}},
            [f"{BESIDE} has {MOST_DOCUMENTS + 1} bytes, but its documents take {MOST_DOCUMENTS}"],
        ),
        (MLM, {BESIDE: {"rows": 2}}, [f"{BESIDE} has 2 rows, but stats.json 1"]),
        (MLM, {BESIDE: None}, [DIFFER.format(BESIDE)]),
        (MLM, {SHARD: {"pieces": None}}, [f"{SHARD} has the hashes of 0 pieces, not of 1"]),
        (
            MLM,
            {SHARD: {"pieces": ("0" * 16,) * 2}},
            [f"{SHARD} has the hashes of 2 pieces, not of 1"],
        ),
        (MLM, {SHARD: None}, [DIFFER.format(SHARD)]),
        (MLM, {SHARD: {"split": "validation"}}, [DIFFER.format(SHARD)]),
        (
            MLM,
            {"token_counts.npy": {"bytes": 1}},
            ["token_counts.npy has 1 bytes, but its ids take 528"],
        ),
        (
            MLM,
            {"tokenizer.json": {"sha256": "1" * 64}},
            ["tokenizer.json is not the tokenizer of schema.json: its sha256 differs"],
        ),
        (MLM, {REJECTS: {}, TOKENIZER_CONFIG: {}}, []),
        (
            MLM,
            {EVALUATION: {}},
            [f"MANIFEST.json lists '{EVALUATION}', which such a dataset does not have"],
        ),
        (QA, {EVALUATION: {}}, []),
        (QA, {}, [EVALUATED]),
        (
            mlm_schema(
                splits=dict.fromkeys("abcdefghij", 0.1),
                shards=dict.fromkeys("abcdefghij", 99_999),
                file_formats=("array_record", "tfrecord"),
            ),
            {},
            ["MANIFEST.json lists 9 files of shards, but schema.json 2,999,970"],
        ),
    ],
)
def test_files_of_the_manifest(schema, changes, said):
    counts = {"specials_added": 4} if schema is QA else {}
    assert told(schema, files=changes, **counts) == said


def test_shards_of_the_statistics():
    assert told(MLM, names=["a", "b", "c", *NAMES[:2]])[0] == (
        "stats.json and schema.json differ in the shards ['a', 'b', 'c']"
    )
