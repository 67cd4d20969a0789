"""The flags of a use of a model: its own, and those of the run's trainer."""

import re
from dataclasses import make_dataclass, replace
from importlib import import_module
from typing import Any, Iterable, List, Mapping, Optional, Tuple

from textmill.schemas.commands.options import Given, fields_of, is_positional, parse_known
from textmill.schemas.commands.terminal import command_name
from textmill.schemas.errors import UsageError, flag
from textmill.trainers.flags.command_line import make_flags, parse_groups, unknown_flag
from textmill.trainers.flags.run_flags import RunFlags
from textmill.trainers.run.checkpoints import ALL
from textmill.trainers.run.trained import Trained
from textmill.trainers.run.trainer import Trainer
from textmill.trainers.use.verbs import EVALUATE, EXPORT_MODEL, TRAINERS, UseFlags, Verb


def without_help(argv: List[str]) -> List[str]:
    """The arguments that name a run and its flags."""
    return [word for word in argv if word != "-h" and not word.startswith("--help")]


def parse_own(argv: List[str], verb: Verb, given: Optional[Mapping[str, Given]] = None) -> UseFlags:
    """The run, checkpoint and trainer, before the run decides which other flags there are.

    Args:
      argv: of the command.
      verb: which it is.
      given: values of Python by name of the flag.

    Raises:
      SystemExit: 0, after the help of a command line without a run.
      UsageError: a flag is wrong, or belongs to no trainer.
    """
    arguments = without_help(argv)
    arguments = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if not arguments or arguments[0].startswith("-"):
        parse_groups(argv or ["--help"], options_of(verb, RunFlags()), verb.page)
        name = command_name(verb.page.module)
        raise UsageError(f"RUN comes first: {name} {verb.page.usage}")

    def check(others: List[str], _: Iterable[str]) -> None:
        kinds = [options_of(verb, import_trainer(name).flags()) for name in TRAINERS]
        names = fields_of(*kinds)
        for word in others:
            name = re.sub("^--(no[-_])?", "", word.partition("=")[0]).replace("-", "_")
            if word.startswith("--") and name not in names:
                raise unknown_flag(word, names, verb.page.module)
            if word.startswith("--") and name not in (given or {}) and is_positional(names[name]):
                raise UsageError(f"{word}: leave --{name}= out, as in {verb.page.usage}")

    own, _ = parse_known(arguments, verb.page, UseFlags, given, check_others=check)
    return own


def trainer_of(trained: Trained, name: Optional[str]) -> Trainer:
    """The trainer of a run; for published weights the one with this name."""
    if trained.settings and name not in (None, trained.trainer):
        raise UsageError(
            f"{trained.directory} holds a run of trainers.{trained.trainer}, not of "
            f"trainers.{name}: leave {flag('trainer')} out"
        )
    name = name or trained.trainer
    if name not in TRAINERS:  # from a foreign config.json
        raise UsageError(
            f"{trained.directory} is a run of an unknown trainer {name!r}: give a run of "
            f"{', '.join(TRAINERS)}"
        )
    return import_trainer(name)


def import_trainer(name: str) -> Trainer:
    """A trainer by the name of its entry."""
    return import_module(f"textmill.trainers.{name}").TRAINER


def parse_all(
    argv: List[str],
    verb: Verb,
    trained: Trained,
    trainer: Trainer,
    given: Optional[Mapping[str, Given]] = None,
) -> Tuple[Any, RunFlags]:
    """All flags: the verb's, and the trainer's, which default to the run's."""
    flags = _flags_of(trained, trainer)
    parsed = parse_groups(argv, options_of(verb, flags), verb.page, given)
    flags = replace(flags, **{name: getattr(parsed, name) for name in verb.groups})
    if parsed.use.checkpoint == ALL and verb is not EVALUATE:
        raise UsageError(f"{flag('checkpoint', ALL)} works with evaluate only: give one checkpoint")
    if flags.compute.exports_program and verb is not EXPORT_MODEL:
        raise UsageError(f"{flag('export_saved_model')} is a flag of export_model: leave it out")
    return parsed.use, flags


def _flags_of(trained: Trained, trainer: Trainer) -> RunFlags:
    """The flags that a run began with, without its exports."""
    names = set(fields_of(trainer.flags)) - {"export", "export_saved_model"}
    values = {name: value for name, value in trained.settings.items() if name in names}
    if values.get("gradient_accumulation_steps"):
        # An evaluation batch has the rows of a microbatch.
        values["batch_size"] //= values.pop("gradient_accumulation_steps")
    return make_flags(trainer.flags, **values)


def options_of(verb: Verb, flags: RunFlags) -> Any:
    """A dataclass of a verb's flags and of a trainer's groups, whose defaults are `flags`."""
    groups = {name: getattr(flags, name) for name in verb.groups}
    fields: List[Any] = [("use", verb.flags)]
    fields += [(name, type(group), group) for name, group in groups.items()]
    return make_dataclass("UseModel", fields, frozen=True)
