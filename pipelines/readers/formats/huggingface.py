"""`hf:PATH_OR_NAME[:config][:split]` -> the Arrow files in which `datasets` keeps a split.

`datasets` opens, downloads or builds the dataset once, while the run is planned. Workers read its
Arrow files in place and never import `datasets`.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from textmill.schemas.errors import (
    DataError,
    FieldDataError,
    FieldError,
    OfField,
    TextmillError,
    flag,
)

if TYPE_CHECKING:
    from datasets import Dataset

_SAVED = ("dataset_dict.json", "state.json", "dataset_info.json")
_METADATA = b"huggingface"  # the key under which `datasets` describes columns in a file's schema
_HUB = "hf://"  # of files that are not downloaded yet
_FORMS = "hf:PATH_OR_NAME, hf:PATH_OR_NAME:SPLIT or hf:PATH_OR_NAME:CONFIG:SPLIT"


@dataclass(frozen=True)
class StoredSplit:
    """A split of a dataset on disk.

    Attributes:
      paths: Arrow files, in order.
      classes: names of class numbers by field.
    """

    paths: tuple[str, ...]
    classes: dict[str, tuple[str, ...]]


def find_split(address: str, *, follow_links: bool = False, field: str = "input") -> StoredSplit:
    """Finds, builds or downloads a split by its address without `hf:`.

    Args:
      address: path or name, with config and split.
      follow_links: whether files of a directory may be links out of it.
      field: of the options, which holds the address.

    Raises:
      UsageError: the address names no split and there are several, or names a missing one.
      DataError: the dataset does not exist, or cannot be read.
    """
    try:
        # An optional package, which takes two seconds to import.
        import datasets
    except ImportError as error:
        raise FieldError(
            field,
            f"hf:{address}",
            "this needs the package datasets: pip install '/path/to/textmill[hf]'",
        ) from error
    shown = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    try:
        return _find_stored(_open(datasets, address, follow_links), address)
    except OfField as error:
        raise error.of(field) from error
    except TextmillError:
        raise
    except Exception as error:  # builders of datasets may raise anything
        raise FieldDataError(
            field,
            f"hf:{address}",
            f"datasets cannot open it ({type(error).__name__}: {error})",
        ) from error
    finally:
        if shown:
            datasets.enable_progress_bars()


def _parse(address: str) -> tuple[str, list[str]]:
    """Path or name, and the names after it; a directory may have colons in its name."""
    parts = address.split(":")
    for count in range(len(parts), 0, -1):
        if os.path.exists(":".join(parts[:count])):
            break
    else:
        count = 1
    path, names = ":".join(parts[:count]), parts[count:]
    if not path or len(names) > 2:
        raise FieldError("", f"hf:{address}", f"not {_FORMS}")
    if any("[" in name for name in names):
        raise FieldError(
            "",
            f"hf:{address}",
            "slices of a split cannot be read; save the slice with save_to_disk, and name its "
            "directory",
        )
    is_path = path.startswith(("/", ".", "~")) or path.count("/") > 1
    if is_path and not os.path.isdir(path):
        raise FieldDataError(
            "",
            f"hf:{address}",
            f"there is no directory {path}"
            + (f"; without hf: it can be read as {path}" if os.path.isfile(path) else ""),
        )
    return path, names


def _open(datasets: ModuleType, address: str, follow_links: bool) -> "Dataset":
    path, names = _parse(address)
    if os.path.isdir(path) and any(os.path.exists(os.path.join(path, n)) for n in _SAVED):
        loaded, config = datasets.load_from_disk(path), ""
        several = [loaded] if isinstance(loaded, datasets.Dataset) else loaded.values()
        files = (file["filename"] for dataset in several for file in dataset.cache_files)
        _check_inside(path, files, follow_links)
        if len(names) == 2 and names[0]:
            raise FieldError("", f"hf:{address}", f"a saved dataset has no config {names[0]!r}")
        split = names[-1] if names else ""
    else:
        configs = datasets.get_dataset_config_names(path)
        if len(names) == 1 and names[0] not in configs:
            names = ["", *names]
        config, split = [*names, "", ""][:2]
        if (config and config not in configs) or (not config and len(configs) > 1):
            raise FieldError(
                "", f"hf:{address}", f"name one of its configs, {', '.join(configs)}: {_FORMS}"
            )
        builder = datasets.load_dataset_builder(path, config or None)
        files = (str(file) for some in (builder.config.data_files or {}).values() for file in some)
        _check_inside(path if os.path.isdir(path) else "", files, follow_links)
        builder.download_and_prepare()
        loaded = builder.as_dataset()
    if isinstance(loaded, datasets.Dataset):
        if split and split != str(loaded.split):
            raise FieldError(
                "", f"hf:{address}", f"{path} holds one dataset without splits: remove {split!r}"
            )
        return loaded
    splits = {str(name): dataset for name, dataset in loaded.items()}
    if not split and len(splits) == 1:
        [split] = splits
    if split not in splits:
        some = f"{path}:{config}" if config else path
        wanted = f"there is no split {split!r}" if split else "it has several splits"
        raise FieldError(
            "",
            f"hf:{address}",
            f"{wanted}; name one: " + ", ".join(f"hf:{some}:{name}" for name in splits),
        )
    return splits[split]


def _check_inside(directory: str, files: Iterable[str], follow_links: bool) -> None:
    """Checks that a dataset's files are in its directory, or in the hub if it is "".

    Raises:
      DataError: a file is elsewhere; the metadata of a dataset may name any path or URL.
    """
    for file in files:
        if not directory:
            is_inside = file.startswith(_HUB)
        elif "://" in file or "::" in file:
            is_inside = False
        else:
            root, place = os.path.abspath(directory), os.path.abspath(file)
            is_inside = place.startswith(os.path.join(root, ""))
            if is_inside and not follow_links:
                real = os.path.realpath(place)
                is_inside = real.startswith(os.path.join(os.path.realpath(directory), ""))
                if not is_inside:
                    raise DataError(
                        f"{file} is a link out of the dataset's directory, to {real}: if you trust "
                        f"the dataset, add {flag('follow_links', True)}"
                    )
        if not is_inside:
            raise DataError(
                f"the dataset {directory or 'of the hub'} names a file outside of it, {file}, "
                "which is not read: correct data_files in its README.md, or give it as an input "
                "of its own"
            )


def _find_stored(dataset: "Dataset", address: str) -> StoredSplit:
    paths = tuple(file["filename"] for file in dataset.cache_files)
    rows = 0
    for path in paths:
        with pa.memory_map(path) as mapped:  # reads only the sizes of batches
            rows += sum(len(batch) for batch in pa.ipc.open_stream(mapped))
    if rows != dataset.num_rows or dataset._indices is not None:
        raise FieldDataError(
            "",
            f"hf:{address}",
            f"a view of {dataset.num_rows:,} of the {rows:,} rows in its files: save it with "
            "save_to_disk, and give that directory",
        )
    return StoredSplit(paths, feature_classes(dataset.features.to_dict()))


def class_names(schema: pa.Schema) -> dict[str, tuple[str, ...]]:
    """Names of class numbers by field, from the metadata of an Arrow or Parquet file."""
    stored = (schema.metadata or {}).get(_METADATA)
    try:
        return feature_classes(json.loads(stored)["info"]["features"] if stored else {})
    except (ValueError, KeyError, TypeError):
        return {}


def feature_classes(features: Any, prefix: str = "") -> dict[str, tuple[str, ...]]:
    """Names of class numbers by field, from features as JSON: {"label": ("neg", "pos")}."""
    classes: dict[str, tuple[str, ...]] = {}
    for name, feature in features.items() if isinstance(features, dict) else ():
        if not isinstance(feature, dict):
            continue
        if feature.get("_type") == "ClassLabel":
            if feature.get("names"):
                classes[prefix + name] = tuple(map(str, feature["names"]))
        elif "_type" not in feature:
            classes |= feature_classes(feature, f"{prefix}{name}.")
    return classes
