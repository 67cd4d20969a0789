"""Checks of single flags, by whoever has them. Python 3.8 syntax."""

from schemas.errors import UsageError
from schemas.store import is_url


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
