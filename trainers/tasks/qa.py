"""Question answering: what is measured of answers, and how. Python 3.8 syntax."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Dict, Iterator, List, Literal, Mapping, Optional, Tuple

import numpy as np

from schemas.errors import UsageError
from schemas.features import is_training
from schemas.sidecar import Schema
from trainers.data.batches import Batch, BatchReader
from trainers.measures import questions
from trainers.measures.pictures import draw_scores, score_table
from trainers.models.set_tokenizer import TOKENIZER, open_tokenizer, set_file, sets_of
from trainers.run.flags import RunFlags
from trainers.run.program import Arrays, Measures, Task
from trainers.tasks.language import CORRECT, COUNTED, LOSS

ANSWER_IDS, ANSWER_LENGTHS = "answer_ids", "answer_lengths"
# What rows must have in common for a model trained on one set to be asked the questions of another.
_SAME_PARAMETERS = ("qa_form", "qa_template", "bos")


@dataclass(frozen=True)
class QaFlags(RunFlags):
    """How answers are scored, and what is asked of a SavedModel."""

    task: ClassVar[str] = "qa"
    same_settings: ClassVar[Tuple[str, ...]] = (*RunFlags.same_settings, "score")

    best_by: Literal["f1", "exact", "loss", "none"] = "f1"
    """What the best weights, kept besides the newest, are best in on the validation split; loss
    with --no_score."""
    score: bool = True
    """Answer the questions in every evaluation. --no_score measures the loss alone, which is
    quicker."""
    squad_version: Literal["auto", "1.1", "2.0"] = "auto"
    """Of the scores. auto: 2.0 if any question cannot be answered."""
    saved_model: Optional[str] = None
    """What --export_saved_model wrote, to ask it."""
    ask: Optional[str] = None
    """Do not train: a question for --saved_model, about --context."""
    context: Optional[str] = None
    """The text in which the answer stands."""

    def __post_init__(self) -> None:
        """Refuses values that cannot be meant."""
        asked = (self.ask, self.context, self.saved_model)
        if None in asked and asked != (None, None, None):
            raise UsageError(
                "a question takes --ask=QUESTION, --context=TEXT and --saved_model=DIR, which "
                "--export_saved_model wrote: give all three"
            )
        super().__post_init__()

    def _check_use(self) -> None:
        if self.ask is None:
            super()._check_use()


class QaTask(Task):
    """Cross-entropy of the answers' tokens; if `is_scored`, evaluations answer the questions.

    Attributes:
      answers: name of a question to the answer that the last evaluation gave.
    """

    unit, counts = "nats a token of an answer", "weight"

    def __init__(self, flags: QaFlags, schema: Schema, shards: Optional[BatchReader] = None):
        """Reads the questions of the set, where answers are scored."""
        self.best_by = None if flags.best_by == "none" else flags.best_by
        self.answers: Dict[str, str] = {}
        self._version, self.is_scored = flags.squad_version, flags.score and shards is not None
        if not flags.score:
            self.best_by = self.best_by and "loss"
        is_prefix = schema.parameters["qa_form"] == "prefix"
        self._is_other_outside = flags.export is not None and is_prefix
        if shards is None or not self.is_scored:
            return
        if is_training(flags.validation_split):
            raise UsageError(
                f"--validation_split={flags.validation_split}: rows to train on are not answered, "
                "since a set keeps the questions of its other splits only; name one of these, or "
                "give --no_score for the loss alone"
            )
        self._questions = questions.read_questions(sets_of(shards))
        tokenizer = open_tokenizer(set_file(shards, TOKENIZER))
        self._prompts = questions.PromptMaker(schema, tokenizer)

    def check_same_rows(self, place: str, schema: Schema, trained: Schema) -> None:
        """Questions are put in the same way; raises as `Task.check_same_rows`."""
        differing = [
            f"{name} is {schema.parameters[name]!r} and was {trained.parameters[name]!r}"
            for name in _SAME_PARAMETERS
            if schema.parameters[name] != trained.parameters[name]
        ]
        if schema.tokenizer_sha256 != trained.tokenizer_sha256:
            differing.append("the tokenizer is another")
        if differing:
            raise UsageError(
                f"{place}: its questions are not put as those the run was trained on: "
                f"{'; '.join(differing)}. Build the set with the tokenizer and flags of the other"
            )

    def notes(self) -> List[str]:
        """What --export leaves out."""
        if not self._is_other_outside:
            return []
        return ["transformers' GPT-2 is causal; this one reads its prompts both ways"]

    def measure(self, found: Iterator[Tuple[Batch, Arrays]]) -> Optional[Measures]:
        """Loss and accuracy of the answers' tokens; SQuAD's scores, see `squad_scores`."""
        sums = {name: 0.0 for name in (LOSS, CORRECT, COUNTED)}
        asked: List[questions.Question] = []
        self.answers = {}
        for batch, outputs in found:
            is_real = batch["row_weights"] == 1
            for name in sums:
                sums[name] += float(np.sum(outputs[name][is_real], dtype=np.float64))
            if self.is_scored:
                numbers = questions.example_numbers(batch["example_id"][is_real])
                ids, lengths = outputs[ANSWER_IDS][is_real], outputs[ANSWER_LENGTHS][is_real]
                for number, answer_ids, length in zip(numbers, ids, lengths):
                    question = self._questions[number]
                    asked.append(question)
                    self.answers[question.name] = self._prompts.text(answer_ids[:length].tolist())
        counted = sums[COUNTED] or math.nan  # without answers to learn there is no loss
        measures = {"loss": sums[LOSS] / counted, "accuracy": sums[CORRECT] / counted}
        if self.is_scored:
            measures.update(questions.score_answers(asked, self.answers, self._version))
        return measures

    def describe(self, measures: Mapping[str, float]) -> str:
        """The measures in a few words."""
        said = f"loss {measures['loss']:.4f}"
        if "f1" in measures:
            said += f", exact match {measures['exact']:.2f}, F1 {measures['f1']:.2f}"
            said += f", {measures['total']:,} questions"
        return said

    def write_files(self, folder: Path) -> None:
        """Writes predictions.json in SQuAD's own format: {id: answer}."""
        if self.is_scored:
            partial = folder / "predictions.json.partial"
            text = json.dumps(self.answers, ensure_ascii=False, indent=0)
            partial.write_text(text, encoding="utf-8")
            partial.replace(folder / "predictions.json")

    def report(self, folder: Path, rows: List[Measures], title: str) -> List[str]:
        """Draws scores.png; a table of the scores by checkpoint."""
        if not self.is_scored:
            return []
        draw_scores(rows, str(folder / "scores.png"), title)
        return score_table(rows).split("\n")
