"""Batches of examples: their columns, and which examples are duplicates."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from textmill.pipelines.rows.example_batch import (
    COPIES,
    MARK,
    ExampleBatch,
    join,
    keep,
    sort_examples,
    to_stream,
    without_repeats,
)
from textmill.pipelines.rows.ragged import Ragged
from textmill.schemas.format.drops import DROPS


def example_batch(numbers, parts=None, lines=None):
    """Examples of documents whose hashes are these numbers, with one id each: their position."""
    digests = np.zeros((len(numbers), 16), np.uint8)
    digests[:, 15] = numbers
    ids = Ragged(np.arange(len(numbers), dtype=np.uint16), np.arange(len(numbers) + 1))
    scalars = {} if parts is None else {"part": np.array(parts)}
    found = ExampleBatch.of(digests, np.ones(len(numbers), np.int64), {"ids": ids}, scalars)
    if lines is None:
        return found
    column = pa.array([line.encode() for line in lines], pa.large_binary())
    return ExampleBatch(found.batch.append_column("evaluation", column))


def test_columns_by_hand():
    scalars = {
        "specials": [9, 0, 0, 1, 9],
        "truncated": [9, 0, 3, 0, 9],
        "repeated": [9, 0, 2, 1, 9],
    }
    whole = ExampleBatch.of(
        np.arange(80, dtype=np.uint8).reshape(5, 16),
        np.array([3, 0, 1, 2, 9]),
        {"ids": Ragged.of(np.arange(4, 12, dtype=np.uint16), [1, 2, 0, 4, 1])},
        {name: np.array(values) for name, values in scalars.items()},
    )
    some = whole.slice(1, 4)
    joined = join([to_stream(some.slice(*place).batch) for place in ((0, 1), (1, 3))])
    assert joined is not None
    for batch in (some, joined, whole.take(np.array([1, 2, 3]))):
        high, low = batch.digests()
        assert high.tolist() == [int.from_bytes(range(n, n + 8)) for n in (16, 32, 48)]
        assert low.tolist() == [int.from_bytes(range(n, n + 8)) for n in (24, 40, 56)]
        values, offsets = batch.ragged("ids", "uint16")
        assert (values.tolist(), offsets.tolist()) == ([5, 6, 7, 8, 9, 10], [0, 2, 2, 6])
        values, offsets = batch.ragged("ids", "uint16", (1, 2), (3,))
        expected = [1, 2, 5, 6, 3, 1, 2, 3, 1, 2, 7, 8, 9, 10, 3]
        assert (values.tolist(), offsets.tolist()) == (expected, [0, 5, 8, 15])
        assert batch.scalar("text_bytes").tolist() == [0, 1, 2]
        assert batch.tokens("uint16").tolist() == [2, 0 + 3 - 2, 4 - 1 - 1]
        assert batch.copies().tolist() == [1, 1, 1] and batch.scalar(MARK).tolist() == [0, 0, 0]
    assert join([]) is None


def as_lists(column):
    return column.values.tolist(), column.offsets.tolist()


def test_joined_examples_are_those_of_one_batch():
    whole = ExampleBatch.of(
        np.arange(64, dtype=np.uint8).reshape(4, 16),
        np.arange(4),
        {
            "ids": Ragged.of(np.arange(7, dtype=np.uint16), [2, 0, 1, 4]),
            "weights": Ragged.of(np.arange(7, dtype=np.uint8), [1, 3, 0, 3]),
            "evaluation": Ragged.of(np.arange(60, 64, dtype=np.uint8), [1, 2, 1, 0]),
        },
    )
    order = np.array([3, 1, 0])
    due = whole.take(order)
    contents = []
    for cuts in ([0, 4], [0, 1, 4], [0, 2, 2, 3, 4]):
        joined = join(to_stream(whole.slice(*cut).batch) for cut in pairwise(cuts))
        assert joined is not None
        taken = joined.take(order)
        for found in (taken, joined.slice(1, 4).take(np.array([2, 0]))):
            kept = due.slice(0, len(found))
            assert found.lengths("uint16").tolist() == kept.lengths("uint16").tolist()
            for name, dtype in {"ids": "uint16", "weights": "uint8", "evaluation": "uint8"}.items():
                assert as_lists(found.ragged(name, dtype)) == as_lists(kept.ragged(name, dtype))
                ours, theirs = (each.ragged(name, dtype, (), (9, 8)) for each in (found, kept))
                assert as_lists(ours) == as_lists(theirs)
        contents.append([(name, [*map(bytes, parts)]) for name, parts in taken.contents()])
    names = ["digests", "text_bytes", "evaluation", "ids", "weights"]
    assert [name for name, _ in contents[0]] == names
    assert contents[0] == contents[1] == contents[2]


def test_the_first_of_equal_examples_or_the_least_line_stays():
    examples, kept = without_repeats(example_batch([7, 3, 7, 7, 5]))
    assert kept.tolist() == [0, 1, 4] == examples.ragged("ids", "uint16")[0].tolist()
    assert examples.copies().tolist() == [3, 1, 1]
    assert without_repeats(example_batch([7] * 4, parts=[0, 1, 0, 1]))[1].tolist() == [0, 1]
    lines = example_batch([7, 7, 3, 7], lines=["c", "a", "b", "b"])
    assert without_repeats(lines)[1].tolist() == [1, 2]


@given(st.lists(st.integers(0, 5)), st.integers(0, 30))
def test_in_two_goes_or_in_one(numbers, cut):
    pieces = [without_repeats(example_batch(some))[0] for some in (numbers[:cut], numbers[cut:])]
    joined = ExampleBatch(pa.concat_batches([piece.batch for piece in pieces]))
    found = sort_examples(joined)
    copies = np.add.reduceat(joined.copies()[found.order_E], np.flatnonzero(found.fresh_E))
    expected = np.unique(np.array(numbers, int), return_counts=True)
    assert found.low_E[found.fresh_E].tolist() == expected[0].tolist()
    assert copies.tolist() == expected[1].tolist() if numbers else not copies.size


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(1, 3))), st.randoms())
def test_what_a_shard_leaves_out(given, random):
    """Oracle: documents by hash, a mark drops all copies, and else all but one are repeats."""
    parts = [0, 1] if random.random() < 0.5 else [0]
    rows = [(n, p, mark, c) for n, mark, c in given for p in parts[: 1 if mark else 2]]
    random.shuffle(rows)
    columns = np.array(rows, np.int64).reshape(-1, 4).T
    numbers, part, mark, copies = columns.tolist()
    examples = example_batch(numbers, part)
    batch = examples.batch.append_column(MARK, pa.array(np.array(mark, np.uint8)))
    batch = batch.append_column(COPIES, pa.array(np.array(copies, np.uint32)))
    kept = keep(ExampleBatch(batch))
    expected: Counter[str] = Counter()
    for number in set(numbers):
        marks = [m for n, m, _ in given if n == number]
        times = sum(c for n, m, c in given if n == number and not m) - (not max(marks))
        expected[["duplicates", *DROPS][max(marks)]] += times
    # A mark of the first row, "duplicates", counts as repeats do.
    assert kept.dropped == {reason: times for reason, times in expected.items() if times}
    alive = {n for n, m, _ in given} - {n for n, m, _ in given if m}
    assert sorted({*kept.low_E.tolist()}) == sorted(alive)
