"""evaluation.jsonl: the references that evaluation splits are scored against, a line per document.

A row and its line share `example_id`, the first 64 bits of the document's hash: two uint32 (high,
low) in a row, 16 hexadecimal digits in the file.
"""

import json
import re
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from textmill.pipelines.rows.ragged import Ragged
from textmill.pipelines.rows.routing import json_of
from textmill.pipelines.rows.text_bytes import utf8_bytes
from textmill.schemas.errors import DataError
from textmill.schemas.format.manifest import EVALUATION as EVALUATION
from textmill.schemas.typed_json import quote

_LONGEST = 64 << 20  # most bytes of a line
EvaluationLine = tuple[str, bytes]  # example_id, and the task's JSON object, which is not empty


def example_ids(high: np.ndarray) -> np.ndarray:
    """uint64 [n] upper halves of hashes -> uint32 [n, 2]."""
    return high.astype(">u8").view(">u4").reshape(-1, 2).astype(np.uint32)


def example_name(high: int) -> str:
    """An example_id as the file writes it: 16 hexadecimal digits."""
    return f"{high:016x}"


def evaluation_lines(objects: pa.StructArray, is_evaluated_E: np.ndarray) -> Ragged:
    """A task's JSON objects as its column `evaluation`, which is empty for training examples.

    Args:
      objects: the objects of the evaluation examples, in order.
      is_evaluated_E: bool, which examples these are.
    """
    data, offsets = utf8_bytes(json_of(objects, in_ascii=False))
    lengths_E = np.zeros(len(is_evaluated_E), np.int64)
    lengths_E[is_evaluated_E] = np.diff(offsets)
    return Ragged.of(data, lengths_E)


def evaluation_file(lines: Iterable[EvaluationLine], *, ids_differ: bool) -> dict[str, bytes]:
    """{"evaluation.jsonl": content}, sorted by example_id; {} without lines.

    A document in two splits has one line, the smallest if its ids differ.

    Args:
      lines: the lines of all evaluation documents.
      ids_differ: whether documents are scored by their own ids.

    Raises:
      DataError: documents are scored by their ids, and two different ones have the same id.
    """
    content = []
    name_of: dict[str, str] = {}
    for name, line in sorted(dict(sorted(lines, reverse=True)).items()):
        own = json.loads(line).get("id") if ids_differ else None
        if own and name_of.setdefault(own, name) != name:
            raise DataError(
                f"two different evaluation documents have the id {own!r}: give each its own id, or "
                "remove one"
            )
        content.append(b'{"example_id": "%b", %b\n' % (name.encode(), line[1:]))
    return {EVALUATION: b"".join(content)} if content else {}


def evaluation_names(path: str) -> np.ndarray:
    """The example_id of each line of an evaluation.jsonl: uint64, ascending.

    Raises:
      DataError: a line has no example_id, or two have the same.
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
