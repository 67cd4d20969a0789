"""Several datasets read as one, each with a share of the rows.

    mixture = ShardSet.mix({"data/books": 0.7, "data/web": 0.3}, seed=1)

    for batch in mixture.batches("train", batch_size=32, seed=1, start_step=1000):
        batch["set_index"]                # int64 [32]: 0 is books, 1 is web
        batch["row_index"]                # int64 [32]: rows of web come after those of books
        batch["epoch"]                    # int64 [32]: of the row's own set

Order. The dataset of a row is a pure function of the row's position in the stream. Datasets
alternate as evenly as possible: the first n rows have n * w of a dataset of weight w, up to half a
row for each dataset of the mixture. Within a dataset the order is that of its own endless stream, a
new permutation in each of its epochs. No state is stored, and any step can be computed.

With weights 0.7 and 0.3 the first ten rows are of 0 1 0 0 0 1 0 0 1 0: books, web, books, books ...
"""

from __future__ import annotations

import hashlib
import math
import os
from fractions import Fraction
from typing import Any, Generator, Generic, Iterator, Sequence, TypeVar

import numpy as np

from textmill.schemas.errors import UsageError
from textmill.schemas.format.features import ROWS_OF
from textmill.schemas.format.metadata import Schema
from textmill.schemas.typed_json import quote
from textmill.trainers.data.batches import Batch, BatchReader, read_ahead
from textmill.trainers.data.row_order import epoch_and_row

Part = TypeVar("Part", bound=BatchReader)
# Largest denominator of a share: products with a position fit int64 up to 4e12 rows.
FINEST = 10**6


class Mixture(BatchReader, Generic[Part]):
    """Datasets with weights, which a training loop reads like one.

    A split is the concatenation of that split of all datasets that have it; `in_order` reads one
    dataset after another, and `batches` by weight.

    Attributes:
      parts: the datasets.
      weights: their shares, which add up to 1.
      schema: that of the first dataset; in the others rows mean the same.
    """

    def __init__(self, parts: Sequence[Part], weights: Sequence[float], *, seed: int = 0):
        """Mixes at least one dataset; weights are above 0, and only their proportions count.

        `order` uses the seed if it gets none.

        Raises:
          UsageError: a weight is wrong, or rows of two datasets mean different things.
        """
        self.parts, self.seed = tuple(parts), seed
        self.weights = shares_of([part.name for part in parts], weights)
        first, self.schema = parts[0], parts[0].schema
        for other in parts[1:]:
            difference = _difference(self.schema, other.schema)
            if difference is not None:
                raise UsageError(
                    f"{first.name} and {other.name} cannot be mixed: {difference}. Build one of "
                    "them again with the other's tokenizer and flags"
                )
        self.name = " + ".join(part.name for part in self.parts)
        names = tuple(os.path.basename(part.name.rstrip("/")) for part in self.parts)
        self.names = names if len(set(names)) == len(names) else tuple(p.name for p in self.parts)
        self._turns = _turns(self.weights)
        identity = [(p.fingerprint, str(w)) for p, w in zip(self.parts, self.weights)]
        self.fingerprint = hashlib.sha256(repr(identity).encode()).hexdigest()

    def close(self) -> None:
        """Closes the files; they open again when read."""
        for part in self.parts:
            part.close()

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits of all datasets, sorted."""
        return tuple(sorted({split for part in self.parts for split in part.splits}))

    def rows(self, split: str) -> int:
        """Rows of a split, summed over the datasets."""
        return int(self._ends(split)[-1])

    def tokens_a_row(self, split: str) -> float:
        """That of each dataset by its weight."""
        counts = [part.tokens_a_row(split) if split in part.splits else 0.0 for part in self.parts]
        return sum(float(weight) * count for weight, count in zip(self.weights, counts))

    def fetching(self, split: str) -> bool:
        """Whether files of a split may have to be fetched from a bucket first."""
        return any(split in part.splits and part.fetching(split) for part in self.parts)

    def read(self, split: str, row_indices: np.ndarray) -> Batch:
        """Rows by their index in the concatenated split."""
        ends = self._ends(split)
        row_indices = self.row_numbers(split, row_indices)
        set_of = np.searchsorted(ends, row_indices, side="right")
        features = self.schema.features
        batch = {f.name: np.empty((len(row_indices),) + f.shape, f.dtype) for f in features}
        for index in np.unique(set_of):
            part, here = self.parts[index], np.flatnonzero(set_of == index)
            first = ends[index] - part.rows(split)
            columns = part.read(split, row_indices[here] - first)
            for name in batch:
                batch[name][here] = columns[name]
        return batch

    def order(self, split: str, positions: np.ndarray, *, seed: int | None = None) -> Batch:
        """The order by weight; adds an int64 [n] `set_index` to `row_index` and `epoch`."""
        ends = self._ends(split)
        set_index, own_positions = take_turns(positions, self._turns)
        epoch, row_index = np.empty_like(own_positions), np.empty_like(own_positions)
        for index, part in enumerate(self.parts):
            rows, here = self._rows_of(part, split), np.flatnonzero(set_index == index)
            if not rows:
                raise part.no_rows(split)
            own_seed = self.seed if seed is None else seed
            epoch[here], own = epoch_and_row(
                own_positions[here], rows=rows, seed=own_seed, stream=index
            )
            row_index[here] = own + (ends[index] - rows)
        return {"row_index": row_index, "epoch": epoch, "set_index": set_index}

    def in_order(
        self, split: str, *, prefetch: int = 2, **batches: Any
    ) -> Generator[Batch, None, None]:
        """As `BatchReader.in_order`, with `set_index`; `most` is of each dataset.

        No batch has rows of two datasets: the last batch of each is padded.
        """
        ends = self._ends(split)

        def read() -> Iterator[Batch]:
            for index, part in enumerate(self.parts):
                if not self._rows_of(part, split):
                    continue
                for batch in part.in_order(split, prefetch=0, **batches):
                    row_index = batch["row_index"] + (ends[index] - part.rows(split))
                    yield dict(batch, row_index=row_index, set_index=np.full_like(row_index, index))

        return read_ahead(read(), prefetch)

    def count_in_order(self, split: str, *, batch_size: int, most: int | None = None) -> int:
        """The number of batches of `in_order`."""
        parts = [part for part in self.parts if split in part.splits]
        return sum(part.count_in_order(split, batch_size=batch_size, most=most) for part in parts)

    def describe_passes(self, split: str, steps: int, batch_size: int) -> list[str]:
        """How often a run reads each dataset."""
        lines = []
        for part, weight in zip(self.parts, self.weights):
            rows, read = self._rows_of(part, split), steps * batch_size * float(weight)
            lines.append(
                f"{float(weight):.2%} of the rows from {part.name}: "
                f"{read / rows if rows else math.inf:.2f} passes over its {rows:,} in {steps} steps"
            )
        return lines

    def _rows_of(self, part: Part, split: str) -> int:
        return part.rows(split) if split in part.splits else 0

    def _ends(self, split: str) -> np.ndarray:
        if split not in self.splits:
            raise self.no_split(split)
        return np.cumsum([self._rows_of(part, split) for part in self.parts])


def shares_of(names: Sequence[str], weights: Sequence[float]) -> tuple[Fraction, ...]:
    """Weights as fractions that add up to 1: 0.7, 0.3 -> 7/10, 3/10."""
    if len(names) != len(weights) or not names:
        raise UsageError(f"{len(weights)} weights for {len(names)} datasets: give one to each")
    for name, weight in zip(names, weights):
        if not (weight > 0 and math.isfinite(weight)):
            raise UsageError(f"{name}: weight {weight} must be above 0; or omit the dataset")
    exact = [Fraction(str(weight)) for weight in weights]  # 0.7 is 7/10
    shares = tuple(weight / sum(exact) for weight in exact)
    for name, share in zip(names, shares):
        if share < Fraction(1, FINEST):
            raise UsageError(
                f"{name}: its weight is below a millionth of the sum; omit the dataset"
            )
    return shares


def _turns(shares: Sequence[Fraction]) -> list[tuple[int, int]]:
    """For each dataset but the last, its share of the rows that the datasets before it leave."""
    left, turns = Fraction(1), []
    for share in shares[:-1]:
        rounded = (share / left).limit_denominator(FINEST)
        turns.append((rounded.numerator, rounded.denominator))
        left -= share
    return turns


def take_turns(
    positions: np.ndarray, turns: Sequence[tuple[int, int]]
) -> tuple[np.ndarray, np.ndarray]:
    """The dataset of each position of a stream, and the position in that dataset's own stream.

    The datasets take turns in order. One with share a/b has round(n * a / b), halves up, of the
    first n rows that the datasets before it leave: it takes position n if that number grows from n
    to n + 1.

    Args:
      positions: integers [n] from 0 on.
      turns: a and b for every dataset but the last, which takes the rest.

    Returns:
      int64 [n] index of the dataset, int64 [n] position in its own stream.
    """
    left = np.asarray(positions, np.int64).copy()  # positions among the rows that are left
    set_index = np.full(len(left), len(turns), np.int64)
    own = np.empty_like(left)
    waiting = np.arange(len(left))
    for index, (part, whole) in enumerate(turns):
        position = left[waiting]
        before = (2 * position * part + whole) // (2 * whole)
        takes = (2 * (position + 1) * part + whole) // (2 * whole) > before
        set_index[waiting[takes]] = index
        own[waiting[takes]] = before[takes]
        left[waiting[~takes]] = (position - before)[~takes]
        waiting = waiting[~takes]
    own[waiting] = left[waiting]
    return set_index, own


def _difference(one: Schema, other: Schema) -> str | None:
    """The first difference in what rows mean: "max_length is 128 in the first and 512 in ...".

    None if they mean the same. Encoding, file format, packing, seed, splits, and tasks with the
    same rows may differ.
    """
    names = (
        *("max_length", "vocab_size", "tokenizer_sha256", "special_ids"),
        *("all_special_ids", "static_masking", "max_masked"),
    )

    def describe(schema: Schema) -> dict[str, object]:
        values: dict[str, object] = {"task": ROWS_OF.get(schema.task, schema.task)}
        values.update((name, getattr(schema, name)) for name in names)
        for name in ("classes", "max_answer_length"):  # the latter is the room after a prompt
            values[name] = schema.parameters.get(name)
        values.update((f"feature {f.name}", f"{f.dtype}{list(f.shape)}") for f in schema.features)
        return values

    first, second = describe(one), describe(other)
    for name in {**first, **second}:
        values = first.get(name), second.get(name)
        if values[0] != values[1]:
            return "{} is {} in the first and {} in the second".format(name, *map(quote, values))
    return None
