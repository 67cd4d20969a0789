"""SQuAD's scores of answers. Python 3.8 syntax.

Exact match and F1, versions 1.1 and 2.0, are written from the definitions in Rajpurkar et al.,
"SQuAD: 100,000+ Questions for Machine Comprehension of Text", 2016 (arXiv:1606.05250), section 6.1,
and "Know What You Don't Know", 2018 (arXiv:1806.03822):

- Normalized texts are compared: without case, ASCII punctuation, the words a, an, the, and extra
  white space. Exact match is equality; F1 compares the texts as bags of words.
- The best of several gold answers counts. Scores are means over questions, in percent.
- 1.1: every question has an answer. Without a common word F1 is 0, even if both texts are empty.
- 2.0: a question whose gold answers are all empty once normalized, or that has none, has the gold
  answer "". Beside others, empty ones are ignored. If either text is empty, F1 is 1 if both are,
  else 0. Questions with gold answers, even empty ones, and those without also have scores of their
  own.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from typing import Mapping, Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


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


def best_scores(golds: Sequence[str], predicted: str, version: str) -> tuple[float, float]:
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
) -> dict[str, float]:
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


def _means(prefix: str, pairs: Sequence[tuple[float, float]]) -> dict[str, float]:
    count = max(1, len(pairs))
    return {
        f"{prefix}exact": 100.0 * sum(exact for exact, _ in pairs) / count,
        f"{prefix}f1": 100.0 * sum(shared for _, shared in pairs) / count,
        f"{prefix}total": len(pairs),
    }
