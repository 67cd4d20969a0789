"""The value of `--shards`: a dataset, or several, with weights or to be read in stages.

open_shards("data/books")                               # a ShardSet
open_shards("data/books:0.7,data/web:0.3")              # a Mixture
open_shards("old=data/v1,new=data/v2", stages="0:old=1;9000:new=1", batch_size=32)
"""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

from textmill.schemas.errors import UsageError, flag
from textmill.schemas.files.store import is_url
from textmill.trainers.data.mixture import Mixture, names_of
from textmill.trainers.data.shard_set import ShardSet, open_sets
from textmill.trainers.data.stages import Stages
from textmill.trainers.data.turns import shares_of

# A directory, then the weight after its last colon, up to a comma or the end.
_WEIGHTED = re.compile(r"(?P<path>.+?):(?P<weight>[0-9.]+(?:e[-+]?[0-9]+)?)(?:,|$)")
_NAMED = re.compile(r"(?P<name>[\w.-]+)=(?P<path>.+)")


class ShardsPart(NamedTuple):
    """A dataset of `--shards`.

    Attributes:
      path: directory or URL.
      weight: None without one.
      name: that is given; "" for the last part of the directory.
    """

    path: str
    weight: float | None = None
    name: str = ""


def parse_shards(text: str) -> list[ShardsPart]:
    """The datasets of `--shards`: all have a weight, or none has.

    "books:0.7,web:0.3" -> books of weight 0.7, web of weight 0.3; "gs:data" -> gs:data;
    "old=data/v1,new=data/v2" -> data/v1 of name old, data/v2 of name new. The weight follows the
    last colon; the path of an existing directory may contain colons, commas and "=".

    Raises:
      UsageError: some directories have a weight and some have none, or one is repeated.
    """
    if os.path.isdir(text) or not (_WEIGHTED.match(text) or "," in text):
        return [_source(text, None)]
    sources = (
        _weighted(text)
        if _WEIGHTED.match(text)
        else [_source(path, None) for path in text.split(",") if path]
    )
    for number, source in enumerate(sources):
        if source.path in (each.path for each in sources[:number]):
            raise UsageError(
                f"{flag('shards', text)} names {source.path} twice; give it once, with one weight"
            )
        if source.name and source.name in (each.name for each in sources[:number]):
            raise UsageError(f"{flag('shards', text)} gives two datasets the name {source.name}")
    return sources


def _weighted(text: str) -> list[ShardsPart]:
    sources: list[ShardsPart] = []
    start = 0
    while start < len(text):
        match = _WEIGHTED.match(text, start)
        if match is None:
            raise UsageError(
                f"{flag('shards', text)}: {text[start:]!r} has no weight; give one directory, or "
                f"each with its weight, as in {flag('shards', 'DIR:0.7,DIR:0.3')}"
            )
        try:
            sources.append(_source(match["path"], float(match["weight"])))
        except ValueError:
            raise UsageError(
                f"{flag('shards', text)}: {match['weight']!r} is not a number; give a weight such "
                "as 0.7"
            ) from None
        start = match.end()
    return sources


def _source(text: str, weight: float | None) -> ShardsPart:
    found = None if os.path.isdir(text) else _NAMED.fullmatch(text)
    return (
        ShardsPart(text, weight)
        if found is None
        else ShardsPart(found["path"], weight, found["name"])
    )


def absolute_shards(text: str) -> str:
    """`--shards` with absolute paths: "a:1,n=gs://b/c:2" -> "/data/a:1.0,n=gs://b/c:2.0"."""
    return ",".join(
        (f"{name}=" if name else "")
        + (path if is_url(path) else os.path.abspath(path))
        + ("" if weight is None else f":{weight}")
        for path, weight, name in parse_shards(text)
    )


def shards_name(text: str) -> str:
    """A short name for `--shards`: "data/books:0.7,data/web:0.3" -> "books+web"."""
    return "+".join(
        name or os.path.basename(os.path.realpath(path)) for path, _, name in parse_shards(text)
    )


def check_shares(text: str, stages: Stages | None) -> None:
    """Refuses datasets of `--shards` without shares, or with two; before any is opened.

    Raises:
      UsageError: several have neither weights nor stages, or they have both; or the stages name a
        dataset that is none of them.
    """
    sources = parse_shards(text)
    if stages is None:
        if len(sources) > 1 and sources[0].weight is None:
            raise UsageError(
                f"{flag('shards', text)}: {text!r} has no weight; give one directory, or each with "
                f"its weight, as in {flag('shards', 'DIR:0.7,DIR:0.3')}, or {flag('stages')}"
            )
        return
    if sources[0].weight is not None:
        raise UsageError(
            f"{flag('stages', stages)} gives the shares of the datasets: leave the weights of "
            f"{flag('shards', text)} out"
        )
    stages.check_names(names_of([path for path, _, _ in sources], [name for _, _, name in sources]))


def open_shards(
    text: str,
    *,
    seed: int = 0,
    stages: Stages | str | None = None,
    batch_size: int | None = None,
    steps: int | None = None,
    tokens: float | None = None,
    split: str = "train",
    stage_shares: str = "tokens",
    **opening: Any,
) -> ShardSet | Mixture[ShardSet]:
    """Opens `--shards`: a dataset, or a mixture "data/books:0.7,gs://bucket/web:0.3".

    Args:
      text: the value of the flag.
      seed: decides a mixture's order.
      stages: shares that change, "0:books=1; 9000:books=0.5,web=0.5", of datasets without weights.
      batch_size: rows of a step; needed for stages.
      steps: of the run, for stages that start at a part of it.
      tokens: of the run, instead of steps.
      split: whose rows the stages share.
      stage_shares: what the shares of stages count: tokens or rows.
      **opening: as for ShardSet: verify, cache_dir, order and others.

    Raises:
      DataError: one is not a finished dataset.
      UsageError: text, weights or stages are wrong, or the datasets cannot be mixed.
    """
    stages = Stages.parse(stages) if isinstance(stages, str) else stages
    sources = parse_shards(text)
    if stages is not None:
        check_shares(text, stages)
        stages.check_length(steps=steps, tokens=tokens)
    [first, *others] = sources
    if not (others or first.name or first.weight is not None or stages is not None):
        return ShardSet(first.path, **opening)
    weights = None if first.weight is None else [source.weight or 0.0 for source in sources]
    if weights is not None:
        shares_of([source.path for source in sources], weights)  # before all bytes are read
    parts = open_sets([source.path for source in sources], **opening)
    names = [source.name for source in sources]
    mixture = Mixture(parts, weights, seed=seed, names=names)
    if stages is None:
        return mixture
    if batch_size is None:
        raise UsageError(f"{flag('stages', stages)} start at steps: give batch_size, too")
    length: Any = {"batch_size": batch_size, "steps": steps, "tokens": tokens}
    return mixture.in_stages(stages, split=split, by=stage_shares, **length)
