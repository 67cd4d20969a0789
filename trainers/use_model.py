"""Entry: evaluates a trained model, exports it, labels texts or continues a text.

    python -m trainers.use_model RUN --evaluate --validation_split=test
    python -m trainers.use_model RUN --export=DIR
    python -m trainers.use_model RUN --predict=FILE.jsonl
    python -m trainers.use_model RUN --generate="Once upon a time" --temperature=0.8
    python -m trainers.use_model RUN --chat="What is 3 plus 4?"

RUN is the directory of a run, one of its checkpoints, or a directory of published weights.
`python -m trainers.use_model RUN --help` also lists the flags of the run's trainer.

RUN/evaluation/DATASET-SPLIT-1a2b3c4d/500/metrics.json  metrics of step 500, beside plots and
    predictions; 1a2b3c4d begins the dataset's fingerprint
RUN/evaluation/DATASET-SPLIT-1a2b3c4d/metrics.jsonl     a line for each checkpoint
"""

import re
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass, make_dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Dict, Iterator, List, Literal, Optional, Tuple, Union, get_args

import numpy as np
import tyro
from typing_extensions import Annotated

from textmill.schemas.commands.entry import run_entry, want_addresses
from textmill.schemas.commands.flag_file import kinds_of
from textmill.schemas.commands.help import Help
from textmill.schemas.commands.terminal import command_name, say
from textmill.schemas.errors import DataError, UsageError, flag
from textmill.trainers.data.mixture import Mixture
from textmill.trainers.data.shard_set import ShardSet
from textmill.trainers.data.shards_value import absolute_shards, shards_name
from textmill.trainers.flags.command_line import make_flags, parse_groups, unknown_flag
from textmill.trainers.flags.run_flags import DataFlags, RunFlags, on_disk, refuse_existing
from textmill.trainers.models.set_tokenizer import TOKENIZER, check_same_tokens, set_file
from textmill.trainers.run.checkpoints import ALL
from textmill.trainers.run.journal import ProgressLine, json_text
from textmill.trainers.run.loop import evaluate
from textmill.trainers.run.program import Metrics, Program, Trainer, TrainingPlan, TrainingTask
from textmill.trainers.run.run_directory import as_data_errors
from textmill.trainers.run.start import export_weights, memory_errors
from textmill.trainers.run.trained import Trained, find_trained
from textmill.trainers.tasks.language_models import GenerationFlags

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


@dataclass(frozen=True)
class UseFlags:
    """Which weights to use, and how."""

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Directory of a run, one of its checkpoints, or a directory of published weights."""
    checkpoint: Optional[str] = None
    """Checkpoint of a run: best, last or the number of a step. --evaluate also takes all. Default:
    best if --best_by kept one, else last."""
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


def main(argv: List[str]) -> None:
    """Finds the model and runs the command line."""
    arguments = [word for word in argv if word != "-h" and not word.startswith("--help")]
    if not arguments or arguments[0].startswith("-"):
        parse_groups(argv or ["--help"], _groups_of(RunFlags(), writes=True), HELP)
        raise UsageError(
            f"RUN comes first: {command_name(HELP.module)} RUN {flag('evaluate', True)}"
        )
    with _opened(argv) as opened:
        use_model(*opened)


def write_texts(argv: List[str]) -> List[str]:
    """The texts that a command line with --generate or --chat prints.

    Raises as `use_model`.
    """
    with _opened(argv) as (_, flags, generation, trained, trainer):
        return _write_texts(flags, generation, trained, trainer)


_Opened = Tuple[UseFlags, RunFlags, GenerationFlags, Trained, Trainer]


@contextmanager
def _opened(argv: List[str]) -> Iterator[_Opened]:
    """The model of a command line and its flags; in the block, errors name the run."""
    arguments = [word for word in argv if word != "-h" and not word.startswith("--help")]
    first, others = tyro.cli(
        UseFlags,
        prog=command_name(HELP.module),
        args=arguments,
        use_underscores=True,
        return_unknown_args=True,
    )
    _refuse_unknown(others)
    with as_data_errors(Path(first.run), "Repair that, then run again"):
        trained = find_trained(first.run, first.checkpoint)
        trainer = trainer_of(trained, first.trainer)
        use, flags, generation = parse_use(argv, trained, trainer)
        with memory_errors(str(trained.directory), flags, "lower it, or give another device"):
            yield use, flags, generation, trained, trainer


def _refuse_unknown(words: List[str]) -> None:
    """Refuses flags that no trainer has, before a run decides which of them are meant."""
    kinds = [_groups_of(_import_trainer(name).flags(), writes=True) for name in TRAINERS]
    names = kinds_of(*kinds)
    for word in words:
        name = re.sub("^--(no[-_])?", "", word.partition("=")[0]).replace("-", "_")
        if word.startswith("--") and name not in names:
            raise unknown_flag(word, names, HELP.module)


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
    return _import_trainer(name)


def _import_trainer(name: str) -> Trainer:
    return import_module(f"textmill.trainers.{name}").TRAINER


def flags_of(trained: Trained, trainer: Trainer) -> RunFlags:
    """The flags that a run began with, without its exports."""
    names = set(kinds_of(trainer.flags)) - {"export", "export_saved_model"}
    values = {name: value for name, value in trained.settings.items() if name in names}
    if values.get("accumulation"):  # an evaluation batch has the rows of a microbatch
        values["batch_size"] //= values.pop("accumulation")
    return make_flags(trainer.flags, **values)


def parse_use(
    argv: List[str], trained: Trained, trainer: Trainer
) -> Tuple[UseFlags, RunFlags, GenerationFlags]:
    """The command line's flags; those of data, compute and task default to the run's."""
    flags = flags_of(trained, trainer)
    kind = _groups_of(flags, writes=trainer.write_texts is not None)
    parsed = parse_groups(argv, kind, HELP)
    flags = replace(flags, **{name: getattr(parsed, name) for name in _OF_TRAINER})
    return parsed.use, flags, getattr(parsed, "generation", GenerationFlags())


_OF_TRAINER = ("data", "compute", "task")


def _groups_of(flags: RunFlags, *, writes: bool) -> Any:
    """A dataclass of UseFlags and of a trainer's groups, whose defaults are these flags."""
    fields: List[Any] = [("use", UseFlags)]
    if writes:
        fields.append(("generation", GenerationFlags, GenerationFlags()))
    groups = {name: getattr(flags, name) for name in _OF_TRAINER}
    fields += [(name, type(group), group) for name, group in groups.items()]
    return make_dataclass("UseModel", fields, frozen=True)


def use_model(
    use: UseFlags,
    flags: RunFlags,
    generation: GenerationFlags,
    trained: Trained,
    trainer: Trainer,
) -> None:
    """Evaluates a trained model, labels texts with it, exports it, continues a text.

    Raises:
      UsageError: the flags request nothing, or the dataset does not fit the model.
      DataError: a file cannot be read or written.
    """
    line, exports = ProgressLine(), flags.compute.exports_program
    writes = generation.generate is not None or generation.chat is not None
    needs_one = use.export or exports or use.predict or writes
    if not (use.evaluate or needs_one):
        raise UsageError(
            f"nothing to do with {use.run}: give {flag('evaluate', True)}, "
            f"{flag('export', 'DIR')}, {flag('predict', 'FILE')}, {flag('generate', 'TEXT')} or "
            f"{flag('chat', 'TEXT')}"
        )
    if use.checkpoint == ALL and needs_one:
        raise UsageError(
            f"{flag('checkpoint', 'all')} works with {flag('evaluate', True)} only: "
            "give one checkpoint"
        )
    for note in trained.notes:
        line.say(f"note: {note}")
    if use.evaluate:
        _evaluate(use, flags, trained, trainer, line)
    if writes:
        for number, text in enumerate(_write_texts(flags, generation, trained, trainer), 1):
            if generation.samples > 1:
                say(f"--- {number} of {generation.samples}")
            say(text)
    if not (use.export or exports or use.predict):
        return
    if trained.schema is None or trained.tokenizer_json is None:
        raise UsageError(f"{trained.directory} is not a run: give the output directory of one")
    plan = TrainingPlan(flags, trained.schema, trained.config, 1, trained.directory)
    task = trainer.make_task(flags, trained.schema, None)
    [(name, read)] = trained.weights
    line.say(f"the weights after step {name}")
    program: Optional[Program] = None
    if use.predict or exports:
        program = trainer.make_program(plan, task)
        program.load(read(), None)
        if use.predict:
            program.compile(trains=False, evaluates=True)
            where: Dict[str, Any] = {"texts": use.predict, "predictions": use.predictions}
            task.predict(program, trained.schema, trained.tokenizer_json, **where)
    export_weights(plan, use.export, task, program, read, trained.tokenizer_json, line)


def _write_texts(
    flags: RunFlags, generation: GenerationFlags, trained: Trained, trainer: Trainer
) -> List[str]:
    assert trainer.write_texts is not None  # else there is no such flag
    want_addresses(trainer.gigabytes, trainer.framework)
    return trainer.write_texts(trained, flags, generation)


def _evaluate(
    use: UseFlags, flags: RunFlags, trained: Trained, trainer: Trainer, line: ProgressLine
) -> None:
    """Evaluates the chosen checkpoints; prints and writes the metrics."""
    name_of_set, split = flags.data.shards, flags.data.validation_split
    if not name_of_set:
        raise UsageError(f"{flag('evaluate', True)}: give the dataset with {flag('shards')}")
    shards = _open_fitting(flags, trained, line)
    task = trainer.make_task(flags, shards.schema, shards)
    if trained.schema is not None:
        task.check_same_rows(name_of_set, shards.schema, trained.schema)
    plan = TrainingPlan(flags, shards.schema, trained.config, 1, trained.directory)
    program = trainer.make_program(plan, task)
    title = f"{split} of {name_of_set}"
    # Many datasets are named "test".
    name_of_rows = f"{shards_name(name_of_set)}-{split}-{shards.fingerprint[:8]}"
    folder = trained.directory / "evaluation" / name_of_rows
    rows: List[Metrics] = []
    for number, (name, read) in enumerate(trained.weights):
        program.load(read(), None)
        if not number:
            line.say(program.description)
            program.compile(trains=False, evaluates=True)
        metrics, speed = _measure(task, program, shards, flags.data, line, name)
        model = f"{trained.directory}, step {name}" if trained.schema else str(trained.directory)
        say(f"{model} on {title}: {task.describe(metrics)}; {speed:,.0f} tokens/s")
        if use.report is not None:
            where = {"checkpoint": model, "shards": shards.name, "split": split}
            report = {**where, **metrics, "tokens_per_second": round(speed, 1)}
            with as_data_errors(flag("report", use.report), "Give another file"):
                with open(use.report, "a", encoding="utf-8") as file:
                    file.write(json_text(report))
        if trained.schema is not None:
            (folder / name).mkdir(parents=True, exist_ok=True)
            task.write_files(folder / name)
            text = json_text(metrics, indent=2)
            (folder / name / "metrics.json").write_text(text, encoding="utf-8")
            rows.append({"step": int(name), **metrics})
    if rows:
        lines = "".join(map(json_text, rows))
        (folder / "metrics.jsonl").write_text(lines, encoding="utf-8")
        for text in task.report(folder, rows, f"{trained.directory} on {title}"):
            say(text)
        say(f"Metrics and plots: {folder}")


def _open_fitting(
    flags: RunFlags, trained: Trained, line: ProgressLine
) -> Union[ShardSet, Mixture]:
    shards, name_of_set = flags.data.open(flags.compute.seed), flags.data.shards
    flags.task.check_rows(shards.schema, name_of_set)
    directory = str(trained.directory)
    trained.config.check_fits(shards.schema, where=f"{directory}: the model", shards=name_of_set)
    for note in check_same_tokens(set_file(shards, TOKENIZER), directory, field=""):
        line.say(f"note: {note}")
    if trained.fingerprint not in (None, shards.fingerprint):
        is_path = absolute_shards(name_of_set) == trained.settings["shards"]
        how = "was built again after the run" if is_path else "is not the dataset of the run"
        line.say(
            f"note: {name_of_set} {how}: its fingerprint is {shards.fingerprint[:8]}, the run's "
            f"{trained.fingerprint[:8]}"
        )
    if not shards.rows(flags.data.validation_split):
        raise shards.no_rows(flags.data.validation_split, field="validation_split")
    return shards


def _measure(
    task: TrainingTask,
    program: Program,
    shards: Union[ShardSet, Mixture],
    data: DataFlags,
    line: ProgressLine,
    name: str,
) -> Tuple[Metrics, float]:
    """Metrics of the validation split, and tokens a second; `name` is that of the weights."""
    tokens, began = 0, time.monotonic()

    def count_tokens(pairs: Any) -> Any:
        nonlocal tokens
        for batch, outputs in pairs:
            tokens += int(np.count_nonzero(batch["segment_ids"]))
            yield batch, outputs

    def show(text: str) -> None:
        line.update(f"checkpoint {name}: {text}")

    with closing(evaluate(program, shards, data, show)) as pairs:
        metrics = task.measure(count_tokens(pairs))
    if metrics is None:
        raise DataError(
            f"{shards.name}: all loss_weights of split {data.validation_split!r} are 0, so there "
            f"is nothing to evaluate: give another {flag('validation_split')}"
        )
    return metrics, tokens / max(time.monotonic() - began, 1e-9)


if __name__ == "__main__":
    run_entry(main)
