"""Counts of a shard set (stats.json), and the equations that they obey.

Counts are kept per shard and only ever added up, so that workers combine them in any order.
"""

from collections import Counter
from dataclasses import dataclass, field, fields
from functools import cached_property
from operator import attrgetter
from typing import Any, Dict, Iterable, List, Tuple

import numpy as np

from schemas.drops import (
    BY_SHARD,
    MOST,
    check_counts,
    describe_dropped,
    total_counts,
)
from schemas.errors import DataError
from schemas.features import MAX_TOKENS
from schemas.typed_json import from_json, quote

HISTOGRAM_BINS = 33  # bin b counts documents of 2**(b-1) <= tokens < 2**b; bin 0 is empty ones
Bins = Tuple[int, ...]


def by_length(lengths: np.ndarray) -> Dict[str, Any]:
    """Counts documents, and their tokens, by the bit length of their number of tokens.

    Args:
      lengths: non-negative integers, tokens of each document: [0, 1, 2, 3, 4].

    Returns:
      HISTOGRAM_BINS counts each: length_histogram (1, 1, 2, 1, 0, ...), length_tokens
      (0, 1, 5, 4, 0, ...).
    """
    # frexp(n) = (m, e) with n = m * 2**e and 0.5 <= m < 1, so e is n's bit length.
    bits = np.frexp(np.asarray(lengths, np.float64))[1]
    tokens = np.zeros(HISTOGRAM_BINS, np.int64)
    np.add.at(tokens, bits, lengths)
    documents = np.bincount(bits, minlength=HISTOGRAM_BINS)
    return {"length_histogram": tuple(documents.tolist()), "length_tokens": tuple(tokens.tolist())}


@dataclass(frozen=True)
class ShardStatistics:
    """Counts of one shard or, added up, of a split.

    Attributes:
      documents: kept.
      dropped: reason to number, of those that are counted by shard; none is 0. See `schemas.drops`.
      text_bytes: UTF-8 bytes of the kept documents.
      words: of them, between white space; 0 where the task counts none.
      tokens: that the tokenizer made of the kept documents.
      specials_added: such as bos and eos around each segment.
      tokens_truncated: left out because the user asked for truncation.
      tokens_repeated: there once more, because windows overlap.
      rows: all of them, masked copies included.
      tokens_in_rows: not padding; copies included.
      segments: copies included.
      masked: slots in use.
      trained: tokens with a loss weight, where the task chooses them.
      length_histogram: bin b counts documents of 2**(b-1) <= tokens < 2**b; bin 0 of none.
      length_tokens: tokens of these, by the same bins.
      labels: class to number of documents, where the task has classes.
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
        """Refuses counts below zero and histograms of other bins."""
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

    def density(self, row_tokens: int) -> float:
        """Share of the rows' places that hold a token; 0 where rows have any length."""
        places = self.rows * row_tokens
        return self.tokens_in_rows / places if places else 0.0


HISTOGRAMS = ("length_histogram", "length_tokens")
COUNTS = tuple(f.name for f in fields(ShardStatistics) if f.type in (int, "int"))
_counts_of = attrgetter(*COUNTS)
DERIVED = ("row_tokens", "splits", "total")  # in stats.json beside the fields of Statistics
_REJECTED = "documents_rejected"  # what stats.json calls Statistics.dropped


def _sum(shards: Iterable[ShardStatistics]) -> ShardStatistics:
    shards = tuple(shards)
    if not shards:
        return ShardStatistics()
    counts: Dict[str, Any] = dict(zip(COUNTS, map(sum, zip(*map(_counts_of, shards)))))
    for name in HISTOGRAMS:
        counts[name] = tuple(map(sum, zip(*(getattr(shard, name) for shard in shards))))
    labels: Counter[str] = Counter()
    for shard in shards:
        labels.update(shard.labels)  # a class that no document has stays, with 0
    dropped = total_counts(*(shard.dropped for shard in shards))
    return ShardStatistics(labels=dict(labels), dropped=dropped, **counts)


def _plain(counts: ShardStatistics) -> Dict[str, Any]:
    """As stats.json has it, where each reason of a shard's is a field."""
    values: Dict[str, Any] = {name: getattr(counts, name) for name in COUNTS}
    if not counts.trained:  # so that sets of other tasks are as they were
        del values["trained"]
    for drop in BY_SHARD:
        values[drop.name] = counts.dropped.get(drop.name, 0)
    bins = {name: list(getattr(counts, name)) for name in HISTOGRAMS}
    return dict(values, **bins, labels=counts.labels)


def _gather_dropped(shard: Any, place: str) -> Any:
    """A shard's counts as stats.json has them -> its reasons in one `dropped`."""
    if not isinstance(shard, dict):
        return shard  # which is refused with its type
    gathered = {"trained": 0, **shard}
    missing = [drop.name for drop in BY_SHARD if drop.name not in gathered]
    if missing or "dropped" in shard:
        fault = f"{missing[0]!r} is missing" if missing else "the field 'dropped' is unknown"
        raise DataError(f"{place}: {fault}: build the set anew")
    dropped = {drop.name: gathered.pop(drop.name) for drop in BY_SHARD}
    return dict(gathered, dropped={name: n for name, n in dropped.items() if n != 0})


def _dense(counts: ShardStatistics, row_tokens: int) -> Dict[str, Any]:
    return dict(_plain(counts), density=round(counts.density(row_tokens), 6))


@dataclass(frozen=True)
class Statistics:
    """Counts of a whole set (stats.json).

    Attributes:
      documents_read: found in the inputs.
      dropped: reason to number, of those that are counted where documents are read: in stats.json
        documents_rejected. Refused documents are in rejects/.
      source_bytes: read from the inputs, after decompression.
      documents_guarded: encoded by the reference tokenizer, because the fast engine might differ.
      shards: name ("train-00000-of-00004") to its counts.
    """

    documents_read: int = 0
    dropped: Dict[str, int] = field(default_factory=dict)
    source_bytes: int = 0
    documents_guarded: int = 0
    shards: Dict[str, ShardStatistics] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuses counts that are below zero."""
        check_counts(self.dropped)
        for name in ("documents_read", "source_bytes", "documents_guarded"):
            check_counts({name: getattr(self, name)})

    @staticmethod
    def sum(parts: Iterable["Statistics"]) -> "Statistics":
        """The counts of all; a shard may be counted once only."""
        parts = tuple(parts)
        shards: Dict[str, ShardStatistics] = {}
        for part in parts:
            shards.update(part.shards)
        if len(shards) < sum(len(part.shards) for part in parts):
            raise DataError(
                "a shard was counted twice, since the runner delivered a report twice: run the "
                "same command again"
            )
        return Statistics(
            documents_read=sum(part.documents_read for part in parts),
            dropped=total_counts(*(part.dropped for part in parts)),
            source_bytes=sum(part.source_bytes for part in parts),
            documents_guarded=sum(part.documents_guarded for part in parts),
            shards=shards,
        )

    def splits(self) -> Dict[str, ShardStatistics]:
        """The counts of every split that has shards."""
        return dict(self._of_splits)

    @cached_property
    def _of_splits(self) -> Dict[str, ShardStatistics]:
        of_split: Dict[str, List[ShardStatistics]] = {}
        for name, shard in sorted(self.shards.items()):
            of_split.setdefault(name.rsplit("-", 3)[0], []).append(shard)
        return {split: _sum(shards) for split, shards in of_split.items()}

    def split(self, name: str) -> ShardStatistics:
        """The counts of one split; zeros if it has no shards."""
        return self.splits().get(name, ShardStatistics())

    def total(self) -> ShardStatistics:
        """The counts of all splits together."""
        return _sum(self._of_splits.values())

    def all_dropped(self) -> Dict[str, int]:
        """Reason to number of all documents that were left out."""
        return total_counts(self.total().dropped, self.dropped)

    def to_dict(self, row_tokens: int) -> Dict[str, Any]:
        """What stats.json holds: the fields, and sums with densities for people to read.

        `row_tokens` (of Schema), `splits` and `total` stand beside the fields. They follow from
        them, and are checked when read.
        """
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        own[_REJECTED] = own.pop("dropped")
        own["shards"] = {name: _plain(counts) for name, counts in self.shards.items()}
        return dict(own, **self.derive(row_tokens))

    def derive(self, row_tokens: int) -> Dict[str, Any]:
        """What stands in stats.json and follows from the other fields."""
        splits = self.splits().items()
        return {
            "row_tokens": row_tokens,
            "splits": {name: _dense(counts, row_tokens) for name, counts in splits},
            "total": _dense(self.total(), row_tokens),
        }

    @staticmethod
    def from_dict(values: Any, source: str) -> "Statistics":
        """From parsed JSON as `to_dict` gives it; `source` names the file in errors.

        Raises:
          DataError: a field is missing, unknown or of another type, or a sum is not the shards'.
        """
        row_tokens = values.get("row_tokens") if isinstance(values, dict) else None
        if type(row_tokens) is not int or not 0 <= row_tokens < 2 * MAX_TOKENS:
            raise DataError(
                f"{source}: row_tokens is {quote(row_tokens)}, not from 0 to {2 * MAX_TOKENS - 1}; "
                "build the set anew"
            )
        own = {name: value for name, value in values.items() if name not in DERIVED}
        if "dropped" in own:
            raise DataError(f"{source}: the field 'dropped' is unknown: build the set anew")
        own["dropped"] = own.pop(_REJECTED, None)
        if isinstance(own.get("shards"), dict):
            own["shards"] = {
                name: _gather_dropped(shard, f"{source}: shards.{name}")
                for name, shard in own["shards"].items()
            }
        stats = from_json(Statistics, own, source)
        due = stats.derive(row_tokens)
        for name in DERIVED:
            if values.get(name) != due[name]:
                raise DataError(
                    f"{source}: {name} does not follow from the counts of the shards: the file was "
                    "edited; build the set anew"
                )
        return stats

    def broken_equations(self, mask_copies: int = 1) -> List[str]:
        """The conservation equations that do not hold, each as a sentence; [] if all is well."""
        broken = []
        total = self.total()
        dropped = self.all_dropped()
        if self.documents_read != total.documents + sum(dropped.values()):
            left_out = "; ".join(f"{t}: {said}" for t, said in describe_dropped(dropped).items())
            broken.append(
                f"documents read {self.documents_read:,} != kept {total.documents:,} + left out "
                f"{sum(dropped.values()):,} ({left_out or 'none'})"
            )
        for name, shard in sorted(self.shards.items()):
            due = shard.tokens + shard.tokens_repeated + shard.specials_added
            due -= shard.tokens_truncated
            if due * mask_copies != shard.tokens_in_rows:
                broken.append(
                    f"{name}: (tokens {shard.tokens:,} + repeated {shard.tokens_repeated:,} + "
                    f"specials {shard.specials_added:,} - truncated {shard.tokens_truncated:,}) "
                    f"x copies {mask_copies} != tokens in rows {shard.tokens_in_rows:,}"
                )
            for bins, what in zip(HISTOGRAMS, ("documents", "tokens")):
                binned, counted = sum(getattr(shard, bins)), getattr(shard, what)
                if binned != counted:
                    broken.append(f"{name}: {what} in {bins} {binned:,} != {what} {counted:,}")
        return broken
