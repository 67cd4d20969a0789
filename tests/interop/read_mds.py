"""Reads an export in MDS with mosaicml-streaming: rows of the set, and bytes of MDSWriter.

    uv venv baselines && uv pip install --python baselines/bin/python mosaicml-streaming==0.13.0
    python -m pipelines.export shards --to=mds --layout=huggingface --output=rows
    baselines/bin/python -m tests.interop.read_mds shards rows

Three things: LocalDataset gives the set's rows in their order, token for token; an epoch of
StreamingDataset, shuffled, through PyTorch's DataLoader gives each once; and MDSWriter writes the
same bytes for the first shard. It ends with 1 at the first row that differs.
"""

import importlib.metadata
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from streaming import (  # pyright: ignore[reportMissingImports]
    LocalDataset,
    MDSWriter,
    StreamingDataset,
)
from torch.utils.data import DataLoader

from textmill.schemas.format.layouts import LAYOUTS
from textmill.trainers.reader import ShardSet

Row = dict[str, np.ndarray]
BATCH = 256


def main(directory: str, export: str) -> None:
    """Compares each split; prints a line of each."""
    shards = ShardSet(directory)
    layout = json.loads(Path(export, "export.json").read_text())["to"].partition(", ")[2]
    print(f"mosaicml-streaming {importlib.metadata.version('mosaicml-streaming')}")
    for split in shards.splits:
        if not shards.rows(split):
            continue
        print(f"{split}: {read_in_order(shards, split, layout, export)}")
        print(f"{split}: {read_shuffled(export, split)}")
        print(f"{split}: {write_again(export, split)}")


def rows_of(shards: ShardSet, split: str, layout: str) -> Iterator[Row]:
    """The rows of a split, in order."""
    for start in range(0, shards.rows(split), BATCH):
        indices = np.arange(start, min(start + BATCH, shards.rows(split)))
        columns = shards.read(split, indices)
        columns = LAYOUTS[layout](columns) if layout else columns
        rows = zip(*columns.values(), strict=True)
        yield from (dict(zip(columns, row, strict=True)) for row in rows)


def read_in_order(shards: ShardSet, split: str, layout: str, export: str) -> str:
    """Holds each row of LocalDataset against the set's."""
    found, values = LocalDataset(export, split), 0
    if len(found) != shards.rows(split):
        sys.exit(f"{split}: {len(found)} rows, not {shards.rows(split)}")
    for index, due in enumerate(rows_of(shards, split, layout)):
        row = found[index]
        same = row.keys() == due.keys() and all(
            row[name].dtype == due[name].dtype and np.array_equal(row[name], due[name])
            for name in due
        )
        if not same:
            sys.exit(f"{split}: row {index} is {row}, not {due}")
        values += sum(column.size for column in due.values())
    tokens = shards.stats.split(split).tokens_in_rows
    return f"{len(found):,} rows equal in {values:,} values, of {tokens:,} tokens"


def read_shuffled(export: str, split: str) -> str:
    """Counts the rows that an epoch of StreamingDataset gives."""
    found = LocalDataset(export, split)
    due = Counter(map(digest, (found[index] for index in range(len(found)))))
    dataset = StreamingDataset(local=export, split=split, shuffle=True, batch_size=BATCH)
    seen: Counter[int] = Counter()
    for batch in DataLoader(dataset, batch_size=BATCH):
        columns = {name: column.numpy() for name, column in batch.items()}
        rows = zip(*columns.values(), strict=True)
        seen.update(digest(dict(zip(columns, row, strict=True))) for row in rows)
    if seen != due:
        sys.exit(f"{split}: {len(due - seen)} rows did not come in an epoch")
    return f"each of {seen.total():,} rows once in a shuffled epoch"


def digest(row: Row) -> int:
    """Tells rows apart, within this process."""
    return hash(tuple((name, row[name].tobytes()) for name in sorted(row)))


def write_again(export: str, split: str) -> str:
    """Lets MDSWriter write the rows of the first shard."""
    index = json.loads(Path(export, split, "index.json").read_text())
    told, found = index["shards"][0], LocalDataset(export, split)
    columns = dict(zip(told["column_names"], told["column_encodings"], strict=True))
    with tempfile.TemporaryDirectory() as folder:
        with MDSWriter(out=folder, columns=columns, size_limit=None) as writer:
            for row in range(told["samples"]):
                writer.write(found[row])
        theirs = Path(folder, "shard.00000.mds").read_bytes()
    if theirs != Path(export, split, told["raw_data"]["basename"]).read_bytes():
        sys.exit(f"{split}: MDSWriter writes other bytes")
    return f"the {len(theirs):,} bytes of MDSWriter"


if __name__ == "__main__":
    main(*sys.argv[1:])
