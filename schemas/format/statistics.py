"""The counts of a dataset (stats.json), and the equations that they satisfy.

Counts are kept per shard and only added up, so workers may combine them in any order.
"""

from collections import Counter
from dataclasses import dataclass, field, fields
from functools import cached_property
from operator import attrgetter
from typing import Any, Callable, Dict, Iterable, List, Tuple

import numpy as np

from textmill.schemas.errors import DataError
from textmill.schemas.format.drops import (
    BY_SHARD,
    MOST,
    check_counts,
    describe_dropped,
    total_counts,
)
from textmill.schemas.format.features import MAX_TOKENS
from textmill.schemas.typed_json import from_json, quote

HISTOGRAM_BINS = 33  # bin b: documents with 2**(b-1) <= tokens < 2**b; bin 0: without tokens
Bins = Tuple[int, ...]


def split_of(shard: str) -> str:
    """The split of a shard: "train-00000-of-00002" -> "train"."""
    return shard.rsplit("-", 3)[0]


def by_length(lengths: np.ndarray) -> Dict[str, Any]:
    """Counts documents, and their tokens, by the bit length of the number of tokens.

    Args:
      lengths: non-negative integers, tokens of each document: [0, 1, 2, 3, 4].

    Returns:
      Two tuples of HISTOGRAM_BINS counts: length_histogram (1, 1, 2, 1, 0, ...), length_tokens
      (0, 1, 5, 4, 0, ...).
    """
    # frexp(n) = (m, e) with n = m * 2**e and 0.5 <= m < 1, so e is the bit length of n.
    bits = np.frexp(np.asarray(lengths, np.float64))[1]
    tokens = np.zeros(HISTOGRAM_BINS, np.int64)
    np.add.at(tokens, bits, lengths)
    documents = np.bincount(bits, minlength=HISTOGRAM_BINS)
    return {"length_histogram": tuple(documents.tolist()), "length_tokens": tuple(tokens.tolist())}


@dataclass(frozen=True)
class ShardStatistics:
    """The counts of one shard or, added up, of a split.

    Attributes:
      documents: kept documents.
      dropped: reason to number, for reasons that are counted by shard, without zeros; see
        `schemas.format.drops`.
      text_bytes: UTF-8 bytes of the kept documents.
      words: words (separated by white space) in the kept documents; 0 if the task counts none.
      tokens: tokens of the kept documents, before special tokens are added.
      specials_added: special tokens that were added, such as bos and eos.
      tokens_truncated: tokens that truncation removed.
      tokens_repeated: tokens that occur again in overlapping windows.
      rows: rows, masked copies included.
      tokens_in_rows: tokens in rows without padding, masked copies included.
      segments: segments, masked copies included.
      masked: masked tokens.
      trained: tokens with a loss weight, if the task chooses them; else 0.
      length_histogram: bin b counts documents with 2**(b-1) <= tokens < 2**b; bin 0 those without.
      length_tokens: tokens of the documents in each bin.
      labels: class to number of documents, if the task has classes.
    """

    documents: int = 0
    dropped: Dict[str, int] = field(default_factory=dict)
    text_bytes: int = 0
    words: int = 0
    tokens: int = 0
    specials_added: int = 0
    tokens_truncated: int = 0
    tokens_repeated: int = 0
    rows: int = 0
    tokens_in_rows: int = 0
    segments: int = 0
    masked: int = 0
    trained: int = 0
    length_histogram: Bins = (0,) * HISTOGRAM_BINS
    length_tokens: Bins = (0,) * HISTOGRAM_BINS
    labels: Dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Rejects negative counts, and histograms with other bins."""
        for name in HISTOGRAMS:
            bins = getattr(self, name)
            if len(bins) != HISTOGRAM_BINS:
                raise DataError(f"{name} has {len(bins)} bins, not {HISTOGRAM_BINS}")
            if not 0 <= min(bins) <= max(bins) < MOST:
                check_counts({f"{name}[{i}]": n for i, n in enumerate(bins)})
        check_counts(dict(zip(COUNTS, _counts_of(self))))
        check_counts(self.labels)
        check_counts(self.dropped)

    def __add__(self, other: "ShardStatistics") -> "ShardStatistics":
        """Adds the counts of two shards."""
        return _sum((self, other))

    def packing_efficiency(self, row_tokens: int) -> float:
        """Share of the positions in rows that are not padding; 0 if rows have no fixed length."""
        positions = self.rows * row_tokens
        return self.tokens_in_rows / positions if positions else 0.0


HISTOGRAMS = ("length_histogram", "length_tokens")
COUNTS = tuple(f.name for f in fields(ShardStatistics) if f.type in (int, "int"))
_counts_of = attrgetter(*COUNTS)
DERIVED = ("row_tokens", "splits", "total")  # in stats.json, in addition to Statistics' fields
_REJECTED = "documents_rejected"  # the key of Statistics.dropped in stats.json


def _sum(shards: Iterable[ShardStatistics]) -> ShardStatistics:
    shards = tuple(shards)
    if not shards:
        return ShardStatistics()
    counts: Dict[str, Any] = dict(zip(COUNTS, map(sum, zip(*map(_counts_of, shards)))))
    for name in HISTOGRAMS:
        counts[name] = tuple(map(sum, zip(*(getattr(shard, name) for shard in shards))))
    labels: Counter[str] = Counter()
    for shard in shards:
        labels.update(shard.labels)  # keeps classes without documents, with 0
    dropped = total_counts(*(shard.dropped for shard in shards))
    return ShardStatistics(labels=dict(labels), dropped=dropped, **counts)


def _plain(counts: ShardStatistics) -> Dict[str, Any]:
    """The JSON of a shard, in which each reason of `dropped` is a field."""
    values: Dict[str, Any] = {name: getattr(counts, name) for name in COUNTS}
    if not counts.trained:
        del values["trained"]
    for drop in BY_SHARD:
        values[drop.name] = counts.dropped.get(drop.name, 0)
    bins = {name: list(getattr(counts, name)) for name in HISTOGRAMS}
    return dict(values, **bins, labels=counts.labels)


def _gather_dropped(shard: Any, place: str) -> Any:
    """The JSON of a shard with its reasons moved into one field `dropped`."""
    if not isinstance(shard, dict):
        return shard  # from_json rejects it with its type
    values = {"trained": 0, **shard}
    missing = [drop.name for drop in BY_SHARD if drop.name not in values]
    if missing or "dropped" in shard:
        fault = f"{missing[0]!r} is missing" if missing else "the field 'dropped' is unknown"
        raise DataError(f"{place}: {fault}: build the dataset again")
    dropped = {drop.name: values.pop(drop.name) for drop in BY_SHARD}
    return dict(values, dropped={name: n for name, n in dropped.items() if n != 0})


def _with_efficiency(counts: ShardStatistics, row_tokens: int) -> Dict[str, Any]:
    efficiency = round(counts.packing_efficiency(row_tokens), 6)
    return dict(_plain(counts), packing_efficiency=efficiency)


@dataclass(frozen=True)
class Statistics:
    """The counts of a dataset (stats.json).

    Attributes:
      documents_read: documents in the inputs.
      dropped: reason to number, for reasons that are counted when documents are read; the key in
        stats.json is documents_rejected. Rejected documents are in rejects/.
      source_bytes: bytes read from the inputs, after decompression.
      shards: name ("train-00000-of-00004") to its counts.
    """

    documents_read: int = 0
    dropped: Dict[str, int] = field(default_factory=dict)
    source_bytes: int = 0
    shards: Dict[str, ShardStatistics] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Rejects negative counts."""
        check_counts(self.dropped)
        for name in ("documents_read", "source_bytes"):
            check_counts({name: getattr(self, name)})

    @staticmethod
    def sum(parts: Iterable["Statistics"]) -> "Statistics":
        """Adds up counts; each shard may occur only once."""
        parts = tuple(parts)
        shards: Dict[str, ShardStatistics] = {}
        for part in parts:
            shards.update(part.shards)
        if len(shards) < sum(len(part.shards) for part in parts):
            raise DataError(
                "the runner delivered a shard's report twice: run the same command again"
            )
        return Statistics(
            documents_read=sum(part.documents_read for part in parts),
            dropped=total_counts(*(part.dropped for part in parts)),
            source_bytes=sum(part.source_bytes for part in parts),
            shards=shards,
        )

    def splits(self) -> Dict[str, ShardStatistics]:
        """The counts of every split that has shards."""
        return dict(self._of_splits)

    @cached_property
    def _of_splits(self) -> Dict[str, ShardStatistics]:
        of_split: Dict[str, List[ShardStatistics]] = {}
        for name, shard in sorted(self.shards.items()):
            of_split.setdefault(split_of(name), []).append(shard)
        return {split: _sum(shards) for split, shards in of_split.items()}

    def split(self, name: str) -> ShardStatistics:
        """The counts of one split; zeros if it has no shards."""
        return self.splits().get(name, ShardStatistics())

    def total(self) -> ShardStatistics:
        """The counts of all splits together."""
        return _sum(self._of_splits.values())

    def all_dropped(self) -> Dict[str, int]:
        """Reason to number of all dropped documents."""
        return total_counts(self.total().dropped, self.dropped)

    def to_dict(self, row_tokens: int) -> Dict[str, Any]:
        """The content of stats.json: the fields, and sums with packing efficiencies for users.

        `row_tokens` (of Schema), `splits` and `total` are derived, and are checked when read.
        """
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        own[_REJECTED] = own.pop("dropped")
        own["shards"] = {name: _plain(counts) for name, counts in self.shards.items()}
        return dict(own, **self.derive(row_tokens))

    def derive(self, row_tokens: int) -> Dict[str, Any]:
        """The fields of stats.json that follow from others."""
        splits = self.splits().items()
        return {
            "row_tokens": row_tokens,
            "splits": {name: _with_efficiency(counts, row_tokens) for name, counts in splits},
            "total": _with_efficiency(self.total(), row_tokens),
        }

    @staticmethod
    def from_dict(values: Any, source: str) -> "Statistics":
        """Converts parsed JSON of `to_dict`; `source` is the name of the file in errors.

        Raises:
          DataError: a field is missing, unknown or of a different type, or a sum is wrong.
        """
        row_tokens = values.get("row_tokens") if isinstance(values, dict) else None
        if type(row_tokens) is not int or not 0 <= row_tokens < 2 * MAX_TOKENS:
            raise DataError(
                f"{source}: row_tokens is {quote(row_tokens)}, not from 0 to {2 * MAX_TOKENS - 1}; "
                "build the dataset again"
            )
        own = {name: value for name, value in values.items() if name not in DERIVED}
        if "dropped" in own:
            raise DataError(f"{source}: the field 'dropped' is unknown: build the dataset again")
        own["dropped"] = own.pop(_REJECTED, None)
        if isinstance(own.get("shards"), dict):
            own["shards"] = {
                name: _gather_dropped(shard, f"{source}: shards.{name}")
                for name, shard in own["shards"].items()
            }
        stats = from_json(Statistics, own, source)
        derived = stats.derive(row_tokens)
        for name in DERIVED:
            if values.get(name) != derived[name]:
                raise DataError(
                    f"{source}: {name} does not follow from the counts of the shards: the file was "
                    "edited; build the dataset again"
                )
        return stats

    def broken_equations(self, copies_of: Callable[[str], int] = lambda split: 1) -> List[str]:
        """The conservation equations that do not hold, each as a sentence; [] if all hold.

        Args:
          copies_of: returns the number of masked copies of each row of a split.
        """
        broken = []
        total = self.total()
        dropped = self.all_dropped()
        if self.documents_read != total.documents + sum(dropped.values()):
            parts = "; ".join(f"{title}: {n}" for title, n in describe_dropped(dropped).items())
            broken.append(
                f"documents read {self.documents_read:,} != kept {total.documents:,} + dropped "
                f"{sum(dropped.values()):,} ({parts or 'none'})"
            )
        for name, shard in sorted(self.shards.items()):
            tokens = shard.tokens + shard.tokens_repeated + shard.specials_added
            tokens -= shard.tokens_truncated
            copies = copies_of(split_of(name))
            if tokens * copies != shard.tokens_in_rows:
                broken.append(
                    f"{name}: (tokens {shard.tokens:,} + repeated {shard.tokens_repeated:,} + "
                    f"specials {shard.specials_added:,} - truncated {shard.tokens_truncated:,}) "
                    f"x copies {copies} != tokens in rows {shard.tokens_in_rows:,}"
                )
            for bins, what in zip(HISTOGRAMS, ("documents", "tokens")):
                binned, counted = sum(getattr(shard, bins)), getattr(shard, what)
                if binned != counted:
                    broken.append(f"{name}: {what} in {bins} {binned:,} != {what} {counted:,}")
        return broken
