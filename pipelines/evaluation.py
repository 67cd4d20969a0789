"""evaluation.jsonl: what the rows of evaluation splits are scored against, a line a document. Pure.

A row and its line share `example_id`: the first 64 bits of the document's hash, in a row as two
uint32 (high, low), in the file as 16 hexadecimal digits.
"""

import json
from collections.abc import Iterable

import numpy as np

from schemas.errors import DataError

EVALUATION = "evaluation.jsonl"
EvaluationLine = tuple[str, bytes]  # example_id, and the task's JSON object


def example_ids(high: np.ndarray) -> np.ndarray:
    """uint64 [n] upper halves of hashes -> uint32 [n, 2]."""
    return high.astype(">u8").view(">u4").reshape(-1, 2).astype(np.uint32)


def example_name(high: int) -> str:
    """The same as it stands in the file: 16 hexadecimal digits."""
    return f"{high:016x}"


def evaluation_file(lines: Iterable[EvaluationLine], *, ids_differ: bool) -> dict[str, bytes]:
    """{"evaluation.jsonl": content}, in the order of example_id; {} without lines.

    A document that two splits have has one line.

    Args:
      lines: of all documents that are evaluated.
      ids_differ: whether documents are scored by their own ids.

    Raises:
      DataError: they are, and two have the same.
    """
    content = []
    name_of: dict[str, str] = {}
    for name, line in sorted(set(lines)):
        values = json.loads(line)
        own = values.get("id") if ids_differ else None
        if own and name_of.setdefault(own, name) != name:
            raise DataError(
                f"two documents that are to be evaluated have the id {own!r}, and differ: give "
                "each its own id, or leave one out"
            )
        content.append(json.dumps({"example_id": name, **values}, ensure_ascii=False) + "\n")
    return {EVALUATION: "".join(content).encode()} if content else {}


def evaluation_names(path: str) -> np.ndarray:
    """The example_id of each line of an evaluation.jsonl: uint64, ascending.

    Raises:
      DataError: a line is none, or is there twice.
    """
    names = []
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                names.append(int(json.loads(line)["example_id"], 16))
            except (ValueError, TypeError, KeyError) as error:
                raise DataError(f"{path}: line {number:,} has no example_id") from error
    ascending = np.sort(np.array(names, np.uint64))
    twice = ascending[1:][ascending[1:] == ascending[:-1]]
    if len(twice):
        raise DataError(f"{path} has two lines with the example_id {example_name(int(twice[0]))}")
    return ascending
