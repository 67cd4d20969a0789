"""A run's classifier in use: texts of a file in, a line of label and probability out."""

from typing import Iterator

import numpy as np

from schemas.errors import UsageError
from trainers.models.encoder import EncoderConfig
from trainers.models.set_tokenizer import kept_schema, kept_tokenizer, open_tokenizer
from trainers.on_poptorch.checkpoints import Checkpoints
from trainers.on_poptorch.config import Plan, TrainConfig
from trainers.on_poptorch.devices import runner_for
from trainers.on_poptorch.runner import Runner
from trainers.run.journal import ProgressLine
from trainers.run.run_directory import read_settings
from trainers.tasks.class_predictions import write_predictions
from trainers.tasks.class_texts import TextRows, read_texts


def predict(config: TrainConfig, path: str) -> None:
    """Classifies the texts of `path` with the run in --output.

    Its best weights are used, or the newest where nothing was evaluated.

    Raises:
      UsageError: there is no such run.
      DataError: a file cannot be read or written; names it.
    """
    output, line = config.output_directory(config.model), ProgressLine()
    settings, schema = read_settings(output, config.entry), kept_schema(output)
    classes = tuple(schema.parameters["classes"])
    try:
        model = EncoderConfig(**{**settings["model"], "classes": classes})
    except (KeyError, TypeError) as error:
        raise UsageError(f"--output={output} holds a run of another trainer") from error
    checkpoints = Checkpoints(output, config.keep_checkpoints)
    state = checkpoints.best()
    if state is None and checkpoints.latest is None:
        raise UsageError(f"--output={output} has no checkpoint yet: let the run reach its first")
    state = state or checkpoints.restore(checkpoints.latest or 0)
    runner, _, _ = runner_for(Plan(config, schema, model, steps=1, output=output))
    runner.model.load_state_dict(state["model"])
    line.say(f"the weights after step {state['step']}, on {runner.placement.description}")
    runner.compile(schema, trains=False, evaluates=True)
    maker = TextRows(schema, open_tokenizer(kept_tokenizer(output)))
    write_predictions(_logits(runner, maker, path), classes, config.predictions)


def _logits(runner: Runner, maker: TextRows, path: str) -> Iterator[np.ndarray]:
    for rows in maker.batches(read_texts(path, maker.schema), runner.evaluation_rows):
        yield runner.evaluate(runner.place(rows)).numpy()[rows["row_weights"] == 1]
