"""Question answering: metrics of a split, and its predictions. Python 3.8 syntax."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Iterator, Mapping, Sequence

import numpy as np

from textmill.schemas.errors import DataError, UsageError, flag
from textmill.schemas.format.features import is_training
from textmill.schemas.format.metadata import Schema
from textmill.trainers.data.batches import Batch, BatchReader
from textmill.trainers.flags.run_flags import RunFlags
from textmill.trainers.flags.task_flags import QaFlags
from textmill.trainers.metrics.plots import draw_scores, score_table
from textmill.trainers.metrics.squad_scores import squad_scores
from textmill.trainers.models.set_tokenizer import TOKENIZER, open_tokenizer, set_file, sets_of
from textmill.trainers.run.tensors import Arrays
from textmill.trainers.run.training_task import Metrics, TrainingTask
from textmill.trainers.tasks.language_models import CORRECT, COUNTED, LOSS
from textmill.trainers.tasks.questions import Question, example_numbers, read_questions

ANSWER_IDS, ANSWER_LENGTHS = "answer_ids", "answer_lengths"


class QaTask(TrainingTask):
    """Cross-entropy of the answers' tokens; evaluations generate answers if `is_scored`.

    Attributes:
      answers: names of questions to the answers of the last evaluation.
    """

    unit, counts = "nats a token of an answer", "weight"

    def __init__(self, flags: RunFlags, schema: Schema, shards: BatchReader | None = None):
        task, split = flags.task, flags.data.validation_split
        assert isinstance(task, QaFlags)
        self.best_metric = task.measure
        self.answers: dict[str, str] = {}
        self._version, self.is_scored = task.squad_version, task.score and shards is not None
        if not task.score:
            self.best_metric = self.best_metric and "loss"
        self._is_prefix = schema.parameters["qa_form"] == "prefix"
        if shards is None or not self.is_scored:
            return
        if is_training(split):
            raise UsageError(
                f"{flag('validation_split', split)}: a dataset keeps the questions of its "
                f"evaluation splits only; name one of these, or give {flag('score', False)} for "
                "the loss only"
            )
        self._questions = read_questions(sets_of(shards))
        self._tokenizer = open_tokenizer(set_file(shards, TOKENIZER))

    def meaning_of(self, schema: Schema) -> dict[str, object]:
        """The form of questions, and the tokenizer."""
        names = ("qa_form", "qa_template", "bos")
        parameters = {name: schema.parameters[name] for name in names}
        return {**parameters, "tokenizer": schema.tokenizer_sha256}

    def export_notes(self) -> list[str]:
        """A note if the model's attention is bidirectional on the prompt."""
        note = "GPT-2 in transformers is causal; this model's attention on prompts is bidirectional"
        return [note] if self._is_prefix else []

    def measure(self, batches: Iterator[tuple[Batch, Arrays]]) -> Metrics | None:
        """Loss and accuracy of the answers' tokens; SQuAD's scores, see `squad_scores`."""
        sums = {name: 0.0 for name in (LOSS, CORRECT, COUNTED)}
        to_score: list[Question] = []
        self.answers = {}
        for batch, outputs in batches:
            is_real = batch["row_weights"] == 1
            for name in sums:
                sums[name] += float(np.sum(outputs[name][is_real], dtype=np.float64))
            if self.is_scored:
                numbers = example_numbers(batch["example_id"][is_real])
                ids, lengths = outputs[ANSWER_IDS][is_real], outputs[ANSWER_LENGTHS][is_real]
                for number, answer_ids, length in zip(numbers, ids, lengths):
                    if number not in self._questions:
                        raise DataError(
                            f"evaluation.jsonl has no line with the example_id {number:016x} of a "
                            "row: copy or build the dataset again"
                        )
                    question = self._questions[number]
                    to_score.append(question)
                    answer = self._tokenizer.decode(answer_ids[:length].tolist())
                    self.answers[question.name] = answer.strip()
        counted = sums[COUNTED] or math.nan  # no answers, no loss
        metrics = {"loss": sums[LOSS] / counted, "accuracy": sums[CORRECT] / counted}
        if self.is_scored:
            metrics.update(score_answers(to_score, self.answers, self._version))
        return metrics

    def describe(self, metrics: Mapping[str, float]) -> str:
        """The metrics as a line."""
        text = f"loss {metrics['loss']:.4f}"
        if "f1" in metrics:
            text += f", exact match {metrics['exact']:.2f}, F1 {metrics['f1']:.2f}"
            text += f", {metrics['total']:,} questions"
        return text

    def write_files(self, folder: Path) -> None:
        """Writes predictions.json in SQuAD's format: {id: answer}."""
        if self.is_scored:
            partial = folder / "predictions.json.partial"
            text = json.dumps(self.answers, ensure_ascii=False, indent=0)
            partial.write_text(text, encoding="utf-8")
            partial.replace(folder / "predictions.json")

    def report(self, folder: Path, rows: list[Metrics], title: str) -> list[str]:
        """Draws scores.png; the lines of a table of scores by checkpoint."""
        if not self.is_scored:
            return []
        draw_scores(rows, str(folder / "scores.png"), title)
        return score_table(rows).split("\n")


def score_answers(
    questions: Sequence[Question], predictions: Mapping[str, str], version: str
) -> dict[str, float]:
    """`squad_scores` of predictions by question's name; "auto" is 2.0 if one has no answer."""
    if version == "auto":
        version = "1.1" if all(question.answers for question in questions) else "2.0"
    golds = {question.name: question.answers for question in questions}
    return squad_scores(golds, predictions, version)
