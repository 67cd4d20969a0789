"""Flags from a file (`--config`). Ready ones are those of the pipelines: one file a job."""

import os
from pathlib import Path
from typing import Any, List

from schemas.flag_file import expand, flag_file, kinds_of

CONFIGS = Path(__file__).resolve().parents[2] / "pipelines" / "configs"  # read, never imported
CONFIG = "config.yaml"
_OF_THIS_RUN = ("output", "resume", "stop_after")


def with_config(argv: List[str], command: str, *options: type) -> List[str]:
    """The arguments, with those of the file that --config names put before them.

    Args:
      argv: as typed.
      command: whose part of the file is taken: flax_mlm.
      options: the dataclasses of its flags.

    Raises:
      UsageError: see `schemas.flag_file.expand`.
    """
    if not any(argument.startswith("--config") for argument in argv):
        return argv
    import yaml

    return expand(argv, command, kinds_of(*options), folder=os.fspath(CONFIGS), yaml=yaml)


def config_bytes(command: str, options: Any) -> bytes:
    """The file that repeats a run: all its flags but where it was put and how far it went.

    Args:
      command: such as flax_mlm.
      options: its flags, a dataclass.
    """
    import yaml

    head = f"Again: python -m trainers.{command} --config=THIS_FILE --output=DIR"
    return flag_file(head, options, _OF_THIS_RUN, yaml)
