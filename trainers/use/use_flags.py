"""The flags of use_model: its own, those of generation, and those of the run's trainer."""

import re
from dataclasses import dataclass, make_dataclass, replace
from importlib import import_module
from typing import Any, Iterable, List, Literal, Mapping, Optional, Tuple, get_args

import tyro
from typing_extensions import Annotated

from textmill.schemas.commands.help import Help
from textmill.schemas.commands.options import Given, fields_of, parse_known
from textmill.schemas.errors import UsageError, flag
from textmill.trainers.flags.command_line import make_flags, parse_groups, unknown_flag
from textmill.trainers.flags.run_flags import RunFlags, on_disk, refuse_existing
from textmill.trainers.flags.task_flags import GenerationFlags
from textmill.trainers.run.trained import Trained
from textmill.trainers.run.trainer import Trainer

HELP = Help(
    module="trainers.use_model",
    about="Evaluates a trained model, exports it, labels texts with it or continues a text.",
    usage="RUN",
    example="run --evaluate --validation_split=test",
    page="docs/trainers.md",
    common="checkpoint evaluate export predict predictions generate chat temperature shards "
    "validation_split batch_size",
)
TrainerName = Literal["flax_mlm", "flax_clm", "tf_classifier", "tf_qa", "poptorch_classifier"]
TRAINERS = get_args(TrainerName)
_OF_TRAINER = ("data", "compute", "task")  # groups of flags


@dataclass(frozen=True)
class UseFlags:
    """Which weights to use, and how."""

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Directory of a run, one of its checkpoints, or a directory of published weights."""
    checkpoint: Optional[str] = None
    """Checkpoint of a run: best, last or the number of a step. --evaluate also takes all. Default:
    best if --best_metric kept one, else last."""
    evaluate: bool = False
    """Evaluate the weights on --validation_split of --shards. Plots and predictions go to
    RUN/evaluation."""
    report: Optional[str] = None
    """File to which --evaluate appends the metrics as a line of JSON."""
    export: Optional[str] = None
    """Write the weights as a directory for transformers."""
    predict: Optional[str] = None
    """Classify the texts of this file, JSON Lines if it ends in .jsonl, else plain lines. Each text
    gives a line "label, tab, probability"."""
    predictions: Optional[str] = None
    """Output file of --predict. Default: standard output."""
    trainer: Optional[TrainerName] = None
    """Trainer that runs published weights. Default: one for their architecture."""

    def __post_init__(self) -> None:
        """Refuses flags that do not go together."""
        if self.report is not None and not self.evaluate:
            raise UsageError(f"{flag('report', self.report)} needs {flag('evaluate', True)}")
        if self.predictions is not None and self.predict is None:
            raise UsageError(
                f"{flag('predictions', self.predictions)} needs {flag('predict', 'FILE')}"
            )
        on_disk(self, "export")
        if self.export is not None:
            refuse_existing(self.export)


def without_help(argv: List[str]) -> List[str]:
    """The arguments that name a run and its flags."""
    return [word for word in argv if word != "-h" and not word.startswith("--help")]


def parse_own(argv: List[str], given: Optional[Mapping[str, Given]] = None) -> UseFlags:
    """The flags of use_model itself, before a run decides which others there are.

    Args:
      argv: of the command.
      given: values of Python by name of the flag.

    Raises:
      UsageError: a flag is wrong, or belongs to no trainer.
    """

    def check(others: List[str], _: Iterable[str]) -> None:
        kinds = [groups_of(import_trainer(name).flags(), writes=True) for name in TRAINERS]
        names = fields_of(*kinds)
        for word in others:
            name = re.sub("^--(no[-_])?", "", word.partition("=")[0]).replace("-", "_")
            if word.startswith("--") and name not in names:
                raise unknown_flag(word, names, HELP.module)

    own, _ = parse_known(without_help(argv), HELP, UseFlags, given, check_others=check)
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
    trained: Trained,
    trainer: Trainer,
    given: Optional[Mapping[str, Given]] = None,
) -> Tuple[UseFlags, RunFlags, GenerationFlags]:
    """All flags; those of data, compute and task default to the run's."""
    flags = _flags_of(trained, trainer)
    kind = groups_of(flags, writes=trainer.continue_text is not None)
    parsed = parse_groups(argv, kind, HELP, given)
    flags = replace(flags, **{name: getattr(parsed, name) for name in _OF_TRAINER})
    return parsed.use, flags, getattr(parsed, "generation", GenerationFlags())


def _flags_of(trained: Trained, trainer: Trainer) -> RunFlags:
    """The flags that a run began with, without its exports."""
    names = set(fields_of(trainer.flags)) - {"export", "export_saved_model"}
    values = {name: value for name, value in trained.settings.items() if name in names}
    if values.get(
        "gradient_accumulation_steps"
    ):  # an evaluation batch has the rows of a microbatch
        values["batch_size"] //= values.pop("gradient_accumulation_steps")
    return make_flags(trainer.flags, **values)


def groups_of(flags: RunFlags, *, writes: bool) -> Any:
    """A dataclass of UseFlags and of a trainer's groups, whose defaults are these flags."""
    fields: List[Any] = [("use", UseFlags)]
    if writes:
        fields.append(("generation", GenerationFlags, GenerationFlags()))
    groups = {name: getattr(flags, name) for name in _OF_TRAINER}
    fields += [(name, type(group), group) for name, group in groups.items()]
    return make_dataclass("UseModel", fields, frozen=True)
