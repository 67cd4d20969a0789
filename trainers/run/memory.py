"""Errors of a device whose memory is too small."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import Iterator

from textmill.schemas.errors import DataError, UsageError, flag
from textmill.trainers.flags.framework_flags import FlaxRunFlags
from textmill.trainers.flags.run_flags import RunFlags

_NO_MEMORY = re.compile("RESOURCE_EXHAUSTED|out of memory|OOM when", re.IGNORECASE)


@contextmanager
def memory_errors(where: str, flags: RunFlags, remedy: str) -> Iterator[None]:
    """Names the batch size and a remedy if a device's memory is too small."""
    try:
        yield
    except (DataError, UsageError):
        raise
    except Exception as error:  # each framework has its own for this
        if not _NO_MEMORY.search(str(error)):
            raise
        batch = flag("batch_size", flags.compute.batch_size)
        raise DataError(f"{where}: the memory is too small for {batch}: {remedy}") from error


def less_memory(flags: RunFlags) -> str:
    """The flags with which a training step needs less."""
    more = f" {flag('remat', True)}," if isinstance(flags, FlaxRunFlags) else ""
    microbatches = 2 * (flags.compute.gradient_accumulation_steps or 1)
    return (
        f"give more microbatches, such as {flag('gradient_accumulation_steps', microbatches)},"
        f"{more} or a smaller model"
    )
