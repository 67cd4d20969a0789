"""Questions of a set for people and scores: evaluation.jsonl, prompts, answers as text.

Numpy and the standard library only, Python 3.8 syntax; `models.set_tokenizer` opens tokenizers.

Scores are SQuAD's official ones, exact match and F1, of versions 1.1 and 2.0.
Rajpurkar et al., "SQuAD: 100,000+ Questions for Machine Comprehension of Text", 2016
(arXiv:1606.05250), section 6.1, and "Know What You Don't Know", 2018 (arXiv:1806.03822), written
from their definitions:

- Texts are compared without case, punctuation (ASCII's), the words a, an, the, and white space.
- Exact match: the same text. F1: of the two texts as bags of words.
- Of several gold answers the best counts; scores are means over questions, in percent.
- 1.1: every question has an answer; where no word is shared F1 is 0, even if both texts are empty.
- 2.0: a question without answers has the gold answer "", as has one whose answers are all empty
  once normalized; such golds are left out beside others. Where either text is empty F1 is 1 if
  both are, else 0. Scores are also given apart for questions with and without answers.
"""

import json
import re
import string
from collections import Counter
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import numpy as np

from schemas.commands.template import parse_template
from schemas.errors import DataError
from schemas.manifest import EVALUATION
from schemas.sidecar import Schema
from trainers.data.shard_set import ShardSet


@dataclass(frozen=True)
class Question:
    """A question that answers are scored on.

    Its name is its id in the source, or its row's `example_id` where it has none; answers are all
    right ones, () where it cannot be answered.
    """

    name: str
    question: str
    answers: Tuple[str, ...]


def example_numbers(example_ids_Bx2: np.ndarray) -> List[int]:
    """A row's `example_id`, two halves, as one number: [[1, 2]] -> [4294967298]."""
    high, low = np.asarray(example_ids_Bx2).astype(np.uint64).T
    return (high << np.uint64(32) | low).tolist()


def read_questions(sets: Sequence[ShardSet]) -> Dict[int, Question]:
    """The questions of all evaluation rows of these sets, by the number of `example_id`.

    Where the source gives one id to two questions, the second is named by its `example_id`.

    Raises:
      DataError: a file is not as build_shards writes it; names the line.
    """
    found: Dict[int, Question] = {}
    number_of: Dict[str, int] = {}
    for shards in sets:
        if EVALUATION not in {file.path for file in shards.manifest.files}:
            continue  # a set without evaluation splits has none
        path = shards.locate(EVALUATION)
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    values = json.loads(line)
                    example_id = values["example_id"]
                    example = int(example_id, 16)
                    name = str(values["id"] or example_id)
                    if number_of.setdefault(name, example) != example:
                        name = example_id
                    answers = tuple(map(str, values["answers"]))
                    found[example] = Question(name, values["question"], answers)
                except (ValueError, KeyError, TypeError) as error:
                    raise DataError(
                        f"{path}: line {number:,} is not as build_shards writes it ({error!r}): "
                        "copy the set again or build it anew"
                    ) from error
    return found


def score_answers(
    questions: Sequence[Question], predictions: Mapping[str, str], version: str
) -> Dict[str, float]:
    """`squad_scores` of predictions by question's name; "auto": 2.0 if one cannot be answered."""
    if version == "auto":
        version = "1.1" if all(question.answers for question in questions) else "2.0"
    golds = {question.name: question.answers for question in questions}
    return squad_scores(golds, predictions, version)


@dataclass(frozen=True)
class Prompt:
    """Ids that a model goes on from; `cut` tokens of question and context had no room."""

    ids: List[int]
    cut: int


class PromptMaker:
    """Questions and contexts to the ids of prompts, as the rows of a set have them.

    prompts = PromptMaker(schema, open_tokenizer(tokenizer_json))
    prompts.prompt("Who?", "Ann did.").ids # [.., "Question:", " Who", "?", .., " answer:"]
    prompts.text([6342, 198])              # "Ann"
    """

    def __init__(self, schema: Schema, tokenizer: Any):
        """Takes the contract of a qa set, and its tokenizer (`tokenizers.Tokenizer`)."""
        self._schema, self._tokenizer = schema, tokenizer
        template = schema.parameters["qa_template"]
        self._slots = parse_template(template, ("question", "context", "answer"), "qa_template")

    def prompt(self, question: str, context: str) -> Prompt:
        """A prompt; question and context are cut as in evaluation rows."""
        schema, settings = self._schema, self._schema.parameters
        literals = [self._encode(slot.literal) for slot in self._slots]
        space = {slot.field: slot.space for slot in self._slots}
        asked = self._encode(space["question"] + question)
        told = self._encode(space["context"] + context)
        length = len(asked) + len(told)
        asked = asked[: settings["max_question_length"]]
        bos = [schema.special_ids["bos"]] if settings["bos"] else []
        around = len(bos) + sum(map(len, literals)) + 1
        room = schema.max_length - around - len(asked) - settings["max_answer_length"]
        fields = {"question": asked, "context": told[:room], "answer": []}
        ids = bos
        for slot, literal in zip(self._slots, literals):
            ids = ids + literal + fields[slot.field]
        return Prompt(ids, length - len(asked) - len(fields["context"]))

    def text(self, answer_ids: Sequence[int]) -> str:
        """What an answer says, without white space around it."""
        return self._tokenizer.decode(list(answer_ids), skip_special_tokens=True).strip()

    def _encode(self, text: str) -> List[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids if text else []


_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized(text: str) -> str:
    """As texts are compared: "The  Panthers' (defense)!" -> "panthers defense"."""
    bare = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def f1(gold: str, predicted: str, version: str) -> float:
    """Harmonic mean of precision and recall of the words: ("a b c d", "c e") -> 0.4."""
    gold_words, words = normalized(gold).split(), normalized(predicted).split()
    if version == "2.0" and not (gold_words and words):
        return float(gold_words == words)
    shared = sum((Counter(gold_words) & Counter(words)).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(words), shared / len(gold_words)
    return 2 * precision * recall / (precision + recall)


def best_scores(golds: Sequence[str], predicted: str, version: str) -> Tuple[float, float]:
    """Exact match and F1 against the gold answer that fits best.

    Raises:
      ValueError: no gold answers in version 1.1, which has no such questions.
    """
    if version == "2.0":
        golds = [gold for gold in golds if normalized(gold)] or [""]
    return (
        max(float(normalized(gold) == normalized(predicted)) for gold in golds),
        max(f1(gold, predicted, version) for gold in golds),
    )


def squad_scores(
    golds: Mapping[str, Sequence[str]], predictions: Mapping[str, str], version: str
) -> Dict[str, float]:
    """Scores of a set of questions.

    Args:
      golds: question's id to its right answers.
      predictions: id to answer. Where one is missing, 1.1 counts 0 and 2.0 leaves the question out.
      version: "1.1" or "2.0".

    Returns:
      "exact", "f1" (percent) and "total"; in 2.0 also "HasAns_exact", "HasAns_f1", "HasAns_total"
      and the same for NoAns, where there are such questions.
    """
    found = {
        name: best_scores(golds[name], predictions[name], version)
        for name in golds
        if name in predictions
    }
    if version == "1.1":
        found.update((name, (0.0, 0.0)) for name in golds if name not in predictions)
    scores = _means("", list(found.values()))
    if version == "2.0":
        for prefix, wanted in (("HasAns_", True), ("NoAns_", False)):
            part = [found[name] for name in found if any(map(normalized, golds[name])) == wanted]
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
