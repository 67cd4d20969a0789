"""Names of class numbers, as Hugging Face's `datasets` writes them beside data. Pure."""

import json
from typing import Any

import pyarrow as pa

_KEY = b"huggingface"


def class_names(schema: pa.Schema) -> dict[str, tuple[str, ...]]:
    """Names by field, from the metadata of an Arrow or Parquet file; {} where it has none."""
    stored = (schema.metadata or {}).get(_KEY)
    try:
        return feature_classes(json.loads(stored)["info"]["features"] if stored else {})
    except (ValueError, KeyError, TypeError):
        return {}


def feature_classes(features: Any, prefix: str = "") -> dict[str, tuple[str, ...]]:
    """The ClassLabels among features, as JSON has them, by field: {"label": ("neg", "pos")}."""
    found: dict[str, tuple[str, ...]] = {}
    for name, feature in features.items() if isinstance(features, dict) else ():
        if not isinstance(feature, dict):
            continue
        if feature.get("_type") == "ClassLabel":
            if feature.get("names"):
                found[prefix + name] = tuple(map(str, feature["names"]))
        elif "_type" not in feature:
            found |= feature_classes(feature, f"{prefix}{name}.")
    return found
