"""Several datasets read as one, each with a share of the rows.

    mixture = ShardSet.mix({"data/books": 0.7, "data/web": 0.3}, seed=1)

    for batch in mixture.batches("train", batch_size=32, seed=1, start_step=1000):
        batch["set_index"]                # int64 [32]: 0 is books, 1 is web
        batch["row_index"]                # int64 [32]: rows of web come after those of books
        batch["epoch"]                    # int64 [32]: of the row's own set

Order. The dataset of a row is a pure function of the row's position in the stream, see
`trainers.data.turns`. Within a dataset the order is that of its own endless stream, a new
permutation in each of its epochs. No state is stored, and any step can be computed.

With weights 0.7 and 0.3 the first ten rows are of 0 1 0 0 0 1 0 0 1 0: books, web, books, books ...
Stages change the shares at some rows: `mixture.in_stages(...)`.
"""

from __future__ import annotations

import copy
import hashlib
import math
import os
from fractions import Fraction
from typing import Any, Generator, Generic, Iterator, Mapping, Sequence, TypeVar

import numpy as np

from textmill.schemas.errors import UsageError, flag
from textmill.schemas.format.digests import Digests
from textmill.schemas.format.features import ROWS_OF
from textmill.schemas.format.metadata import Schema
from textmill.schemas.typed_json import quote
from textmill.trainers.data.batches import (
    Batch,
    BatchReader,
    RowDocument,
    read_ahead,
    sort_positions,
)
from textmill.trainers.data.stages import MixtureStage, Stages
from textmill.trainers.data.turns import Course, RowShares, shares_of

Part = TypeVar("Part", bound=BatchReader)


class Mixture(BatchReader, Generic[Part]):
    """Datasets with shares of the rows, which a training loop reads like one.

    A split is the concatenation of that split of all datasets that have it;
    `sequential_batches` reads one dataset after another, and `batches` reads them by their shares.

    Attributes:
      parts: the datasets.
      schema: that of the first dataset; in the others rows mean the same.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        weights: Sequence[float] | None,
        *,
        seed: int = 0,
        names: Sequence[str] = (),
    ):
        """Mixes at least one dataset.

        Args:
          parts: the datasets.
          weights: their shares of the rows, above 0; only their proportions count. None: they are
            read in order only, or `in_stages`.
          seed: `order` uses it if it gets none.
          names: of the datasets; "" is the last part of the directory.

        Raises:
          UsageError: a weight is wrong, or rows of two datasets mean different things.
        """
        self.parts, self.seed = tuple(parts), seed
        self._course = None
        if weights is not None:
            shares = shares_of([part.name for part in parts], weights)
            self._course = Course([RowShares(0, dict(enumerate(shares)))])
        first, self.schema = parts[0], parts[0].schema
        for other in parts[1:]:
            difference = _difference(self.schema, other.schema)
            if difference is not None:
                raise UsageError(
                    f"{first.name} and {other.name} cannot be mixed: {difference}. Build one of "
                    "them again with the other's tokenizer and flags"
                )
        self.name = " + ".join(part.name for part in self.parts)
        self.names = names_of([part.name for part in self.parts], names)
        identity: list[Any] = [part.fingerprint for part in self.parts]
        if self._course is not None:
            [stage] = self._course.stages
            identity = [(part, str(stage.shares[index])) for index, part in enumerate(identity)]
        self.fingerprint = hashlib.sha256(repr(identity).encode()).hexdigest()
        orders = [part.row_order for part in self.parts]
        self.row_order = orders[0] if len({*orders}) == 1 else ",".join(orders)

    def in_stages(
        self,
        stages: Stages,
        *,
        split: str,
        batch_size: int,
        steps: int | None = None,
        tokens: float | None = None,
        by: str = "tokens",
    ) -> Mixture[Part]:
        """The same datasets with shares that change at some steps.

        Shares of tokens become shares of rows by the mean tokens of a row in each dataset. A
        dataset that several stages read continues its own stream.

        Args:
          stages: with names of this mixture's datasets.
          split: whose rows count.
          batch_size: rows of a step.
          steps: of the run, for stages that start at a part of it.
          tokens: of the run, instead of steps.
          by: what shares count: tokens (without padding) or rows.

        Raises:
          UsageError: a dataset is unknown or has no rows; stages do not follow one another; or
            this mixture has weights already.
        """
        if self._course is not None:
            raise UsageError(
                f"{flag('stages', stages)} gives the shares of the datasets: leave the weights of "
                f"{flag('shards')} out"
            )
        stages.check_names(self.names)

        def row_shares(stage: MixtureStage) -> dict[int, Fraction]:
            indices = sorted(map(self.names.index, stage.shares))
            asked = [Fraction(str(stage.shares[self.names[index]])) for index in indices]
            for index in indices:
                if not self._rows_of(self.parts[index], split):
                    raise UsageError(
                        f"{flag('stages', stages)}: {self.names[index]} has no rows in split "
                        f"{split!r}: leave it out, or build it from more text"
                    )
            if by == "tokens":
                asked = [one / self._mean(index, split) for one, index in zip(asked, indices)]
            names = [self.names[index] for index in indices]
            return dict(zip(indices, shares_of(names, asked)))

        def tokens_per_step(stage: MixtureStage) -> Fraction:
            return batch_size * self._mean_of(row_shares(stage), split)

        in_steps = stages.in_steps(tokens_per_step, steps=steps, tokens=tokens)
        mixture = copy.copy(self)
        mixture.stages = in_steps
        mixture._course = Course(
            [
                RowShares(start * batch_size, row_shares(stage))
                for start, stage in zip(in_steps.starts, in_steps.stages)
            ]
        )
        mixture.order_name = f"{in_steps}, shares of {by}, steps of {batch_size} rows"
        return mixture

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

    def mean_tokens_per_row(self, split: str) -> float:
        """That of each dataset by its share; of the last stage, which is the endless one."""
        counts = [
            part.mean_tokens_per_row(split) if split in part.splits else 0.0 for part in self.parts
        ]
        shares = self._shares.stages[-1].shares
        return sum(float(share) * counts[index] for index, share in shares.items())

    def rows_of_tokens(self, split: str, tokens: Fraction) -> Fraction:
        """The number of rows that hold this many tokens, stage by stage."""
        stages = self._shares.stages
        if len(stages) == 1:
            return super().rows_of_tokens(split, tokens)
        for stage, after in zip(stages, stages[1:]):
            mean = self._mean_of(stage.shares, split)
            of_stage = (after.start - stage.start) * mean
            if tokens <= of_stage:
                return stage.start + tokens / mean
            tokens -= of_stage
        return stages[-1].start + tokens / self._mean_of(stages[-1].shares, split)

    def row_shares(self, split: str, rows: int) -> list[float]:
        """The share of each dataset in the first `rows` rows of the stream; 0 without the split."""
        stages = self._shares.stages
        if len(stages) == 1:
            found = {index: float(share) for index, share in stages[0].shares.items()}
        else:
            found = {}
            for counts in self._shares.counts(rows):
                for index, count in counts.items():
                    found[index] = found.get(index, 0.0) + count / rows
        return [
            found.get(index, 0.0) if self._rows_of(part, split) else 0.0
            for index, part in enumerate(self.parts)
        ]

    def needs_download(self, split: str) -> bool:
        """Whether files of a split may have to be fetched from a bucket first."""
        return any(split in part.splits and part.needs_download(split) for part in self.parts)

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
        """The order by shares; adds an int64 [n] `set_index` to `row_index` and `epoch`."""
        ends = self._ends(split)
        set_index, own_positions = self._shares.take(positions)
        epoch, row_index = np.empty_like(own_positions), np.empty_like(own_positions)
        for index in self._shares.sets:
            part = self.parts[index]
            rows, here = self._rows_of(part, split), np.flatnonzero(set_index == index)
            if not rows:
                raise part.no_rows(split)
            own_seed = self.seed if seed is None else seed
            epoch[here], own = part.take_positions(
                split, own_positions[here], seed=own_seed, stream=index
            )
            row_index[here] = own + (ends[index] - rows)
        return {"row_index": row_index, "epoch": epoch, "set_index": set_index}

    def find_positions(
        self, split: str, row_indices: Any, *, seed: int | None, stop: int, stream: int = 0
    ) -> Batch:
        """See `BatchReader.find_positions`; a mixture has one stream, and may have a seed."""
        own_seed = self.seed if seed is None else seed
        rows, ends = self.row_numbers(split, row_indices), self._ends(split)
        set_of, found = np.searchsorted(ends, rows, side="right"), [np.zeros((3, 0), np.int64)]
        counts = self._shares.counts(stop)
        for index in np.unique(set_of).tolist():
            part = self.parts[index]
            first = int(ends[index]) - part.rows(split)
            own = part.find_positions(
                split,
                rows[set_of == index] - first,
                seed=own_seed,
                stop=sum(count.get(index, 0) for count in counts),
                stream=index,
            )
            positions = self._shares.find(index, own["position"])
            found.append(np.stack([positions, own["row_index"] + first, own["epoch"]]))
        return sort_positions(np.concatenate(found, axis=1), stop)

    def documents_of(self, split: str, row_indices: Sequence[int]) -> list[RowDocument]:
        """See `BatchReader.documents_of`; rows as in `read`."""
        rows, ends = self.row_numbers(split, row_indices), self._ends(split)
        set_of, found = np.searchsorted(ends, rows, side="right"), {}
        for index in np.unique(set_of).tolist():
            part = self.parts[index]
            first = int(ends[index]) - part.rows(split)
            own: Any = np.unique(rows[set_of == index] - first)
            for segment in part.documents_of(split, own):
                row = segment.row_index + first
                found.setdefault(row, []).append(segment._replace(row_index=row))
        return [segment for row in rows.tolist() for segment in found[row]]

    def find_documents(self, split: str, listed: Digests) -> dict[bytes, list[int]]:
        """See `BatchReader.find_documents`; rows as in `read`."""
        found: dict[bytes, list[int]] = {}
        for part, first in zip(self.parts, np.append(0, self._ends(split)).tolist()):
            if self._rows_of(part, split):
                for digest, rows in part.find_documents(split, listed).items():
                    found.setdefault(digest, []).extend(row + first for row in rows)
        return found

    def fetch_ahead(
        self, split: str, position: int, stop: int | None, *, seed: int | None, stream: int = 0
    ) -> None:
        """Like `BatchReader.fetch_ahead`, of each dataset that is due; nothing for stored order."""
        if seed is None or self.row_order == "full":
            return
        begins, ends = self._rows_before(position), self._rows_before(stop)
        for index in self._shares.sets:
            begin, end = begins[index], None if stop is None else ends[index]
            if end is None or begin < end:
                self.parts[index].fetch_ahead(split, begin, end, seed=seed, stream=index)

    def _rows_before(self, position: int | None) -> dict[int, int]:
        """The rows of each dataset in the first rows of the stream."""
        found = dict.fromkeys(self._shares.sets, 0)
        for counts in self._shares.counts(position or 0):
            for index, count in counts.items():
                found[index] += count
        return found

    def sequential_batches(
        self, split: str, *, prefetch: int = 2, **batches: Any
    ) -> Generator[Batch, None, None]:
        """Like `BatchReader.sequential_batches`, with `set_index`; `most` is of each dataset.

        No batch has rows of two datasets: the last batch of each is padded.
        """
        ends = self._ends(split)

        def read() -> Iterator[Batch]:
            for index, part in enumerate(self.parts):
                if not self._rows_of(part, split):
                    continue
                for batch in part.sequential_batches(split, prefetch=0, **batches):
                    row_index = batch["row_index"] + (ends[index] - part.rows(split))
                    yield dict(batch, row_index=row_index, set_index=np.full_like(row_index, index))

        return read_ahead(read(), prefetch)

    def count_sequential_batches(
        self, split: str, *, batch_size: int, most: int | None = None
    ) -> int:
        """The number of batches of `sequential_batches`."""
        parts = [part for part in self.parts if split in part.splits]
        return sum(
            part.count_sequential_batches(split, batch_size=batch_size, most=most) for part in parts
        )

    def describe_passes(self, split: str, steps: int, batch_size: int) -> list[str]:
        """How often a run reads each dataset: a line each, or a table of stages."""
        if self.stages is not None:
            return self._table(split, steps, batch_size)
        lines = []
        for index, share in self._shares.stages[0].shares.items():
            part = self.parts[index]
            rows, read = self._rows_of(part, split), steps * batch_size * float(share)
            lines.append(
                f"{float(share):.2%} of the rows from {part.name}: "
                f"{read / rows if rows else math.inf:.2f} passes over its {rows:,} in {steps} steps"
            )
        return lines

    def _table(self, split: str, steps: int, batch_size: int) -> list[str]:
        """Rows, tokens and passes of each dataset in each stage, in aligned columns."""
        assert self.stages is not None
        head = ("stage", "steps", "dataset", "share", "tokens", "rows", "passes", "passes so far")
        table: list[tuple[str, ...]] = [head]
        so_far = dict.fromkeys(self._shares.sets, 0)
        counts = self._shares.counts(steps * batch_size)
        starts = self.stages.starts
        ends = [min(end, steps) for end in (*starts[1:], steps)]
        for number, (stage, of_sets) in enumerate(zip(self.stages.stages, counts), 1):
            first = [str(number), f"{starts[number - 1] + 1:,} to {ends[number - 1]:,}"]
            whole = sum(stage.shares.values())
            for index, rows in of_sets.items():
                so_far[index] += rows
                name, size = self.names[index], self._rows_of(self.parts[index], split)
                table.append(
                    (
                        *first,
                        name,
                        f"{stage.shares[name] / whole:.2%}",
                        f"{float(rows * self._mean(index, split)):,.0f}",
                        f"{rows:,}",
                        f"{rows / size:.2f}",
                        f"{so_far[index] / size:.2f}",
                    )
                )
                first = ["", ""]
        widths = [max(map(len, column)) for column in zip(*table)]
        return [
            "  ".join(
                cell.ljust(width) if column == 2 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(line, widths))
            )
            for line in table
        ]

    @property
    def _shares(self) -> Course:
        if self._course is None:
            raise UsageError(
                f"{self.name}: the datasets have no weights; give each one, as in "
                f"{flag('shards', 'DIR:0.7,DIR:0.3')}, or {flag('stages')}"
            )
        return self._course

    def _mean(self, index: int, split: str) -> Fraction:
        """Tokens of a row of a dataset, above 0."""
        return Fraction(self.parts[index].mean_tokens_per_row(split) or 1.0)

    def _mean_of(self, shares: Mapping[int, Fraction], split: str) -> Fraction:
        return sum((share * self._mean(i, split) for i, share in shares.items()), Fraction(0))

    def _rows_of(self, part: Part, split: str) -> int:
        return part.rows(split) if split in part.splits else 0

    def _ends(self, split: str) -> np.ndarray:
        if split not in self.splits:
            raise self.no_split(split)
        return np.cumsum([self._rows_of(part, split) for part in self.parts])


def names_of(paths: Sequence[str], given: Sequence[str] = ()) -> tuple[str, ...]:
    """Short names of datasets: the given ones, else the last parts of their directories.

    ["data/web", "data/code"] with ["", "programs"] -> "web", "programs". If two were the same, each
    dataset without a given name keeps its path.
    """
    own = [*given, *[""] * (len(paths) - len(given))]
    names = [name or os.path.basename(path.rstrip("/")) for name, path in zip(own, paths)]
    if len(set(names)) < len(names):
        names = [name or path for name, path in zip(own, paths)]
    return tuple(names)


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
