"""evaluation.jsonl: what the rows of evaluation splits are scored against, a line a document. Pure.

A row and its line share `example_id`: the first 64 bits of the document's hash, in a row as two
uint32 (high, low), in the file as 16 hexadecimal digits.
"""

import json
import re
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from pipelines.rows.ragged import Ragged
from pipelines.rows.routing import json_of
from pipelines.rows.text_bytes import utf8_bytes
from schemas.errors import DataError
from schemas.manifest import EVALUATION as EVALUATION
from schemas.typed_json import quote

_LONGEST = 64 << 20  # bytes of a line
EvaluationLine = tuple[str, bytes]  # example_id, and the task's JSON object, which has fields


def example_ids(high: np.ndarray) -> np.ndarray:
    """uint64 [n] upper halves of hashes -> uint32 [n, 2]."""
    return high.astype(">u8").view(">u4").reshape(-1, 2).astype(np.uint32)


def example_name(high: int) -> str:
    """The same as it stands in the file: 16 hexadecimal digits."""
    return f"{high:016x}"


def evaluation_lines(objects: pa.StructArray, is_evaluated_E: np.ndarray) -> Ragged:
    """A task's JSON objects as its column `evaluation`, which is empty in examples to train on.

    Args:
      objects: of the examples that are evaluated, in their order.
      is_evaluated_E: bool, which these are.
    """
    data, offsets = utf8_bytes(json_of(objects, in_ascii=False))
    lengths_E = np.zeros(len(is_evaluated_E), np.int64)
    lengths_E[is_evaluated_E] = np.diff(offsets)
    return Ragged.of(data, lengths_E)


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
        own = json.loads(line).get("id") if ids_differ else None
        if own and name_of.setdefault(own, name) != name:
            raise DataError(
                f"two documents that are to be evaluated have the id {own!r}, and differ: give "
                "each its own id, or leave one out"
            )
        content.append(b'{"example_id": "%b", %b\n' % (name.encode(), line[1:]))
    return {EVALUATION: b"".join(content)} if content else {}


def evaluation_names(path: str) -> np.ndarray:
    """The example_id of each line of an evaluation.jsonl: uint64, ascending.

    Raises:
      DataError: a line is none, or is there twice.
    """
    names = []
    with open(path, "rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(_LONGEST), b""), start=1):
            try:
                name = json.loads(line)["example_id"]
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                raise DataError(f"{path}: line {number:,} has no example_id") from error
            if not isinstance(name, str) or not re.fullmatch("[0-9a-f]{16}", name):
                raise DataError(f"{path}: line {number:,} has the example_id {quote(name)}")
            names.append(int(name, 16))
    ascending = np.sort(np.array(names, np.uint64))
    twice = ascending[1:][ascending[1:] == ascending[:-1]]
    if len(twice):
        raise DataError(f"{path} has two lines with the example_id {example_name(int(twice[0]))}")
    return ascending
