"""The value of `--shards`: a dataset, or several with weights.

open_shards("data/books")                       # a ShardSet
open_shards("data/books:0.7,data/web:0.3")      # a Mixture
"""

from __future__ import annotations

import os
import re
from typing import Any

from textmill.schemas.errors import UsageError, flag
from textmill.schemas.files.store import is_url
from textmill.trainers.data.mixture import Mixture
from textmill.trainers.data.shard_set import ShardSet

# A directory, then the weight after its last colon, up to a comma or the end.
_WEIGHTED = re.compile(r"(?P<path>.+?):(?P<weight>[0-9.]+(?:e[-+]?[0-9]+)?)(?:,|$)")


def parse_shards(text: str) -> dict[str, float | None]:
    """The datasets of `--shards` and their weights; None for one dataset without a weight.

    "books:0.7,web:0.3" -> {"books": 0.7, "web": 0.3}; "gs:data" -> {"gs:data": None}. The weight
    follows the last colon; the path of an existing directory may contain colons and commas.

    Raises:
      UsageError: a directory has no weight, or is repeated.
    """
    if os.path.isdir(text) or not (_WEIGHTED.match(text) or "," in text):
        return {text: None}
    weights: dict[str, float | None] = {}
    start = 0
    while start < len(text):
        match = _WEIGHTED.match(text, start)
        if match is None:
            raise UsageError(
                f"{flag('shards', text)}: {text[start:]!r} has no weight; give one directory, or "
                f"each with its weight, as in {flag('shards', 'DIR:0.7,DIR:0.3')}"
            )
        path = match["path"]
        if path in weights:
            raise UsageError(
                f"{flag('shards', text)} names {path} twice; give it once, with one weight"
            )
        try:
            weights[path] = float(match["weight"])
        except ValueError:
            raise UsageError(
                f"{flag('shards', text)}: {match['weight']!r} is not a number; give a weight such "
                "as 0.7"
            ) from None
        start = match.end()
    return weights


def absolute_shards(text: str) -> str:
    """`--shards` with absolute paths: "a:1,gs://b/c:2" -> "/data/a:1.0,gs://b/c:2.0"."""
    weights = parse_shards(text)
    paths = [path if is_url(path) else os.path.abspath(path) for path in weights]
    if None in weights.values():
        return paths[0]
    return ",".join(f"{path}:{weight}" for path, weight in zip(paths, weights.values()))


def shards_name(text: str) -> str:
    """A short name for `--shards`: "data/books:0.7,data/web:0.3" -> "books+web"."""
    return "+".join(os.path.basename(os.path.realpath(path)) for path in parse_shards(text))


def open_shards(text: str, *, seed: int = 0, **opening: Any) -> ShardSet | Mixture[ShardSet]:
    """Opens `--shards`: a dataset, or a mixture "data/books:0.7,gs://bucket/web:0.3".

    `seed` decides a mixture's order; `opening` is as for ShardSet: verify, cache_dir and others.

    Raises:
      DataError: one is not a finished dataset.
      UsageError: text or weights are wrong, or the datasets cannot be mixed.
    """
    weights = parse_shards(text)
    if None in weights.values():
        return ShardSet(next(iter(weights)), **opening)
    shares = {path: weight for path, weight in weights.items() if weight is not None}
    return ShardSet.mix(shares, seed=seed, **opening)
