"""Question answering: flags, the questions of a dataset, and SQuAD's scores of answers.

Python 3.8 syntax. Exact match and F1, versions 1.1 and 2.0, are written from the definitions in
Rajpurkar et al., "SQuAD: 100,000+ Questions for Machine Comprehension of Text", 2016
(arXiv:1606.05250), section 6.1, and "Know What You Don't Know", 2018 (arXiv:1806.03822):

- Normalized texts are compared: without case, ASCII punctuation, the words a, an, the, and extra
  white space. Exact match is equality; F1 compares the texts as bags of words.
- The best of several gold answers counts. Scores are means over questions, in percent.
- 1.1: every question has an answer. Without a common word F1 is 0, even if both texts are empty.
- 2.0: a question whose gold answers are all empty once normalized, or that has none, has the gold
  answer "". Beside others, empty ones are ignored. If either text is empty, F1 is 1 if both are,
  else 0. Questions with gold answers, even empty ones, and those without also have scores of their
  own.
"""

import json
import math
import re
import string
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Dict, Iterator, List, Literal, Mapping, Optional, Sequence, Tuple

import numpy as np

from textmill.schemas.errors import DataError, UsageError, flag
from textmill.schemas.format.features import is_training
from textmill.schemas.format.manifest import EVALUATION
from textmill.schemas.format.metadata import Schema
from textmill.schemas.typed_json import parse_json
from textmill.trainers.data.batches import Batch, BatchReader
from textmill.trainers.data.shard_set import ShardSet
from textmill.trainers.flags.run_flags import RunFlags, TaskFlags
from textmill.trainers.metrics.plots import draw_scores, score_table
from textmill.trainers.models.set_tokenizer import TOKENIZER, open_tokenizer, set_file, sets_of
from textmill.trainers.run.program import Arrays, Metrics, TrainingTask
from textmill.trainers.tasks.language_models import CORRECT, COUNTED, LOSS

ANSWER_IDS, ANSWER_LENGTHS = "answer_ids", "answer_lengths"
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class QaFlags(TaskFlags):
    """How answers are scored."""

    rows: ClassVar[str] = "qa"
    same_settings: ClassVar[Tuple[str, ...]] = ("score",)

    best_by: Literal["f1", "exact", "loss", "none"] = "f1"
    """Metric of the validation split that chooses the best weights, kept besides the newest. It is
    loss with --no_score."""
    score: bool = True
    """Generate and score answers in every evaluation. --no_score computes the loss only, which is
    faster."""
    squad_version: Literal["auto", "1.1", "2.0"] = "auto"
    """Version of SQuAD's scores. auto is 2.0 if any question has no answer."""


class QaTask(TrainingTask):
    """Cross-entropy of the answers' tokens; evaluations generate answers if `is_scored`.

    Attributes:
      answers: names of questions to the answers of the last evaluation.
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
                f"{flag('validation_split', split)}: a dataset keeps the questions of its "
                f"evaluation splits only; name one of these, or give {flag('score', False)} for "
                "the loss only"
            )
        self._questions = read_questions(sets_of(shards))
        self._tokenizer = open_tokenizer(set_file(shards, TOKENIZER))

    def meaning_of(self, schema: Schema) -> Dict[str, object]:
        """The form of questions, and the tokenizer."""
        names = ("qa_form", "qa_template", "bos")
        parameters = {name: schema.parameters[name] for name in names}
        return {**parameters, "tokenizer": schema.tokenizer_sha256}

    def export_notes(self) -> List[str]:
        """A note if the model's attention is bidirectional on the prompt."""
        note = "GPT-2 in transformers is causal; this model's attention on prompts is bidirectional"
        return [note] if self._is_prefix else []

    def measure(self, batches: Iterator[Tuple[Batch, Arrays]]) -> Optional[Metrics]:
        """Loss and accuracy of the answers' tokens; SQuAD's scores, see `squad_scores`."""
        sums = {name: 0.0 for name in (LOSS, CORRECT, COUNTED)}
        to_score: List[Question] = []
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

    def report(self, folder: Path, rows: List[Metrics], title: str) -> List[str]:
        """Draws scores.png; the lines of a table of scores by checkpoint."""
        if not self.is_scored:
            return []
        draw_scores(rows, str(folder / "scores.png"), title)
        return score_table(rows).split("\n")


@dataclass(frozen=True)
class Question:
    """A question with its gold answers, () if it has none.

    Its name is its id in the source, else its row's `example_id`.
    """

    name: str
    question: str
    answers: Tuple[str, ...]


def example_numbers(example_ids_Bx2: np.ndarray) -> List[int]:
    """A row's `example_id`, two halves, as one number: [[1, 2]] -> [4294967298]."""
    high, low = np.asarray(example_ids_Bx2).astype(np.uint64).T
    return (high << np.uint64(32) | low).tolist()


def read_questions(sets: Sequence[ShardSet]) -> Dict[int, Question]:
    """Numbers of `example_id` to the questions of all evaluation rows of these datasets.

    If the source has one id twice, the second question is named by its `example_id`.

    Raises:
      DataError: a line is not in the format of build_shards; names it.
    """
    questions: Dict[int, Question] = {}
    number_of: Dict[str, int] = {}
    for shards in sets:
        if EVALUATION not in {file.path for file in shards.manifest.files}:
            continue  # the dataset has no evaluation split
        path = shards.locate(EVALUATION)
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    values = parse_json(line, "the line")
                    example_id = values["example_id"]
                    example = int(example_id, 16)
                    name = str(values["id"] or example_id)
                    if number_of.setdefault(name, example) != example:
                        name = example_id
                    answers = tuple(map(str, values["answers"]))
                    questions[example] = Question(name, values["question"], answers)
                except (DataError, ValueError, KeyError, TypeError) as error:
                    raise DataError(
                        f"{path}: line {number:,} is not in the format of build_shards "
                        f"({error!r}): copy or build the dataset again"
                    ) from error
    return questions


def score_answers(
    questions: Sequence[Question], predictions: Mapping[str, str], version: str
) -> Dict[str, float]:
    """`squad_scores` of predictions by question's name; "auto" is 2.0 if one has no answer."""
    if version == "auto":
        version = "1.1" if all(question.answers for question in questions) else "2.0"
    golds = {question.name: question.answers for question in questions}
    return squad_scores(golds, predictions, version)


def normalize(text: str) -> str:
    """Normalizes a text to compare it: "The  Panthers' (defense)!" -> "panthers defense"."""
    bare = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def f1(gold: str, predicted: str, version: str) -> float:
    """Harmonic mean of precision and recall of the words: ("a b c d", "c e") -> 0.4."""
    gold_words, words = normalize(gold).split(), normalize(predicted).split()
    if version == "2.0" and not (gold_words or words):
        return 1.0
    shared = sum((Counter(gold_words) & Counter(words)).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(words), shared / len(gold_words)
    return 2 * precision * recall / (precision + recall)


def best_scores(golds: Sequence[str], predicted: str, version: str) -> Tuple[float, float]:
    """Exact match and F1, each of the best gold answer.

    Raises:
      ValueError: version 1.1 without gold answers.
    """
    if version == "2.0":
        golds = [gold for gold in golds if normalize(gold)] or [""]
    return (
        max(float(normalize(gold) == normalize(predicted)) for gold in golds),
        max(f1(gold, predicted, version) for gold in golds),
    )


def squad_scores(
    golds: Mapping[str, Sequence[str]], predictions: Mapping[str, str], version: str
) -> Dict[str, float]:
    """Mean scores of questions.

    Args:
      golds: question's id to its gold answers.
      predictions: id to answer. A missing one counts 0 in 1.1, and is ignored in 2.0.
      version: "1.1" or "2.0".

    Returns:
      "exact", "f1" (percent) and "total"; in 2.0 also "HasAns_exact", "HasAns_f1", "HasAns_total"
      and the same for NoAns, if there are such questions.
    """
    scores_of = {
        name: best_scores(golds[name], predictions[name], version)
        for name in golds
        if name in predictions
    }
    if version == "1.1":
        scores_of.update((name, (0.0, 0.0)) for name in golds if name not in predictions)
    scores = _means("", list(scores_of.values()))
    if version == "2.0":
        for prefix, wanted in (("HasAns_", True), ("NoAns_", False)):
            part = [scores_of[name] for name in scores_of if bool(golds[name]) == wanted]
            if part:
                scores.update(_means(prefix, part))
    return scores


def _means(prefix: str, pairs: Sequence[Tuple[float, float]]) -> Dict[str, float]:
    count = max(1, len(pairs))
    return {
        f"{prefix}exact": 100.0 * sum(exact for exact, _ in pairs) / count,
        f"{prefix}f1": 100.0 * sum(shared for _, shared in pairs) / count,
        f"{prefix}total": len(pairs),
    }
