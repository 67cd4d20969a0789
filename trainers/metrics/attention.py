"""Proof that a model of packed rows keeps documents apart: tokens are changed, logits compared.

    from trainers.metrics.attention import pick_rows, verify_attention

    def logits_of(batch):      # numpy arrays in; a PyTorch, JAX or TensorFlow array out
        return model(torch.from_numpy(batch["input_ids"]), ...).logits

    report = verify_attention(logits_of, pick_rows(ShardSet("shards")), causal=True)
    print(report)              # which row, which segment, how far
    assert report.ok

Legend: B rows, L tokens a row, C logits a token.
"""

from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import numpy as np

from schemas.errors import DataError, UsageError
from schemas.features import positions_from_segments, unmask
from trainers.data.adapters import one_segment_a_row, segments_of
from trainers.data.batches import Batch, BatchReader

EARLIER, LATER = "an earlier segment of the row", "a later segment of the row"
AHEAD, PADDING, ROW = "later tokens of the segment", "padding", "another row"
ALONE = "being packed, not alone in a row"


@dataclass(frozen=True)
class Movement:
    """The farthest that one cause moved the logits of one segment.

    Attributes:
      cause: EARLIER, LATER, AHEAD, PADDING, ROW or ALONE.
      changed: row and segment whose tokens were changed; None where none were.
      moved: row and segment whose logits moved.
      place: of the logits that moved farthest, in the row.
      by: the largest difference of a logit.
    """

    cause: str
    changed: Optional[Tuple[int, int]]
    moved: Tuple[int, int]
    place: int
    by: float

    def __str__(self) -> str:
        """Names both segments and the movement."""
        place = f"row {self.moved[0]}, segment {self.moved[1]} moves by {self.by:.1e}"
        if self.changed is None:
            return f"{place} at place {self.place}"
        where = "row {}, segment {}".format(*self.changed)
        return f"{place} at place {self.place} when {where} changes"


@dataclass(frozen=True)
class AttentionReport:
    """What `verify_attention` found.

    Attributes:
      rows, segments: how many were looked at.
      limit: movements up to this are rounding: the tolerance times `spread`.
      spread: standard deviation of all logits.
      movements: every movement that was measured, those of nothing too.
    """

    rows: int
    segments: int
    limit: float
    spread: float
    movements: Tuple[Movement, ...]

    @property
    def leaks(self) -> Tuple[Movement, ...]:
        """Movements above the limit, the largest first."""
        above = [movement for movement in self.movements if movement.by > self.limit]
        return tuple(sorted(above, key=lambda movement: -movement.by))

    @property
    def ok(self) -> bool:
        """Whether no logits moved that should not."""
        return not self.leaks

    def largest(self) -> Dict[str, Movement]:
        """The largest movement of each cause that was tried."""
        by_cause: Dict[str, Movement] = {}
        for movement in sorted(self.movements, key=lambda movement: movement.by):
            by_cause[movement.cause] = movement
        causes = (EARLIER, LATER, AHEAD, PADDING, ROW, ALONE)
        return {cause: by_cause[cause] for cause in causes if cause in by_cause}

    def __str__(self) -> str:
        """A line for each cause, with its largest movement and how many were above the limit."""
        lines = [
            f"{self.segments} segments in {self.rows} rows; logits spread by {self.spread:.1e}, "
            f"movements up to {self.limit:.1e} are rounding"
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
    """Rows of a set that hold several segments, and so can leak; the first in the seed's order.

    Raises:
      DataError: none of the first thousand holds two segments.
    """
    positions = np.arange(min(1000, shards.rows(split)))
    batch = shards.read(split, shards.order(split, positions, seed=seed)["row_index"])
    packed = np.flatnonzero(batch["segment_ids"].max(axis=1) > 1)[:count]
    if not len(packed):
        raise DataError(
            f"{shards.name}: of {len(positions):,} rows of split {split!r} none holds two "
            "segments, so nothing can leak; take a set whose documents are shorter than its rows"
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
    """Changes one segment at a time and tells whose logits move; compares packed with alone.

    Nothing outside the segment may move, in its row or another; where the model is causal, nothing
    before the changed tokens. And a segment's logits may not depend on what it is packed with, nor
    on where in the row it lies.

    Args:
      logits_of: the model without dropout. Gets dictionaries of numpy arrays of the shapes of
        `batch`, with `position_ids` int32 [B, L] in it; gives [B, L, C], or [B, C] where a row is
        one segment.
      batch: rows as they are read; arrays [B, L] are taken to be a value a token.
      causal: whether a token may see none that come later. Where the rows have a `prefix_mask`,
        tokens of the prefix may.
      tolerance: how far logits may move, as a share of their standard deviation. Results are
        rounded: 1e-4 suits float32, 0.1 bfloat16.
      seed: of the tokens that replace others.

    Raises:
      UsageError: the logits are of another shape, not finite, differ between two runs of the same
        rows, or do not move at all where tokens change: nothing could be told.
    """
    return report_on(AttentionRows(logits_of, batch, seed), tolerance, causal=causal)


def report_on(rows: "AttentionRows", tolerance: float, *, causal: bool) -> AttentionReport:
    """Tries every cause on these rows; raises as `verify_attention`."""
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
    """The rows as they are, the model's logits of them, and ways to change them.

    Attributes:
      changed: name of the column whose tokens are changed; `changed_segments` has their segments,
        and `logit_segments` those of the logits. A subclass for other models has others.
      changing: segments of the tokens that are changed, [B, L].
      segments: those of the logits.
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
            raise UsageError("the rows hold one token only, which no other can replace")
        self.numbered = segments_of(self.segments)
        self.before = self.run(self.batch)

    def alone(self, segments: List[Tuple[int, int]]) -> Batch:
        """A row for each of these segments, which holds nothing else."""
        return one_segment_a_row(self.batch, segments)

    def run(self, batch: Batch) -> np.ndarray:
        """Logits as float64 [B, L, C]; those of whole rows stand at each of their tokens."""
        output = self._logits_of({name: column.copy() for name, column in batch.items()})
        if hasattr(output, "detach"):  # PyTorch, perhaps on a device and in bfloat16
            output = output.detach().cpu().double()
        logits, shape = np.asarray(output).astype(np.float64), self.segments.shape
        if logits.ndim == 2 and len(logits) == shape[0] and self.segments.max() == 1:
            logits = np.repeat(logits[:, None], shape[1], axis=1)
        if logits.ndim != 3 or logits.shape[:2] != shape:
            raise UsageError(
                f"the logits of rows {list(shape)} have the shape {list(logits.shape)}: give "
                f"[{shape[0]}, {shape[1]}, C], of every token"
            )
        if not np.isfinite(logits[batch[self.logit_segments] > 0]).all():
            raise UsageError("logits of tokens are not finite: nothing can be told of them")
        return logits

    def check_that_runs_agree(self, limit: float) -> None:
        """Refuses a model that gives the same rows other logits."""
        apart = np.abs(self.run(self.batch) - self.before)[self.segments > 0].max()
        if apart > limit:
            raise UsageError(
                f"two runs of the same rows differ by {apart:.1e}: turn dropout off (in PyTorch "
                "model.eval()), or raise the tolerance"
            )

    def moved(self, here: np.ndarray) -> np.ndarray:
        """How far logits move, [B, L], where the tokens of `here`, bool [B, L], are replaced."""
        ids = self.batch[self.changed].copy()
        # Each by another token of the rows, at random: 1 to n - 1 further in their sorted list.
        place = np.searchsorted(self._ids, ids[here])  # of padding perhaps none of them
        place += self._random.integers(1, len(self._ids), here.sum())
        ids[here] = self._ids[place % len(self._ids)]
        changed = {**self.batch, self.changed: ids}
        return np.abs(self.run(changed) - self.before).max(axis=-1)

    def farthest(
        self, cause: str, changed: Optional[Tuple[int, int]], row: int, moved_L: np.ndarray
    ) -> Iterator[Movement]:
        """The movement of one segment: `moved_L` is below 0 at all other places."""
        place = int(moved_L.argmax())
        if moved_L[place] >= 0:
            segment = int(self.segments[row, place])
            yield Movement(cause, changed, (row, segment), place, float(moved_L[place]))


def change_segments(rows: AttentionRows, limit: float) -> Iterator[Movement]:
    """What other segments and rows do while one segment, or the padding of one row, changes."""
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
            f"logits move by {own:.1e} at most where their own tokens change: the model does not "
            f"read `{rows.changed}` of the rows it is given"
        )


def _change_ends(rows: AttentionRows) -> Iterator[Movement]:
    """What the first half of a segment does while the second changes."""
    for row, segment in rows.numbered:
        places = np.flatnonzero(rows.segments[row] == segment)
        cut = len(places) // 2
        if "prefix_mask" in rows.batch:  # whose tokens see each other
            cut = max(cut, int(rows.batch["prefix_mask"][row, places].sum()))
        if not 0 < cut < len(places):
            continue
        here = np.zeros(rows.segments.shape, bool)
        here[row, places[cut:]] = True
        first_half = np.full(rows.segments.shape[1], -1.0)
        first_half[places[:cut]] = rows.moved(here)[row, places[:cut]]
        yield from rows.farthest(AHEAD, (row, segment), row, first_half)


def _compare_alone(rows: AttentionRows) -> Iterator[Movement]:
    """How a segment's logits differ from those of a row that holds nothing else."""
    count = len(rows.segments)
    for start in range(0, len(rows.numbered), count):
        few = rows.numbered[start : start + count]
        whole = few + few[-1:] * (count - len(few))  # the same shape for all, which compiles once
        logits = rows.run(rows.alone(whole))
        for number, (row, segment) in enumerate(few):
            places = np.flatnonzero(rows.segments[row] == segment)
            apart = np.full(rows.segments.shape[1], -1.0)
            difference = rows.before[row, places] - logits[number, : len(places)]
            apart[places] = np.abs(difference).max(axis=-1)
            yield from rows.farthest(ALONE, None, row, apart)
