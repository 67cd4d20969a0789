"""The training rows of a set once more, as mosaicml-streaming (mds) or litdata keep them.

python write_rows.py mds|litdata DIRECTORY
"""

import sys
from collections.abc import Iterator

import numpy as np

from textmill.trainers.reader import ShardSet


def main(kind: str, directory: str) -> None:
    """Writes them into a folder of the set's directory."""
    {"mds": write_mds, "litdata": write_litdata}[kind](directory)


def write_mds(directory: str) -> None:
    """A column a feature, of fixed shape."""
    from streaming import MDSWriter  # pyright: ignore[reportMissingImports]

    features = ShardSet(directory, verify=False).schema.features
    columns = {f.name: f"ndarray:{f.dtype}:{','.join(map(str, f.shape))}" for f in features}
    with MDSWriter(out=directory + "/mds", columns=columns) as writer:
        for row in rows_of(directory):
            writer.write(row)


def write_litdata(directory: str) -> None:
    """Chunks of 64 MB."""
    from litdata import optimize  # pyright: ignore[reportMissingImports]

    optimize(rows_of, [directory], directory + "/litdata", chunk_bytes="64MB", num_workers=1)


def rows_of(directory: str) -> Iterator[dict[str, np.ndarray]]:
    """All training rows."""
    shards = ShardSet(directory, verify=False)
    columns = shards.read("train", np.arange(shards.rows("train")))
    for index in range(shards.rows("train")):
        yield {name: column[index] for name, column in columns.items()}


if __name__ == "__main__":
    main(*sys.argv[1:])
