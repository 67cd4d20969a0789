"""Question answering: what is measured of answers, and how. Python 3.8 syntax."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Dict, Iterator, List, Literal, Mapping, Optional, Tuple

import numpy as np

from schemas.errors import UsageError
from schemas.features import is_training
from schemas.metadata import Schema
from trainers.data.batches import Batch, BatchReader
from trainers.flags.run_flags import RunFlags, TaskFlags
from trainers.metrics import questions
from trainers.metrics.plots import draw_scores, score_table
from trainers.models.set_tokenizer import TOKENIZER, open_tokenizer, set_file, sets_of
from trainers.run.program import Arrays, Metrics, Task
from trainers.tasks.language_models import CORRECT, COUNTED, LOSS

ANSWER_IDS, ANSWER_LENGTHS = "answer_ids", "answer_lengths"


@dataclass(frozen=True)
class QaFlags(TaskFlags):
    """How answers are scored."""

    rows: ClassVar[str] = "qa"
    same_settings: ClassVar[Tuple[str, ...]] = ("score",)

    best_by: Literal["f1", "exact", "loss", "none"] = "f1"
    """What the best weights, kept besides the newest, are best in on the validation split; loss
    with --no_score."""
    score: bool = True
    """Answer the questions in every evaluation. --no_score measures the loss alone, which is
    quicker."""
    squad_version: Literal["auto", "1.1", "2.0"] = "auto"
    """Of the scores. auto: 2.0 if any question cannot be answered."""


class QaTask(Task):
    """Cross-entropy of the answers' tokens; if `is_scored`, evaluations answer the questions.

    Attributes:
      answers: name of a question to the answer that the last evaluation gave.
    """

    unit, counts = "nats a token of an answer", "weight"

    def __init__(self, flags: RunFlags, schema: Schema, shards: Optional[BatchReader] = None):
        task, split = flags.task, flags.data.validation_split
        assert isinstance(task, QaFlags)
        self.best_by = task.measure
        self.answers: Dict[str, str] = {}
        self._version, self.is_scored = task.squad_version, task.score and shards is not None
        if not task.score:
            self.best_by = self.best_by and "loss"
        self._is_prefix = schema.parameters["qa_form"] == "prefix"
        if shards is None or not self.is_scored:
            return
        if is_training(split):
            raise UsageError(
                f"--validation_split={split}: rows to train on are not answered, "
                "since a set keeps the questions of its other splits only; name one of these, or "
                "give --no_score for the loss alone"
            )
        self._questions = questions.read_questions(sets_of(shards))
        self._tokenizer = open_tokenizer(set_file(shards, TOKENIZER))

    def meaning_of(self, schema: Schema) -> Dict[str, object]:
        """How questions are put."""
        names = ("qa_form", "qa_template", "bos")
        parameters = {name: schema.parameters[name] for name in names}
        return {**parameters, "tokenizer": schema.tokenizer_sha256}

    def export_notes(self) -> List[str]:
        """What transformers cannot do with a model that reads its prompts both ways."""
        note = "transformers' GPT-2 is causal; this one reads its prompts both ways"
        return [note] if self._is_prefix else []

    def measure(self, batches: Iterator[Tuple[Batch, Arrays]]) -> Optional[Metrics]:
        """Loss and accuracy of the answers' tokens; SQuAD's scores, see `squad_scores`."""
        sums = {name: 0.0 for name in (LOSS, CORRECT, COUNTED)}
        asked: List[questions.Question] = []
        self.answers = {}
        for batch, outputs in batches:
            is_real = batch["row_weights"] == 1
            for name in sums:
                sums[name] += float(np.sum(outputs[name][is_real], dtype=np.float64))
            if self.is_scored:
                numbers = questions.example_numbers(batch["example_id"][is_real])
                ids, lengths = outputs[ANSWER_IDS][is_real], outputs[ANSWER_LENGTHS][is_real]
                for number, answer_ids, length in zip(numbers, ids, lengths):
                    question = self._questions[number]
                    asked.append(question)
                    answer = self._tokenizer.decode(answer_ids[:length].tolist())
                    self.answers[question.name] = answer.strip()
        counted = sums[COUNTED] or math.nan  # without answers to learn there is no loss
        metrics = {"loss": sums[LOSS] / counted, "accuracy": sums[CORRECT] / counted}
        if self.is_scored:
            metrics.update(questions.score_answers(asked, self.answers, self._version))
        return metrics

    def describe(self, metrics: Mapping[str, float]) -> str:
        """The metrics in a few words."""
        text = f"loss {metrics['loss']:.4f}"
        if "f1" in metrics:
            text += f", exact match {metrics['exact']:.2f}, F1 {metrics['f1']:.2f}"
            text += f", {metrics['total']:,} questions"
        return text

    def write_files(self, folder: Path) -> None:
        """Writes predictions.json in SQuAD's own format: {id: answer}."""
        if self.is_scored:
            partial = folder / "predictions.json.partial"
            text = json.dumps(self.answers, ensure_ascii=False, indent=0)
            partial.write_text(text, encoding="utf-8")
            partial.replace(folder / "predictions.json")

    def report(self, folder: Path, rows: List[Metrics], title: str) -> List[str]:
        """Draws scores.png; a table of the scores by checkpoint."""
        if not self.is_scored:
            return []
        draw_scores(rows, str(folder / "scores.png"), title)
        return score_table(rows).split("\n")
