"""Entry: evaluates a trained model, exports it, labels texts or continues a text.

    python -m trainers.use_model RUN --evaluate --validation_split=test
    python -m trainers.use_model RUN --export=DIR
    python -m trainers.use_model RUN --predict=FILE.jsonl
    python -m trainers.use_model RUN --generate="Once upon a time" --temperature=0.8
    python -m trainers.use_model RUN --chat="What is 3 plus 4?"

RUN is the directory of a run, one of its checkpoints, or a directory of published weights.
`python -m trainers.use_model RUN --help` also lists the flags of the run's trainer.
"""

from __future__ import annotations

from textmill.schemas.commands.entry import run_entry
from textmill.schemas.commands.terminal import command_name, say
from textmill.schemas.errors import UsageError, flag
from textmill.trainers.flags.command_line import parse_groups
from textmill.trainers.flags.run_flags import RunFlags
from textmill.trainers.run.journal import ProgressLine
from textmill.trainers.use.evaluate_model import evaluate_model
from textmill.trainers.use.export_model import export_model, export_program
from textmill.trainers.use.label_texts import label_texts, write_predictions
from textmill.trainers.use.open_model import OpenModel, open_model
from textmill.trainers.use.use_flags import HELP, groups_of, without_help
from textmill.trainers.use.write_texts import write_texts, writes


def main(argv: list[str]) -> None:
    """Finds the model and runs the command line."""
    arguments = without_help(argv)
    if not arguments or arguments[0].startswith("-"):
        parse_groups(argv or ["--help"], groups_of(RunFlags(), writes=True), HELP)
        raise UsageError(
            f"RUN comes first: {command_name(HELP.module)} RUN {flag('evaluate', True)}"
        )
    with open_model(argv) as model:
        use_model(model)


def use_model(model: OpenModel) -> None:
    """Does with a model what its flags request.

    Raises:
      UsageError: the flags request nothing, or the dataset does not fit the model.
      DataError: a file cannot be read or written.
    """
    use, line, exports = model.use, ProgressLine(), model.flags.compute.exports_program
    takes_weights = use.export or exports or use.predict
    if not (use.evaluate or writes(model) or takes_weights):
        raise UsageError(
            f"nothing to do with {use.run}: give {flag('evaluate', True)}, "
            f"{flag('export', 'DIR')}, {flag('predict', 'FILE')}, {flag('generate', 'TEXT')} or "
            f"{flag('chat', 'TEXT')}"
        )
    if writes(model) or takes_weights:
        model.weights()  # one checkpoint
    for note in model.trained.notes:
        line.say(f"note: {note}")
    if use.evaluate:
        evaluate_model(model, line, say)
    if writes(model):
        for number, text in enumerate(write_texts(model), 1):
            if model.generation.samples > 1:
                say(f"--- {number} of {model.generation.samples}")
            say(text)
    if takes_weights:
        model.of_run()  # not published ones
        line.say(f"the weights after step {model.weights()[0]}")
    if use.predict:
        write_predictions(label_texts(model, use.predict), use.predictions)
    if use.export:
        export_model(model, use.export, line.say)
    if exports:
        export_program(model, line.say)


if __name__ == "__main__":
    run_entry(main)
