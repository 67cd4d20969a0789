"""Small classification sets for tests, in the form that build_shards writes."""

from pathlib import Path
from typing import Any

import numpy as np

from tests.tools.shard_factory import BOS, EOS, mlm_schema, write_set
from textmill.schemas.format.features import task_features
from textmill.schemas.format.metadata import Schema


def class_schema(*, classes=("neg", "pos"), pairs: bool = False, **changes: Any) -> Schema:
    """A contract of small rows; any field may be replaced."""
    parameters = {
        "classes": list(classes),
        "truncation": "head",
        "prefix_ids": [BOS],
        "suffix_ids": [EOS],
    }
    if pairs:
        parameters.update(text_pair_field="other", middle_ids=[EOS])
    base = mlm_schema(static_masking=False, mask_rate=0.0, max_masked=0, packing="none", **changes)
    fields = dict(vars(base), task="classification", parameters=parameters, fingerprint="")
    fields["features"] = task_features(
        "classification",
        max_length=base.max_length,
        vocab_size=base.vocab_size,
        parameters=parameters,
    )
    return Schema(**fields)


def class_rows(schema: Schema, rows: int, seed: int) -> dict[str, np.ndarray]:
    """`<s> w w w </s>` of random words; the label is which of C words of its own is among them."""
    random = np.random.default_rng(seed)
    length, classes = schema.max_length, len(schema.parameters["classes"])
    ids = np.full((rows, length), schema.special_ids["pad"], np.int64)
    segments = np.zeros((rows, length), np.int64)
    labels = random.integers(classes, size=rows)
    for row in range(rows):
        tokens = int(random.integers(2, length - 1))
        text = random.integers(5 + classes, schema.vocab_size, tokens)
        text[random.integers(tokens)] = 5 + labels[row]
        ids[row, : tokens + 2] = [BOS, *text, EOS]
        segments[row, : tokens + 2] = 1
    columns = {
        "input_ids": ids,
        "segment_ids": segments,
        "label": labels,
        "example_id": np.zeros((rows, 2), np.int64),
    }
    if "text_pair_field" in schema.parameters:
        columns["token_type_ids"] = np.where(np.arange(length) >= length // 2, segments, 0)
    return columns


def write_class_set(
    directory: Path, *, train: int = 64, validation: int = 24, **changes: Any
) -> tuple[Schema, dict[str, dict[str, np.ndarray]]]:
    """A whole small classification set; returns its contract, and its columns by split."""
    schema = class_schema(**changes)
    columns = {
        "train": class_rows(schema, train, 1),
        "validation": class_rows(schema, validation, 2),
    }
    return schema, write_set(directory, schema, columns)
