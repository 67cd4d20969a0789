"""Refused documents -> rejects/rejects.jsonl. Pure."""

import json
from collections.abc import Iterable
from dataclasses import asdict

from pipelines.documents import Reject

REJECTS = "rejects/rejects.jsonl"


def rejects_file(rejects: Iterable[Reject]) -> dict[str, bytes]:
    """The file's name and content, sorted by place; nothing if none was refused."""
    ordered = sorted(rejects, key=lambda reject: (reject.path, reject.offset))
    lines = [json.dumps(asdict(r), sort_keys=True, ensure_ascii=False) for r in ordered]
    return {REJECTS: ("\n".join(lines) + "\n").encode()} if lines else {}
