"""Small finished sets of causal rows for tests."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.tools.shard_factory import mlm_schema, packed_rows, write_set
from textmill.schemas.format.features import task_features
from textmill.schemas.format.metadata import Schema


def clm_schema(**changes) -> Schema:
    """A schema of small rows, each segment `<s> ... </s>`; any field may be replaced."""
    schema = mlm_schema(static_masking=False, mask_rate=0.0, **changes)
    features = task_features("clm", max_length=schema.max_length, vocab_size=schema.vocab_size)
    return replace(schema, task="clm", features=features, fingerprint="")


def chat_schema() -> Schema:
    """The schema of the same rows of conversations."""
    parameters = {
        **{"chat_template": "", "end_of_turn": "", "train_on": "assistant"},
        **{"prefix_ids": [], "suffix_ids": []},
    }
    return replace(clm_schema(), task="chat", parameters=parameters, fingerprint="")


def clm_rows(schema: Schema, rows: int, seed: int, *, step: int = 1) -> dict[str, np.ndarray]:
    """As `packed_rows`, with weights of 1 for every token but the first of its segment."""
    columns = packed_rows(schema, rows, seed, step=step)
    segments = columns["segment_ids"]
    weights = np.zeros_like(segments)
    weights[:, 1:] = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
    return columns | {"loss_weights": weights}


def write_clm_set(
    directory: Path, *, train: int = 40, validation: int = 10, step: int = 1, **changes
) -> dict[str, dict[str, np.ndarray]]:
    """A small set; returns its columns by split. Changes are fields of the schema, or `schema`."""
    schema = changes.pop("schema", None) or clm_schema(**changes)
    columns = {
        "train": clm_rows(schema, train, seed=1, step=step),
        "validation": clm_rows(schema, validation, seed=2, step=step),
    }
    return write_set(directory, schema, columns)
