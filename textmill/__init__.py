"""Textmill turns text into tokenized, packed datasets, and trains models on them.

Names are imported when they are used, so that a trainer's host needs no package of the pipelines,
and a worker none of the trainers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from textmill.trainers.data.shard_set import ShardSet as ShardSet

_PLACES = {"ShardSet": "textmill.trainers.data.shard_set"}
__all__ = ["ShardSet"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'textmill' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_PLACES]
