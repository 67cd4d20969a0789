"""evaluation.jsonl: what the rows of evaluation splits are scored against, a line a document. Pure.

A row and its line share `example_id`: the first 64 bits of the document's hash, in a row as two
uint32 (high, low), in the file as 16 hexadecimal digits.
"""

import json
from collections.abc import Iterable

import numpy as np

EVALUATION = "evaluation.jsonl"
EvaluationLine = tuple[str, bytes]  # example_id, and the task's JSON object


def example_ids(high: np.ndarray) -> np.ndarray:
    """uint64 [n] upper halves of hashes -> uint32 [n, 2]."""
    return high.astype(">u8").view(">u4").reshape(-1, 2).astype(np.uint32)


def example_name(high: int) -> str:
    """The same as it stands in the file: 16 hexadecimal digits."""
    return f"{high:016x}"


def evaluation_file(lines: Iterable[EvaluationLine]) -> dict[str, bytes]:
    """{"evaluation.jsonl": content}, in the order of example_id; {} without lines."""
    content = b"".join(
        json.dumps({"example_id": name, **json.loads(line)}, ensure_ascii=False).encode() + b"\n"
        for name, line in sorted(lines)
    )
    return {EVALUATION: content} if content else {}
