"""What `--shards` says, one set or several with weights, and checks of single flags."""

import os
import re
from typing import Dict, Optional

from schemas.errors import UsageError
from schemas.stores.store import is_url

# A directory, then the weight after its last colon, up to a comma or the end.
_WEIGHTED = re.compile(r"(?P<path>.+?):(?P<weight>[0-9.]+(?:e[-+]?[0-9]+)?)(?:,|$)")


def parse_shards(text: str) -> Dict[str, Optional[float]]:
    """What `--shards` means: directory to weight, or one directory without a weight.

    "books:0.7,web:0.3" -> {"books": 0.7, "web": 0.3}; "gs:data" -> {"gs:data": None}. The weight
    stands after a directory's last colon, and a text that is a directory as a whole is one.

    Raises:
      UsageError: a directory has no weight, or comes twice.
    """
    if os.path.isdir(text) or not (_WEIGHTED.match(text) or "," in text):
        return {text: None}
    weights: Dict[str, Optional[float]] = {}
    place = 0
    while place < len(text):
        found = _WEIGHTED.match(text, place)
        if found is None:
            raise UsageError(
                f"--shards={text}: {text[place:]!r} has no weight; give one directory, or "
                "each with its weight, as in --shards=DIR:0.7,DIR:0.3"
            )
        path = found["path"]
        if path in weights:
            raise UsageError(f"--shards={text}: {path} comes twice; give it once, with one weight")
        try:
            weights[path] = float(found["weight"])
        except ValueError:
            raise UsageError(
                f"--shards={text}: {found['weight']!r} is no number; give a weight such as 0.7"
            ) from None
        place = found.end()
    return weights


def absolute_shards(text: str) -> str:
    """The same with absolute paths: "a:1,gs://b/c:2" -> "/data/a:1.0,gs://b/c:2.0"."""
    weights = parse_shards(text)
    paths = [path if is_url(path) else os.path.abspath(path) for path in weights]
    if None in weights.values():
        return paths[0]
    return ",".join(f"{path}:{weight}" for path, weight in zip(paths, weights.values()))


def shards_name(text: str) -> str:
    """A short name for what `--shards` names: "data/books:0.7,data/web:0.3" -> "books+web"."""
    return "+".join(os.path.basename(os.path.realpath(path)) for path in parse_shards(text))


def at_least(config: object, name: str, least: int) -> None:
    """Refuses a flag below `least`, or that is no number; None passes."""
    value = getattr(config, name)
    if value is not None and not value >= least:
        raise UsageError(f"--{name}={value}: must be at least {least}")


def above_0(config: object, name: str) -> None:
    """Refuses a flag that is no finite number above 0."""
    value = getattr(config, name)
    if not 0 < value < float("inf"):
        raise UsageError(f"--{name}={value}: must be above 0")


def share(config: object, name: str) -> None:
    """Refuses a flag that is no share from 0 to below 1; None passes."""
    value = getattr(config, name)
    if value is not None and not 0 <= value < 1:
        raise UsageError(f"--{name}={value}: a share from 0 to below 1")


def on_disk(config: object, name: str) -> None:
    """Refuses a URL where a directory is meant; None passes."""
    value = getattr(config, name)
    if value is not None and is_url(value):
        raise UsageError(
            f"--{name}={value}: give a directory on this machine; only --shards may be on a store"
        )
