"""The uses of a trained model, and the flags of each: its own, and groups of the trainer's."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, Optional, Tuple, Type, get_args

import tyro
from typing_extensions import Annotated

from textmill.schemas.commands.help import Help
from textmill.schemas.commands.terminal import command_name
from textmill.schemas.errors import UsageError
from textmill.trainers.flags.run_flags import on_disk, refuse_existing
from textmill.trainers.flags.task_flags import GenerationFlags

TrainerName = Literal["flax_mlm", "flax_clm", "tf_classifier", "tf_qa", "poptorch_classifier"]
TRAINERS = get_args(TrainerName)


@dataclass(frozen=True)
class UseFlags:
    """Which weights to use, and how."""

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Directory of a run, one of its checkpoints, or a directory of published weights."""
    checkpoint: Optional[str] = None
    """Checkpoint of a run: best, last or the number of a step. Default: best if --best_metric kept
    one, else last."""
    trainer: Optional[TrainerName] = None
    """Trainer that runs published weights. Default: one for their architecture."""


@dataclass(frozen=True)
class EvaluateFlags(UseFlags):
    """Which weights to evaluate."""

    checkpoint: Optional[str] = None
    """Checkpoint of a run: best, last, the number of a step, or all. Default: best if --best_metric
    kept one, else last."""
    report: Optional[str] = None
    """File to which the metrics are appended as a line of JSON."""


@dataclass(frozen=True)
class GenerateFlags(UseFlags):
    """Which weights continue which text."""

    text: Annotated[Optional[str], tyro.conf.Positional, tyro.conf.arg(metavar="TEXT")] = None
    """Text to continue. An empty one begins with the start token of the model alone."""
    generation: GenerationFlags = GenerationFlags()

    def __post_init__(self) -> None:
        """Refuses no text."""
        if self.text is None:
            raise missing_text(GENERATE)


@dataclass(frozen=True)
class ChatFlags(UseFlags):
    """Which weights answer which message."""

    message: Annotated[Optional[str], tyro.conf.Positional, tyro.conf.arg(metavar="MESSAGE")] = None
    """Message of a user to answer, in the chat template of the training dataset, or of exported or
    published weights. Default: a conversation, each line of standard input a message."""
    generation: GenerationFlags = GenerationFlags()


@dataclass(frozen=True)
class PredictFlags(UseFlags):
    """Which weights label which texts."""

    input: Annotated[Optional[str], tyro.conf.arg(metavar="FILE")] = None
    """File of texts, JSON Lines if it ends in .jsonl, else plain lines. Each text gives a line
    "label, tab, probability"."""
    output: Annotated[Optional[str], tyro.conf.arg(metavar="FILE")] = None
    """File for the lines. Default: standard output."""


@dataclass(frozen=True)
class ExportFlags(UseFlags):
    """Which weights to export."""

    output: Optional[str] = None
    """Directory for transformers to write; it must not exist yet."""

    def __post_init__(self) -> None:
        """Refuses a directory that exists."""
        on_disk(self, "output")
        if self.output is not None:
            refuse_existing(self.output, field="output")


class Verb(NamedTuple):
    """A use of a trained model.

    Attributes:
      page: the help of its command, without flags.
      flags: its own flags.
      groups: of the trainer's flags, those that it takes, too; they default to the run's.
    """

    page: Help
    flags: Type[UseFlags]
    groups: Tuple[str, ...]


def missing_text(verb: Verb) -> UsageError:
    """The error for a command without its text."""
    *_, word = verb.page.usage.split()
    name = command_name(verb.page.module)
    return UsageError(f"{name} needs {word.strip('[]')} in quotes: {name} {verb.page.example}")


_OF_GENERATION = "checkpoint max_new_tokens temperature top_k top_p samples seed precision"

EVALUATE = Verb(
    Help(
        module="trainers.evaluate",
        about="Measures a trained model on a split of a dataset. Plots and predictions go to "
        "RUN/evaluation.",
        usage="RUN",
        example="run --validation_split=test",
        page="docs/trainers.md",
        common="checkpoint report shards validation_split batch_size",
    ),
    EvaluateFlags,
    ("data", "compute", "task"),
)
GENERATE = Verb(
    Help(
        module="trainers.generate",
        about="Continues a text with a trained decoder.",
        usage="RUN TEXT",
        example="run 'Once upon a time' --temperature=0.8",
        page="docs/flax_clm.md",
        common=_OF_GENERATION,
    ),
    GenerateFlags,
    ("compute",),
)
CHAT = Verb(
    Help(
        module="trainers.chat",
        about="Answers a message, or holds a conversation, with a model that was trained on "
        "conversations.",
        usage="RUN [MESSAGE]",
        example="run 'What is 3 plus 4?'",
        page="docs/chat.md",
        common=f"message {_OF_GENERATION}",
    ),
    ChatFlags,
    ("compute",),
)
PREDICT = Verb(
    Help(
        module="trainers.predict",
        about="Labels texts with a trained classifier.",
        usage="RUN --input=FILE",
        example="run --input=reviews.txt",
        page="docs/tf_classifier.md",
        common="output checkpoint batch_size",
    ),
    PredictFlags,
    ("compute",),
)
EXPORT_MODEL = Verb(
    Help(
        module="trainers.export_model",
        about="Exports a trained model: for transformers, or as a SavedModel of TensorFlow "
        "(--export_saved_model=DIR, for runs of TensorFlow).",
        usage="RUN",
        example="run --output=published --checkpoint=last",
        page="docs/trainers.md",
        common="output checkpoint export_saved_model",
    ),
    ExportFlags,
    ("compute",),
)
VERBS = {
    verb.page.module.rpartition(".")[2]: verb
    for verb in (EVALUATE, GENERATE, CHAT, PREDICT, EXPORT_MODEL)
}
"""By the name of the module of its command."""
