"""Flags from a file (`--config`), and the file that repeats a run.

Ready ones lie in `pipelines/configs/` and are found by their bare names.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from schemas.commands.flag_file import expand, flag_file, kinds_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

CONFIGS = Path(__file__).parent
CONFIG = "config.yaml"
# Where things are put and how this machine went about it: another run has its own.
_OF_THIS_RUN = ("output", "overwrite", "resume", "dry_run", "preflight", "exchange", "index")


def with_config(
    argv: list[str],
    command: str,
    options: Callable[[], Iterable[type]],
    check_unknown: Callable[[list[str]], object],
) -> list[str]:
    """The arguments, with those of the file that --config names put before them.

    Args:
      argv: as typed.
      command: whose part of the file is taken.
      options: gives the dataclasses of the command's flags; called if there is a file.
      check_unknown: of other flags, raises UsageError for those that nobody knows.

    Raises:
      UsageError: see `schemas.commands.flag_file.expand`.
    """
    if not any(argument.startswith("--config") for argument in argv):
        return argv
    return expand(
        argv,
        command,
        kinds_of(*options()),
        folder=os.fspath(CONFIGS),
        check_unknown=check_unknown,
    )


def config_bytes(command: str, options: "DataclassInstance") -> bytes:
    """The file that repeats a run: all its flags, defaults too, but those of this run alone.

    Args:
      command: such as build_shards.
      options: its flags; a dataclass among the fields stands for flags of its own.
    """
    head = f"Again: python -m pipelines.{command} --config=THIS_FILE --output=DIR"
    return flag_file(head, options, _OF_THIS_RUN)
