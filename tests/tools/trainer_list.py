"""The five trainers, each with a small set of its task and its smallest model.

for trainer in TRAINERS:
    trainer.write_set(folder / "set")
    trainer.main([f"--shards={folder}/set", f"--output={folder}/run", *trainer.small])
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tests.tools.class_factory import write_class_set
from tests.tools.clm_factory import write_clm_set
from tests.tools.shard_factory import tokenizer_json, write_mlm_set

# The smallest model that has everything; of TensorFlow without XLA, which compiles for seconds.
SMALL = (
    "--layers=1",
    "--hidden_size=16",
    "--heads=2",
    "--intermediate_size=32",
    "--batch_size=4",
)


@dataclass(frozen=True)
class ListedTrainer:
    """A trainer as tests start it.

    Attributes:
      name: of its entry.
      write_set: writes a set of its task to a directory that is not there; numbers of rows (of
        questions, for tf_qa) by `train` and `validation`, and `vocab_size` and `max_length`.
      device: flags that keep it on the CPU, in training and in use.
      evaluation_files: what people look at, written by each evaluation.
      predicts: whether `predict` takes its models.
      exports: flags besides --export that write a directory.
    """

    name: str
    write_set: Callable[..., object]
    device: tuple[str, ...] = ()
    evaluation_files: tuple[str, ...] = ()
    predicts: bool = False
    exports: tuple[str, ...] = ()

    @property
    def small(self) -> tuple[str, ...]:
        """Flags of the smallest model."""
        return (*SMALL, *self.device)

    @property
    def main(self) -> Callable[[list[str]], None]:
        """Its entry; imported here, since each brings a framework."""
        return import_module(f"trainers.{self.name}").main


def write_question_set(
    directory: Path,
    *,
    train: int = 24,
    validation: int = 10,
    words: int = 2,
    vocab_size: int = 70,
    max_length: int = 24,
) -> None:
    """Questions whose answer is the last of some random words; `words` of them in each."""
    # Beam, which nobody else needs
    from tests.tools.question_factory import Question, write_qa_set
    from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
    from textmill.pipelines.tasks.qa import Qa
    from textmill.pipelines.tasks.questions import QuestionTemplate

    random = np.random.default_rng(0)

    def question(number: int) -> Question:
        context = [f"w{word}" for word in random.integers(10, vocab_size, words)]
        place = len(" ".join(context[:-1])) + 1
        name = f"{directory.name} {number}"
        return f"w{10 + number % 50}", " ".join(context), [(context[-1], place)], name

    asked = [question(number) for number in range(train + validation)]
    task = Qa(
        qa_template=QuestionTemplate("w5 {question} w6 {context} w7 {answer}"),
        qa_form="prefix",
        max_question_length=3,
        max_answer_length=4,
    )
    splits = {"train": asked[:train], "validation": asked[train:]}
    tokenizer: Any = LoadedTokenizer(tokenizer_json(vocab_size))
    write_qa_set(directory, splits, task, tokenizer, max_length)


_PICTURES = ("confusion.png", "reliability.png")
_TENSORFLOW = ("--device=cpu", "--no_jit_compile")
_SAVED_MODEL = ("--export_saved_model",)
TRAINERS = (
    ListedTrainer("flax_mlm", write_mlm_set),
    ListedTrainer("flax_clm", write_clm_set),
    ListedTrainer(
        "tf_classifier", write_class_set, _TENSORFLOW, _PICTURES, True, exports=_SAVED_MODEL
    ),
    ListedTrainer(
        "tf_qa", write_question_set, _TENSORFLOW, ("predictions.json",), exports=_SAVED_MODEL
    ),
    ListedTrainer("poptorch_classifier", write_class_set, ("--device=cpu",), _PICTURES, True),
)
BY_NAME = {trainer.name: trainer for trainer in TRAINERS}
