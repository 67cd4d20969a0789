"""How well scores agree with labels. Pure."""

from dataclasses import dataclass

import numpy as np

from textmill.pipelines.linear_model.scores import tenths_of


@dataclass(frozen=True)
class Tenth:
    """The documents with scores from 0.3 to 0.4, say.

    Attributes:
      documents: their number.
      score: their mean score; 0 without documents.
      good: share of good ones among them; 0 without documents.
    """

    documents: int
    score: float
    good: float


@dataclass(frozen=True)
class Agreement:
    """The agreement of scores with labels.

    Attributes:
      documents: number of documents.
      good: number of good ones.
      auc: probability that a good document has a higher score than a document of the other class,
        where an equal score counts half; 0.5 if there are only good or only other ones.
      accuracy: share of documents whose score is on the side of 0.5 that is right.
      calibration_error: mean distance of the score of a tenth from its share of good documents,
        weighted by documents (expected calibration error).
      tenths: see `Tenth`, from 0.0 to 1.0.
    """

    documents: int
    good: int
    auc: float
    accuracy: float
    calibration_error: float
    tenths: tuple[Tenth, ...]


def agree(scores: np.ndarray, good: np.ndarray) -> Agreement:
    """Compares scores, float32 [n], with labels, bool [n]."""
    number, positive = len(good), int(np.count_nonzero(good))
    number_of_tenth = tenths_of(scores)
    tenths = []
    error = 0.0
    for tenth in range(10):
        own = number_of_tenth == tenth
        count = int(np.count_nonzero(own))
        score = float(scores[own].astype(float).mean()) if count else 0.0
        share = float(good[own].mean()) if count else 0.0
        error += count * abs(score - share)
        tenths.append(Tenth(count, round(score, 6), round(share, 6)))
    return Agreement(
        number,
        positive,
        round(area(scores, good), 6),
        round(float(((scores > 0.5) == good).mean()) if number else 0.0, 6),
        round(error / max(number, 1), 6),
        tuple(tenths),
    )


def area(scores: np.ndarray, good: np.ndarray) -> float:
    """The area under the ROC curve, by ranks (Mann and Whitney); see `Agreement.auc`."""
    positive = int(np.count_nonzero(good))
    negative = len(good) - positive
    if not positive or not negative:
        return 0.5
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    wins = float(ranks[place][good].sum()) - positive * (positive + 1) / 2
    return wins / (positive * negative)
