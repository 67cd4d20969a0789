"""Tests that a model keeps the documents of packed rows apart: changes tokens, compares logits.

    from textmill.trainers.metrics.attention import pick_rows, verify_attention

    def logits_of(batch):      # numpy arrays in; a PyTorch, JAX or TensorFlow array out
        return model(torch.from_numpy(batch["input_ids"]), ...).logits

    report = verify_attention(logits_of, pick_rows(ShardSet("shards")), causal=True)
    print(report)              # row and segment of each leak, and its size
    assert report.ok

Legend: B rows, L tokens a row, C logits a token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Iterator

import numpy as np

from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.format.features import positions_from_segments, unmask
from textmill.trainers.data.adapters import one_segment_per_row, segments_of
from textmill.trainers.data.batches import Batch, BatchReader

EARLIER, LATER = "an earlier segment of the row", "a later segment of the row"
AHEAD, PADDING, ROW = "later tokens of the segment", "padding", "another row"
ALONE = "being packed, not alone in a row"


@dataclass(frozen=True)
class Movement:
    """The largest movement of the logits of one segment by one cause.

    Attributes:
      cause: EARLIER, LATER, AHEAD, PADDING, ROW or ALONE.
      changed: row and segment whose tokens were changed; None for ALONE.
      moved: row and segment whose logits moved.
      position: in the row, of the logits that moved farthest.
      by: the largest difference of a logit.
    """

    cause: str
    changed: tuple[int, int] | None
    moved: tuple[int, int]
    position: int
    by: float

    def __str__(self) -> str:
        """Names both segments and the movement."""
        row, segment = self.moved
        text = f"row {row}, segment {segment} moves by {self.by:.1e} at position {self.position}"
        if self.changed is None:
            return text
        return text + " when row {}, segment {} changes".format(*self.changed)


@dataclass(frozen=True)
class AttentionReport:
    """The result of `verify_attention`.

    Attributes:
      rows, segments: how many were checked.
      limit: movements up to this are rounding: the tolerance times `spread`.
      spread: standard deviation of all logits.
      movements: all movements, including those of 0.
    """

    rows: int
    segments: int
    limit: float
    spread: float
    movements: tuple[Movement, ...]

    @property
    def leaks(self) -> tuple[Movement, ...]:
        """Movements above the limit, the largest first."""
        above = [movement for movement in self.movements if movement.by > self.limit]
        return tuple(sorted(above, key=lambda movement: -movement.by))

    @property
    def ok(self) -> bool:
        """Whether there is no leak."""
        return not self.leaks

    def largest(self) -> dict[str, Movement]:
        """The largest movement by each cause."""
        by_cause: dict[str, Movement] = {}
        for movement in sorted(self.movements, key=lambda movement: movement.by):
            by_cause[movement.cause] = movement
        causes = (EARLIER, LATER, AHEAD, PADDING, ROW, ALONE)
        return {cause: by_cause[cause] for cause in causes if cause in by_cause}

    def __str__(self) -> str:
        """A line for each cause, with its largest movement and its number of leaks."""
        lines = [
            f"{self.segments} segments in {self.rows} rows; logits have a standard deviation of "
            f"{self.spread:.1e}, movements up to {self.limit:.1e} are rounding"
        ]
        for cause, worst in self.largest().items():
            tried = sum(movement.cause == cause for movement in self.movements)
            above = sum(movement.cause == cause for movement in self.leaks)
            if above:
                lines.append(f"LEAK  {cause}: {above} of {tried}; {worst}")
            else:
                lines.append(f"ok    {cause}: {tried} tried, largest movement {worst.by:.1e}")
        return "\n".join(lines)


def pick_rows(shards: BatchReader, split: str = "train", *, count: int = 4, seed: int = 0) -> Batch:
    """The first rows in the seed's order with several segments, which can leak.

    Raises:
      DataError: none of the first thousand rows has two segments.
    """
    positions = np.arange(min(1000, shards.rows(split)))
    batch = shards.read(split, shards.order(split, positions, seed=seed)["row_index"])
    packed = np.flatnonzero(batch["segment_ids"].max(axis=1) > 1)[:count]
    if not len(packed):
        raise DataError(
            f"{shards.name}: none of {len(positions):,} rows of split {split!r} has two segments, "
            "so nothing can leak; take a dataset whose documents are shorter than its rows"
        )
    return {name: column[packed] for name, column in batch.items()}


def verify_attention(
    logits_of: Callable[[Batch], Any],
    batch: Batch,
    *,
    causal: bool,
    tolerance: float = 1e-4,
    seed: int = 0,
) -> AttentionReport:
    """Changes one segment at a time and measures which logits move; compares packed with alone.

    Logits outside the segment may not move, in its row or another; those of a causal model may not
    move before the changed tokens. A segment's logits may not depend on the other segments of the
    row or on its position there.

    Args:
      logits_of: the model without dropout. Takes dictionaries of numpy arrays in the shapes of
        `batch`, with `position_ids` int32 [B, L]; returns [B, L, C], or [B, C] if a row is one
        segment.
      batch: rows from the reader; arrays [B, L] have a value for each token.
      causal: whether tokens may not attend to later ones. Tokens of a `prefix_mask` always may.
      tolerance: the most that logits may move, as a share of their standard deviation: 1e-4 suits
        the rounding of float32, 0.1 that of bfloat16.
      seed: for the tokens that replace others.

    Raises:
      UsageError: the logits have a different shape, are not finite, differ between two runs of the
        same rows, or do not move when their own tokens change.
    """
    return report_on(AttentionRows(logits_of, batch, seed), tolerance, causal=causal)


def report_on(rows: AttentionRows, tolerance: float, *, causal: bool) -> AttentionReport:
    """Tries every cause on these rows; raises like `verify_attention`."""
    spread = float(rows.before[rows.segments > 0].std())
    limit = tolerance * spread
    rows.check_that_runs_agree(limit)
    movements = list(change_segments(rows, limit))
    if causal:
        movements += _change_ends(rows)
    movements += _compare_alone(rows)
    count = len(rows.numbered)
    return AttentionReport(len(rows.segments), count, limit, spread, tuple(movements))


class AttentionRows:
    """The rows with the model's logits, and ways to change them.

    Attributes:
      changed: name of the column to change; `changed_segments` has the segments of its tokens, and
        `logit_segments` those of the logits. Subclasses for other models replace them.
      changing: segments of the tokens of `changed`, [B, L].
      segments: segments of the logits, [B, L].
      numbered: row and number of each of the latter.
    """

    changed, changed_segments, logit_segments = "input_ids", "segment_ids", "segment_ids"

    def __init__(self, logits_of: Callable[[Batch], Any], batch: Batch, seed: int):
        self._logits_of, self._random = logits_of, np.random.default_rng(seed)
        self.changing = np.asarray(batch[self.changed_segments])
        self.segments = np.asarray(batch[self.logit_segments])
        self.batch = {name: c for name, c in batch.items() if not name.startswith("masked_")}
        self.batch["input_ids"] = unmask(batch)
        self.batch["position_ids"] = positions_from_segments(np.asarray(batch["segment_ids"]))
        self._ids = np.unique(self.batch[self.changed][self.changing > 0])
        if len(self._ids) < 2:
            raise UsageError("all tokens of the rows are the same: take other rows")
        self.numbered = segments_of(self.segments)
        self.before = self.run(self.batch)

    def alone(self, segments: list[tuple[int, int]]) -> Batch:
        """A row for each of these segments, without any other segment."""
        return one_segment_per_row(self.batch, segments)

    def run(self, batch: Batch) -> np.ndarray:
        """Logits as float64 [B, L, C]; those of a row are repeated for each of its tokens."""
        output = self._logits_of({name: column.copy() for name, column in batch.items()})
        if hasattr(output, "detach"):  # PyTorch, perhaps on a device and in bfloat16
            output = output.detach().cpu().double()
        logits, shape = np.asarray(output).astype(np.float64), self.segments.shape
        if logits.ndim == 2 and len(logits) == shape[0] and self.segments.max() == 1:
            logits = np.repeat(logits[:, None], shape[1], axis=1)
        if logits.ndim != 3 or logits.shape[:2] != shape:
            raise UsageError(
                f"the logits of rows {list(shape)} have the shape {list(logits.shape)}: return "
                f"[{shape[0]}, {shape[1]}, C], logits of every token"
            )
        if not np.isfinite(logits[batch[self.logit_segments] > 0]).all():
            raise UsageError("logits are not finite: check the model's weights")
        return logits

    def check_that_runs_agree(self, limit: float) -> None:
        """Refuses a model whose logits differ between two runs."""
        difference = np.abs(self.run(self.batch) - self.before)[self.segments > 0].max()
        if difference > limit:
            raise UsageError(
                f"two runs of the same rows differ by {difference:.1e}: turn dropout off (in "
                "PyTorch model.eval()), or raise the tolerance"
            )

    def moved(self, here: np.ndarray) -> np.ndarray:
        """Movement of the logits, [B, L], if other tokens replace those in `here`, bool [B, L]."""
        ids = self.batch[self.changed].copy()
        # Each by another token of the rows: 1 to n - 1 further in their sorted list, at random.
        index = np.searchsorted(self._ids, ids[here])  # padding may not be in the list
        index += self._random.integers(1, len(self._ids), here.sum())
        ids[here] = self._ids[index % len(self._ids)]
        changed = {**self.batch, self.changed: ids}
        return np.abs(self.run(changed) - self.before).max(axis=-1)

    def farthest(
        self, cause: str, changed: tuple[int, int] | None, row: int, moved_L: np.ndarray
    ) -> Iterator[Movement]:
        """The movement of one segment; `moved_L` is negative at all other positions."""
        position = int(moved_L.argmax())
        if moved_L[position] >= 0:
            segment = int(self.segments[row, position])
            yield Movement(cause, changed, (row, segment), position, float(moved_L[position]))


def change_segments(rows: AttentionRows, limit: float) -> Iterator[Movement]:
    """Movements of other segments and rows when a segment, or the padding of a row, changes."""
    own = 0.0
    for changed in sorted({*rows.numbered, *((row, 0) for row in range(len(rows.segments)))}):
        here = np.zeros(rows.changing.shape, bool)
        here[changed[0]] = rows.changing[changed[0]] == changed[1]
        if not here.any():
            continue
        moved = rows.moved(here)
        if changed[1]:
            its_own = rows.segments[changed[0]] == changed[1]
            own = max(own, float(moved[changed[0], its_own].max(initial=0)))
        for row, segment in rows.numbered:
            if (row, segment) != changed:
                cause = ROW if row != changed[0] else EARLIER if segment > changed[1] else LATER
                cause = PADDING if row == changed[0] and not changed[1] else cause
                its_own = np.where(rows.segments[row] == segment, moved[row], -1)
                yield from rows.farthest(cause, changed, row, its_own)
    if own <= limit:
        raise UsageError(
            f"logits move by at most {own:.1e} when their own tokens change: the model does not "
            f"read `{rows.changed}`"
        )


def _change_ends(rows: AttentionRows) -> Iterator[Movement]:
    """Movements of the first half of a segment when the second changes."""
    for row, segment in rows.numbered:
        positions = np.flatnonzero(rows.segments[row] == segment)
        cut = len(positions) // 2
        if "prefix_mask" in rows.batch:  # tokens of the prefix attend to each other
            cut = max(cut, int(rows.batch["prefix_mask"][row, positions].sum()))
        if not 0 < cut < len(positions):
            continue
        here = np.zeros(rows.segments.shape, bool)
        here[row, positions[cut:]] = True
        first_half = np.full(rows.segments.shape[1], -1.0)
        first_half[positions[:cut]] = rows.moved(here)[row, positions[:cut]]
        yield from rows.farthest(AHEAD, (row, segment), row, first_half)


def _compare_alone(rows: AttentionRows) -> Iterator[Movement]:
    """Differences of a segment's logits from those of the segment alone in a row."""
    count = len(rows.segments)
    for start in range(0, len(rows.numbered), count):
        few = rows.numbered[start : start + count]
        whole = few + few[-1:] * (count - len(few))  # one shape for all, so that it compiles once
        logits = rows.run(rows.alone(whole))
        for number, (row, segment) in enumerate(few):
            positions = np.flatnonzero(rows.segments[row] == segment)
            moved_L = np.full(rows.segments.shape[1], -1.0)
            difference = rows.before[row, positions] - logits[number, : len(positions)]
            moved_L[positions] = np.abs(difference).max(axis=-1)
            yield from rows.farthest(ALONE, None, row, moved_L)
