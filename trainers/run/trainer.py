"""What an entry says of its trainer, and its flags: of the command line and of files (--config)."""

import os
import re
from pathlib import Path
from typing import Any, Callable, List, NamedTuple, Optional, Type, TypeVar, Union

import tyro

from schemas.flag_file import expand, flag_file, kinds_of
from schemas.memory import want_addresses
from schemas.sidecar import Schema
from trainers.data.batches import BatchReader
from trainers.data.mixture import Mixture, open_shards
from trainers.data.shard_set import ShardSet
from trainers.models.model_flags import PlannedModel
from trainers.run.flags import RunFlags
from trainers.run.program import Plan, Program, Task

Flags = TypeVar("Flags", bound=RunFlags)


class Trainer(NamedTuple):
    """What an entry is made of; the functions take its flags, or the plan made of them."""

    plan_model: Callable[[Any, Schema], PlannedModel]  # with published weights where asked for
    make_task: Callable[[Any, Schema, Optional[BatchReader]], Task]  # with the set if there is one
    import_program: Callable[[Plan, Any], Program]  # imports the framework
    config: type  # EncoderConfig or DecoderConfig: what a run's config.json holds
    framework: str  # its name, for people
    gigabytes: float  # of addresses that it takes at least

    def make_program(self, plan: Plan, task: Task) -> Program:
        """The program of a plan; refuses where the framework could not be loaded."""
        want_addresses(self.gigabytes, self.framework)
        return self.import_program(plan, task)


def parse_flags(argv: List[str], kind: Type[Flags]) -> Flags:
    """The flags of a command line and of the file that its --config names.

    Raises:
      UsageError: they make no sense.
      SystemExit: after --help, and with 2 where there is no such flag.
    """
    argv = [re.sub("^--architecture(?==|$)", "--family", argument) for argument in argv]
    argv = with_config(argv, kind.entry, kind)
    return tyro.cli(kind, args=argv, prog=f"trainers.{kind.entry}", use_underscores=True)


def open_set(flags: RunFlags, place: str) -> Union[ShardSet, Mixture]:
    """Opens a set, or a mixture, as the flags say."""
    names = ("seed", "verify", "cache_dir", "cache_gigabytes", "follow_links")
    return open_shards(place, **{name: getattr(flags, name) for name in names})


CONFIGS = Path(__file__).resolve().parents[2] / "pipelines" / "configs"  # read, never imported
CONFIG = "config.yaml"


def with_config(argv: List[str], command: str, *options: type) -> List[str]:
    """The arguments, with a command's (flax_mlm's) of the file that --config names before them.

    Raises:
      UsageError: see `schemas.flag_file.expand`.
    """
    if not any(argument.startswith("--config") for argument in argv):
        return argv
    import yaml

    return expand(argv, command, kinds_of(*options), folder=os.fspath(CONFIGS), yaml=yaml)


def config_bytes(command: str, options: Any) -> bytes:
    """The file that repeats a run: all its flags but where it was put and how far it went."""
    import yaml

    head = f"Again: python -m trainers.{command} --config=THIS_FILE --output=DIR"
    return flag_file(head, options, ("output", "resume", "stop_after"), yaml)
