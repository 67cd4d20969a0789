"""What an entry says of its trainer, and the flags of its command line. Python 3.8 syntax."""

import re
from typing import Any, Callable, List, NamedTuple, Optional, Type, TypeVar, Union

import tyro

from schemas.memory import want_addresses
from schemas.sidecar import Schema
from trainers.data.batches import BatchReader
from trainers.data.mixture import Mixture, open_shards
from trainers.data.shard_set import ShardSet
from trainers.models.model_flags import PlannedModel
from trainers.run.config_file import with_config
from trainers.run.flags import RunFlags
from trainers.run.program import Plan, Program
from trainers.run.task import Task

Flags = TypeVar("Flags", bound=RunFlags)


class Trainer(NamedTuple):
    """What an entry is made of.

    Attributes:
      plan_model: flags and contract to the model, with published weights where asked for.
      make_task: flags, contract, and the set where there is one, to the task.
      import_program: imports the framework; a plan and its task to the program.
      config: EncoderConfig or DecoderConfig: what a run's config.json holds.
      framework: its name, for people.
      gigabytes: of addresses that it takes at least.
    """

    plan_model: Callable[[Any, Schema], PlannedModel]
    make_task: Callable[[Any, Schema, Optional[BatchReader]], Task]
    import_program: Callable[[Plan, Any], Program]
    config: type
    framework: str
    gigabytes: float

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
