"""What differs between two sets: contract, inputs, counts, tokens, rows. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from pipelines.inspection.row_text import TokenTexts
from schemas.sidecar import Inputs, SetInfo
from schemas.statistics import ShardStatistics, Statistics

_LISTED = 10  # inputs and tokens: the rest is one line
ABSENT = "-"


@dataclass(frozen=True)
class Difference:
    """One thing that two sets have different.

    Attributes:
      part: contract, inputs, documents, a split, tokens or files.
      name: of what differs.
      here: in the first set.
      there: in the second.
    """

    part: str
    name: str
    here: str
    there: str


def set_differences(here: SetInfo, there: SetInfo) -> list[Difference]:
    """All that differs, but for the tokens; nothing if the sets hold the same rows and counts.

    Inputs are compared by content: the same files in another folder are no difference.
    """
    return [
        *_of_values("contract", _contract(here), _contract(there)),
        *_of_inputs(here.inputs, there.inputs),
        *_of_values("documents", _documents(here.stats), _documents(there.stats)),
        *_of_splits(here, there),
        *_of_files(here, there),
    ]


def token_differences(here: np.ndarray, there: np.ndarray, texts: TokenTexts) -> list[Difference]:
    """The tokens whose share of all tokens differs most.

    Args:
      here: int64 [vocabulary] counts of the first set.
      there: of the second; of the same tokenizer.
      texts: of that tokenizer.
    """
    differ = int((here != there).sum())
    if not differ:
        return []
    shares = [counts / max(int(counts.sum()), 1) for counts in (here, there)]
    order = np.argsort(-np.abs(shares[1] - shares[0]), kind="stable")
    listed = [i for i in order.tolist() if here[i] != there[i]][:_LISTED]
    found = [
        Difference("tokens", f"{i} '{texts.text([i])}'", f"{here[i]:,}", f"{there[i]:,}")
        for i in listed
    ]
    if differ > len(listed):
        found.append(Difference("tokens", f"and {differ - len(listed):,} ids more", "", ""))
    return found


def _of_values(
    part: str, here: Mapping[str, str], there: Mapping[str, str]
) -> Iterator[Difference]:
    for name in {**here, **there}:
        values = here.get(name, ABSENT), there.get(name, ABSENT)
        if values[0] != values[1]:
            yield Difference(part, name, *values)


def _contract(info: SetInfo) -> dict[str, str]:
    schema = asdict(info.schema)
    # The fingerprint follows from all others, and golden ids from the tokenizer.
    for name in ("fingerprint", "golden", "features"):
        del schema[name]
    flat = _flat("", schema)
    for feature in info.schema.features:
        flat[f"features.{feature.name}"] = f"{feature.dtype}{list(feature.shape)}"
    return flat


def _flat(prefix: str, values: Mapping[str, Any]) -> dict[str, str]:
    """{"splits": {"train": 0.9}} -> {"splits.train": "0.9"}."""
    flat = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(f"{prefix}{name}.", value)
        elif isinstance(value, list | tuple):
            flat[prefix + name] = ", ".join(map(str, value))
        else:
            flat[prefix + name] = str(value)
    return flat


def _of_inputs(here: Inputs, there: Inputs) -> Iterator[Difference]:
    sides = []
    for own, other in ((here, there), (there, here)):
        surplus = Counter(own.content())
        surplus.subtract(Counter(other.content()))
        only = []
        for file in own.files:
            if surplus[file.bytes, file.digest] > 0:
                surplus[file.bytes, file.digest] -= 1
                only.append(file)
        sides.append(only)
    for side, only in enumerate(sides):
        for file in only[:_LISTED]:
            told = [ABSENT, ABSENT]
            told[side] = f"{file.bytes:,} bytes"
            yield Difference("inputs", file.path, *told)
        if len(only) > _LISTED:
            told = [ABSENT, ABSENT]
            told[side] = f"{len(only) - _LISTED:,} more"
            yield Difference("inputs", "others", *told)


def _documents(stats: Statistics) -> dict[str, str]:
    counts = {
        "read": stats.documents_read,
        "source bytes": stats.source_bytes,
        "guarded": stats.documents_guarded,
    }
    for reason, count in sorted(stats.all_dropped().items()):
        counts[f"dropped: {reason}"] = count
    if stats.funnel:
        for reason, removed in sorted(stats.funnel.removed.items()):
            counts[f"bytes dropped: {reason}"] = removed.text_bytes
            counts[f"tokens dropped: {reason}"] = removed.tokens
    return {name: f"{count:,}" for name, count in counts.items()}


def _of_splits(here: SetInfo, there: SetInfo) -> Iterator[Difference]:
    sides = [info.stats.splits() for info in (here, there)]
    for split in {**sides[0], **sides[1]}:
        counts = [_counts(side.get(split, ShardStatistics())) for side in sides]
        yield from _of_values(f"split {split}", *counts)


def _counts(stats: ShardStatistics) -> dict[str, str]:
    counts: dict[str, int] = {}
    for field in fields(stats):
        value = getattr(stats, field.name)
        if isinstance(value, int):
            counts[field.name.replace("_", " ")] = value
    for reason, count in stats.dropped.items():
        counts[f"dropped: {reason}"] = count
    for label, count in stats.labels.items():
        counts[f"label {label}"] = count
    for bin_, count in enumerate(stats.length_histogram):
        low, high = (1 << bin_) >> 1, max((1 << bin_) - 1, 0)
        span = f"{low:,}" if low >= high else f"{low:,} to {high:,}"
        counts[f"documents of {span} tokens"] = count
    return {name: f"{count:,}" for name, count in counts.items()}


def _of_files(here: SetInfo, there: SetInfo) -> Iterator[Difference]:
    """Shards whose bytes differ, a line a split; where there are none, rows are equal."""
    sides = [{f.path: f for f in info.manifest.files if f.split} for info in (here, there)]
    splits = dict.fromkeys(f.split for side in sides for f in side.values())
    for split in splits:
        own = [{p: f.sha256 for p, f in side.items() if f.split == split} for side in sides]
        equal = sum(own[1].get(path) == sha256 for path, sha256 in own[0].items())
        if not equal == len(own[0]) == len(own[1]):
            told = [f"{len(side):,} files, {len(side) - equal:,} not there" for side in own]
            told[1] = told[1].replace("not there", "not here")
            yield Difference("files", f"shards of {split}", *told)
