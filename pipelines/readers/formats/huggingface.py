"""`hf:PATH_OR_NAME[:config][:split]` -> the Arrow files that `datasets` keeps a split in.

`datasets` opens, downloads or builds the set, once, while the run is planned; workers read its
files as any others and never import it. Nothing is copied but what it builds itself in its cache.
"""

import json
import os
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from schemas.errors import DataError, TextmillError, UsageError

if TYPE_CHECKING:
    from datasets import Dataset

_SAVED = ("dataset_dict.json", "state.json", "dataset_info.json")
_METADATA = b"huggingface"  # the key under which `datasets` describes columns in a file's schema
_FORMS = "hf:PATH_OR_NAME, hf:PATH_OR_NAME:SPLIT or hf:PATH_OR_NAME:CONFIG:SPLIT"


@dataclass(frozen=True)
class StoredSplit:
    """A split as it lies on disk.

    Attributes:
      paths: its Arrow files, in order.
      classes: names of class numbers by field.
    """

    paths: tuple[str, ...]
    classes: dict[str, tuple[str, ...]]


def find_split(address: str) -> StoredSplit:
    """Finds, builds or downloads a split.

    Args:
      address: what follows `hf:`.

    Raises:
      UsageError: the address names none of several splits, or one that is not there.
      DataError: nothing is there, or it cannot be read.
    """
    path, names = _parse(address)
    try:
        # An extra, which takes two seconds to import.
        import datasets
    except ImportError as error:
        raise UsageError(
            f"--input=hf:{address} needs the package datasets: pip install '/path/to/textmill[hf]'"
        ) from error
    shown = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    try:
        return _find_stored(_open(datasets, path, names, address), address)
    except TextmillError:
        raise
    except Exception as error:  # it raises whatever its builders raise
        raise DataError(
            f"--input=hf:{address}: datasets cannot open it ({type(error).__name__}: {error})"
        ) from error
    finally:
        if shown:
            datasets.enable_progress_bars()


def _parse(address: str) -> tuple[str, list[str]]:
    """Path or name, and what follows it; colons in the name of a directory are its own."""
    parts = address.split(":")
    for count in range(len(parts), 0, -1):
        if os.path.exists(":".join(parts[:count])):
            break
    else:
        count = 1
    path, names = ":".join(parts[:count]), parts[count:]
    if not path or len(names) > 2:
        raise UsageError(f"--input=hf:{address}: not {_FORMS}")
    if any("[" in name for name in names):
        raise UsageError(
            f"--input=hf:{address}: a split is read as a whole; to read a part of one, save that "
            "part with save_to_disk and name its directory"
        )
    is_path = path.startswith(("/", ".", "~")) or path.count("/") > 1
    if is_path and not os.path.isdir(path):
        raise DataError(
            f"--input=hf:{address}: there is no directory {path}"
            + (f"; without hf: it can be read as {path}" if os.path.isfile(path) else "")
        )
    return path, names


def _open(datasets: ModuleType, path: str, names: list[str], address: str) -> "Dataset":
    if os.path.isdir(path) and any(os.path.exists(os.path.join(path, n)) for n in _SAVED):
        found, config = datasets.load_from_disk(path), ""
        if len(names) == 2 and names[0]:
            raise UsageError(f"--input=hf:{address}: a saved dataset has no config {names[0]!r}")
        split = names[-1] if names else ""
    else:
        configs = datasets.get_dataset_config_names(path)
        if len(names) == 1 and names[0] not in configs:
            names = ["", *names]
        config, split = [*names, "", ""][:2]
        if (config and config not in configs) or (not config and len(configs) > 1):
            raise UsageError(
                f"--input=hf:{address}: name one of its configs, {', '.join(configs)}: {_FORMS}"
            )
        found = datasets.load_dataset(path, config or None)
    if isinstance(found, datasets.Dataset):
        if split and split != str(found.split):
            raise UsageError(
                f"--input=hf:{address}: {path} holds one dataset and no splits: leave out {split!r}"
            )
        return found
    splits = {str(name): dataset for name, dataset in found.items()}
    if not split and len(splits) == 1:
        [split] = splits
    if split not in splits:
        some = f"{path}:{config}" if config else path
        wanted = f"there is no split {split!r}" if split else "it has several splits"
        raise UsageError(
            f"--input=hf:{address}: {wanted}; name one: "
            + ", ".join(f"--input=hf:{some}:{name}" for name in splits)
        )
    return splits[split]


def _find_stored(found: "Dataset", address: str) -> StoredSplit:
    paths = tuple(file["filename"] for file in found.cache_files)
    rows = 0
    for path in paths:
        with pa.memory_map(path) as mapped:  # looks at the batches' sizes alone
            rows += sum(len(batch) for batch in pa.ipc.open_stream(mapped))
    if rows != found.num_rows or found._indices is not None:
        raise DataError(
            f"--input=hf:{address} is a view of {found.num_rows:,} rows of files that hold "
            f"{rows:,}: save it with save_to_disk, and give that directory"
        )
    return StoredSplit(paths, feature_classes(found.features.to_dict()))


def class_names(schema: pa.Schema) -> dict[str, tuple[str, ...]]:
    """Names by field, from the metadata of an Arrow or Parquet file; {} where it has none."""
    stored = (schema.metadata or {}).get(_METADATA)
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
