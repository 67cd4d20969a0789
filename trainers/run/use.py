"""A trained model in use: measured on a split, asked by its task, exported.

OUTPUT/evaluation/SET-SPLIT-1a2b3c4d/500/measures.json   of the weights after step 500, and what
people look at: pictures, predictions; the last part is of the set's fingerprint
OUTPUT/evaluation/SET-SPLIT-1a2b3c4d/measures.jsonl      a line for each measured checkpoint
"""

import time
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Union

import numpy as np

from schemas.commands.flag_file import CONFIG
from schemas.commands.terminal import say
from schemas.errors import DataError, UsageError
from schemas.sidecar import Schema
from trainers.data.batches import Batch, BatchReader
from trainers.data.flag_values import shards_name
from trainers.data.mixture import Mixture
from trainers.data.shard_set import ShardSet
from trainers.models.hf_files import read_directory, tokenizer_settings, write_directory
from trainers.models.model_config import ModelConfig
from trainers.models.modules import Weights
from trainers.models.set_tokenizer import (
    TOKENIZER,
    check_same_tokens,
    kept_schema,
    kept_tokenizer,
    set_file,
)
from trainers.models.weights import from_published, to_published
from trainers.run.checkpoints import Checkpoints, read_weights
from trainers.run.flags import BEST, RunFlags, check_task, open_set
from trainers.run.journal import ProgressLine, json_text
from trainers.run.loop import evaluate
from trainers.run.model_flags import families_of
from trainers.run.program import Arrays, Measures, Plan, Program, Task, Trainer
from trainers.run.run_directory import CHECKPOINTS, SETTINGS, errors_in_words, read_settings


@dataclass(frozen=True)
class Trained:
    """A model that can be used: a run's, or a published one, of which no set is known.

    Attributes:
      weights: their names for people, and what reads them; several with --checkpoint=all.
    """

    config: ModelConfig
    directory: Path  # a run's, or one of Hugging Face's form
    weights: Tuple[Tuple[str, Callable[[], Weights]], ...]
    schema: Optional[Schema]  # of the rows it was trained on
    tokenizer_json: Optional[bytes]
    prefix_ids: Tuple[int, ...]  # what every document began with in training
    eos_ids: Tuple[int, ...]  # that end a document
    shards: Optional[str] = None  # what it was trained on


def find_trained(flags: Any) -> Trained:
    """What --checkpoint and --output name.

    Raises:
      UsageError: there is no such run, checkpoint or published model.
      DataError: a file is broken.
    """
    path, which = flags.checkpoint_path, flags.checkpoint
    directory = Path(path or flags.output_directory(flags.model))
    with errors_in_words(directory, "Mend that, then ask again"):
        if path is None:
            return _find_run(flags, directory, which)
        if directory.parent.name in (CHECKPOINTS, BEST) and directory.name.isdecimal():
            return _find_run(flags, directory.parent.parent, directory.name)
        is_run = (directory / SETTINGS).is_file() and (directory / CONFIG).is_file()
        if is_run or (directory / CHECKPOINTS).is_dir():
            return _find_run(flags, directory, None)
        if not (directory / SETTINGS).is_file():
            raise UsageError(
                f"--checkpoint={path} is neither the output directory of a run nor one with "
                "config.json and model.safetensors: give one of these"
            )
        return _find_published(flags, directory)


def _find_run(flags: RunFlags, output: Path, which: Optional[str]) -> Trained:
    settings = read_settings(output, flags.entry)
    schema = kept_schema(output)
    # JSON knows lists only.
    model: Dict[str, Any] = {
        n: tuple(v) if isinstance(v, list) else v for n, v in settings["model"].items()
    }
    planned = ModelConfig(**model)
    paths = Checkpoints(output).choose(which)
    eos = schema.special_ids.get("eos")
    return Trained(
        config=planned,
        directory=output,
        weights=tuple((path.name, partial(read_weights, path, planned)) for path in paths),
        schema=schema,
        tokenizer_json=kept_tokenizer(output),
        prefix_ids=tuple(schema.parameters.get("prefix_ids", ())),
        eos_ids=() if eos is None else (eos,),
        shards=settings["config"]["shards"],
    )


def _find_published(flags: Any, directory: Path) -> Trained:
    place = f"--checkpoint={directory}"
    found, tensors = read_directory(
        str(directory), model_types=families_of(flags), flag="--checkpoint"
    )
    model, prefix_ids, eos_ids = ModelConfig.find_published(found, place=place)
    has_tokenizer = (directory / TOKENIZER).is_file()
    return Trained(
        config=model,
        directory=directory,
        weights=(("published", lambda: from_published(tensors, model, seed=0, place=place)[0]),),
        schema=None,
        tokenizer_json=kept_tokenizer(directory) if has_tokenizer else None,
        prefix_ids=prefix_ids,
        eos_ids=eos_ids,
    )


def use(flags: Any, trainer: Trainer) -> None:
    """Does what is asked with a trained model: measures it, asks its task, exports it.

    Raises:
      UsageError: there is no such run or checkpoint, or the set does not go with it.
      DataError: something cannot be read or written.
    """
    trained, line = find_trained(flags), ProgressLine()
    with errors_in_words(trained.directory, "Mend that, then ask again"):
        if flags.evaluate_only:
            _evaluate(flags, trainer, trained, line)
        if not flags.uses_run:
            return
        if trained.schema is None or trained.tokenizer_json is None:
            raise UsageError(f"--checkpoint={trained.directory} is no run: give a run's directory")
        plan = Plan(flags, trained.schema, trained.config, 1, trained.directory)
        task = trainer.make_task(flags, trained.schema, None)
        [(name, read)] = trained.weights
        line.say(f"the weights after step {name}")
        program: Optional[Program] = None
        if task.is_asked or flags.exports_program:
            program = trainer.make_program(plan, task)
            program.load(read(), None)
        if program is not None and task.is_asked:
            program.compile(trains=False, evaluates=True)
            task.answer(program, trained.schema, trained.tokenizer_json)
        export_weights(plan, program, read, trained.tokenizer_json, line)


def _evaluate(flags: Any, trainer: Trainer, trained: Trained, line: ProgressLine) -> None:
    """Measures each checkpoint that is asked for, prints and writes what it finds."""
    place, split = flags.shards or trained.shards, flags.validation_split
    if not place:
        raise UsageError("--evaluate_only: give the set to measure on with --shards")
    shards = _open_fitting(flags, trained, place, line)
    task = trainer.make_task(flags, shards.schema, shards)
    if trained.schema is not None:
        task.check_same_rows(place, shards.schema, trained.schema)
    plan = Plan(flags, shards.schema, trained.config, 1, trained.directory)
    program = trainer.make_program(plan, task)
    title = f"{split} of {place}"
    # Many sets are named "test".
    told = f"{shards_name(place)}-{split}-{shards.fingerprint[:8]}"
    folder = trained.directory / "evaluation" / told
    rows: List[Measures] = []
    seconds = 0.0
    for number, (name, read) in enumerate(trained.weights):
        program.load(read(), None)
        if not number:
            line.say(program.description)
            began = time.perf_counter()
            program.compile(trains=False, evaluates=True)
            seconds = time.perf_counter() - began
        measures, speed = _measure(task, program, shards, split, line)
        said = f"{trained.directory}, step {name}" if trained.schema else str(trained.directory)
        say(f"{said} on {title}: {task.describe(measures)}")
        say(
            f"  ready in {seconds:.1f} s; {speed['tokens_per_second']:,.0f} tokens/s; a batch of "
            f"{program.evaluation_rows} rows takes {speed['batch_median_seconds'] * 1e3:.1f} ms "
            f"(median), {speed['batch_p95_seconds'] * 1e3:.1f} ms (95th percentile)"
        )
        if flags.report is not None:
            where = {"checkpoint": said, "shards": shards.name, "split": split}
            compiling = {"compile_seconds": round(seconds, 3)}
            _append(flags.report, {**where, **measures, **compiling, **speed})
        if trained.schema is not None:
            (folder / name).mkdir(parents=True, exist_ok=True)
            task.write_files(folder / name)
            text = json_text(measures, indent=2)
            (folder / name / "measures.json").write_text(text, encoding="utf-8")
            rows.append({"step": int(name), **measures})
    if rows:
        lines = "".join(map(json_text, rows))
        (folder / "measures.jsonl").write_text(lines, encoding="utf-8")
        for text in task.report(folder, rows, f"{trained.directory} on {title}"):
            say(text)
        say(f"Measures, and what goes with them, lie in {folder}")


def _open_fitting(
    flags: Any, trained: Trained, place: str, line: ProgressLine
) -> Union[ShardSet, Mixture]:
    """The set to measure on, once it goes with the model."""
    shards, at = open_set(flags, place), f"--checkpoint={trained.directory}"
    check_task(flags.task, shards.schema, place)
    trained.config.check_fits(shards.schema, place=f"{at}: the model", shards=place)
    ours = set_file(shards, TOKENIZER)
    for note in check_same_tokens(ours, str(trained.directory), flag="--checkpoint"):
        line.say(f"note: {note}")
    if not shards.rows(flags.validation_split):
        raise shards.no_rows(flags.validation_split)
    return shards


def _measure(
    task: Task, program: Program, shards: BatchReader, split: str, line: ProgressLine
) -> Tuple[Measures, Dict[str, float]]:
    """Measures of a split, and how fast the program ran over it."""
    with closing(evaluate(program, shards, split)) as pairs:
        timed = _Timed(pairs, line, -(-shards.rows(split) // program.evaluation_rows))
        measures = task.measure(iter(timed))
    if measures is None:
        raise DataError(
            f"{shards.name}: no token of split {split!r} counts, its loss_weights are all 0: there "
            "is nothing to measure. Give another --validation_split"
        )
    return measures, timed.report()


class _Timed:
    """Batches and what was found of them, with the time that each took."""

    def __init__(self, pairs: Iterator[Tuple[Batch, Arrays]], line: ProgressLine, batches: int):
        self._pairs, self._line, self._batches = pairs, line, batches
        self._tokens: List[int] = []
        self._marks = [time.perf_counter()]

    def __iter__(self) -> Iterator[Tuple[Batch, Arrays]]:
        for batch, found in self._pairs:
            self._marks.append(time.perf_counter())
            self._tokens.append(int(np.count_nonzero(batch["segment_ids"])))
            self._line.update(f"batch {len(self._tokens)} of {self._batches}")
            yield batch, found

    def report(self) -> Dict[str, float]:
        """How fast it ran; a batch's time is that of all but the first and the last."""
        # The first makes threads and buffers; the last was started together with the one before.
        whole = self._marks[-1] - self._marks[0]
        seconds = np.diff(self._marks)[1:-1]
        if not len(seconds):
            seconds = np.array([whole / len(self._tokens)])
        return {
            "tokens_per_second": round(sum(self._tokens) / whole, 1),
            "batch_median_seconds": round(float(np.median(seconds)), 6),
            "batch_p95_seconds": round(float(np.percentile(seconds, 95)), 6),
            "batches": len(self._tokens),
        }


def _append(path: str, report: Dict[str, Any]) -> None:
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json_text(report))
    except OSError as error:
        raise DataError(f"--report={path} cannot be written: {error}") from error


def export_run(plan: Plan, program: Program, checkpoints: Checkpoints, line: ProgressLine) -> None:
    """Writes what --export and its like ask for at the end of a run, by --checkpoint's weights."""
    if not plan.flags.uses_run:
        return
    [path] = checkpoints.choose(plan.flags.checkpoint)
    line.say(f"exporting the weights after step {path.name}")
    read = partial(read_weights, path, plan.model)
    if plan.flags.exports_program:
        program.load(read(), None)
    export_weights(plan, program, read, kept_tokenizer(plan.output), line)


def export_weights(
    plan: Plan,
    program: Optional[Program],
    read: Callable[[], Weights],
    tokenizer_json: bytes,
    line: ProgressLine,
) -> None:
    """Writes what the flags ask for of the weights that `read` gives.

    The program has them loaded, where it is to write files of its own.

    Raises:
      UsageError: a directory is taken.
      DataError: one cannot be written.
    """
    flags, schema, model = plan.flags, plan.schema, plan.model
    if flags.export is not None:
        ids = schema.special_ids
        write_directory(
            flags.export,
            model.to_json(ids, schema.parameters.get("prefix_ids", ())),
            to_published(read(), model),
            tokenizer_json,
            tokenizer_settings(tokenizer_json, ids, max_length=model.max_positions),
        )
        line.say(f"weights for transformers: {flags.export}")
    if flags.exports_program and program is not None:
        line.say(program.export(schema, tokenizer_json))
