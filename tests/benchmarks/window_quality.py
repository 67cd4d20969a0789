"""How well the windowed order mixes, beside a permutation of all rows.

    python -m tests.benchmarks.window_quality
    python -m tests.benchmarks.window_quality --train      # and what a model learns, a few minutes

The order is measured on as many pieces as a dataset of 10 GB has. Training is the worst case: rows
that are sorted by topic, so each piece is of one topic. A tiny masked language model is trained for
two epochs on windows of 100 steps; each order has several seeds.
"""

import argparse
import contextlib
import io
import tempfile
from pathlib import Path

import numpy as np

from tests.tools.run_reading import untimed_lines
from tests.tools.shard_factory import mlm_schema, packed_rows, write_set
from textmill.schemas.format import pieces
from textmill.trainers.data.row_order import epoch_and_row
from textmill.trainers.data.window_order import WINDOW_PIECES, WindowOrder
from textmill.trainers.flax_mlm import main as flax_mlm

PIECES, PIECE_ROWS, SHARDS = 9600, 250, 8
TOPICS, TOPIC_IDS, ROWS, ROWS_PER_PIECE, BATCH = 10, 20, 19_200, 25, 32


def describe(rows: np.ndarray) -> dict[str, float]:
    """Figures on an epoch: row indices int64 [N], each once.

    Neighbours are rows that follow one another in the epoch; "stored side by side" are rows i and
    i + 1. Distances are parts of an epoch.
    """
    count = len(rows)
    position = np.empty(count, np.int64)
    position[rows] = np.arange(count)
    label = rows * 10 // count  # as if sorted by ten labels
    stretches = label[: count // 1000 * 1000].reshape(-1, 1000)
    shares = np.stack([(stretches == each).mean(axis=1) for each in range(10)])
    return {
        "correlation of neighbours": np.corrcoef(rows[:-1], rows[1:])[0, 1],
        "correlation of position and row": np.corrcoef(np.arange(count), rows)[0, 1],
        "neighbours of one piece": (rows[:-1] // PIECE_ROWS == rows[1:] // PIECE_ROWS).mean(),
        "distance of rows stored side by side": np.abs(np.diff(position)).mean() / count,
        "distance of a row from its place": np.abs(position - np.arange(count)).mean() / count,
        "deviation of a label's share of 1,000 rows": shares.std(axis=1).mean(),
    }


def measure_order() -> dict[str, dict[str, float]]:
    """The figures of both orders."""
    count = PIECES * PIECE_ROWS
    order = WindowOrder([count // SHARDS] * SHARDS, PIECE_ROWS, WINDOW_PIECES)
    positions = np.arange(count)
    return {
        "full": describe(epoch_and_row(positions, rows=count, seed=0)[1]),
        "window": describe(order.epoch_and_row(positions, seed=0)[1]),
    }


def _write_topics(directory: Path) -> None:
    """A dataset whose rows are sorted by topic: each topic has token ids of its own."""
    vocabulary = 5 + TOPICS * TOPIC_IDS
    schema = mlm_schema(vocab_size=vocabulary, shards={"train": 4, "validation": 1})
    columns = {}
    for seed, (split, rows) in enumerate({"train": ROWS, "validation": 1000}.items()):
        columns[split] = packed_rows(schema, rows, seed)
        topic = (np.arange(rows) * TOPICS // rows)[:, None]
        for name in ("input_ids", "masked_ids"):
            ids = columns[split][name]
            own = 5 + topic * TOPIC_IDS + (ids - 5) % TOPIC_IDS
            columns[split][name] = np.where(ids < 5, ids, own)
    write_set(directory, schema, columns)


def measure_training(seeds: int) -> dict[str, list[float]]:
    """The validation losses of each order after two epochs."""
    losses: dict[str, list[float]] = {"full": [], "window": []}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "set"
        stride = mlm_schema(vocab_size=5 + TOPICS * TOPIC_IDS).codec().stride
        pieces.PIECE_BYTES = ROWS_PER_PIECE * stride
        _write_topics(directory)
        for seed in range(seeds):
            for order, found in losses.items():
                output = Path(name) / f"{order}-{seed}"
                flags = ["--model=tiny", "--epochs=2", f"--batch_size={BATCH}", f"--seed={seed}"]
                flags += ["--learning_rate=1e-3", "--evaluate_every=100000", f"--order={order}"]
                with contextlib.redirect_stdout(io.StringIO()):
                    flax_mlm([f"--shards={directory}", f"--output={output}", *flags])
                found.append(untimed_lines(output, "evaluation")[-1]["loss"])
                print(order, seed, found[-1], flush=True)
    return losses


def main() -> None:
    """Prints a table, and the losses."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    figures = measure_order()
    print(f"| {PIECES:,} pieces of {PIECE_ROWS:,} rows | full | window |\n|---|---|---|")
    for name, value in figures["full"].items():
        print(f"| {name} | {value:.4f} | {figures['window'][name]:.4f} |")
    if options.train:
        for order, losses in measure_training(options.seeds).items():
            print(f"{order}: loss {np.mean(losses):.4f}, deviation {np.std(losses, ddof=1):.4f}")


if __name__ == "__main__":
    main()
