"""--quality_model: scores documents by a linear model in fastText's form, and drops the worst.

--keep_best is applied when all other steps have run, by the last steps of `build_corpus`.
"""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import tyro

from textmill.pipelines.corpus.rules.rule import Rule, RuleGroup, RuleResult
from textmill.pipelines.linear_model.scores import (
    COLUMN,
    LinearModel,
    count_tenths,
    load_model,
)
from textmill.pipelines.linear_model.training import GOOD
from textmill.schemas.commands.values import take_values
from textmill.schemas.errors import FieldError, flag

_REASON = "quality_model:low"


@dataclass(frozen=True)
class QualityModel(RuleGroup):
    """Score documents by a model of quality, after all other rules; adds the column quality."""

    CAUSES = {
        "low": f"read the scores of documents with {flag('keep_rejects')}, and choose a lower "
        f"{flag('min_quality')}",
    }

    quality_model: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """Model that scores documents, of fastText (.bin, .ftz) or of train_quality_model. The corpus
    gets a column quality: the probability of --quality_label."""
    quality_label: str | None = None
    """Label of the model whose probability is the quality, without __label__. Default: good."""
    min_quality: float | None = None
    """Minimum quality of a document, from 0 to 1."""
    keep_best: Annotated[float | None, tyro.conf.arg(metavar="SHARE")] = None
    """Share of documents to keep, such as 0.2: those with the highest quality among all that the
    other rules and the deduplication leave. Between equal scores, the smallest ids stay."""

    def __post_init__(self) -> None:
        """Rejects impossible values."""
        take_values(self)
        if self.min_quality is not None and not 0 <= self.min_quality <= 1:
            raise FieldError("min_quality", self.min_quality, "give a number from 0 to 1")
        if self.keep_best is not None and not 0 < self.keep_best <= 1:
            reason = "give a share above 0, up to 1, such as 0.2"
            raise FieldError("keep_best", self.keep_best, reason)
        for name in ("quality_label", "min_quality", "keep_best"):
            if getattr(self, name) is not None and not self.quality_model:
                raise FieldError(
                    name, getattr(self, name), f"it needs {flag('quality_model', 'FILE')}"
                )

    def parameters(self) -> dict[str, Any]:
        """The sha256 of the model, the label, the minimum and the share.

        Raises:
          UsageError: the model cannot be read, or lacks the label.
          DataError: it is not a model, or damaged.
        """
        if not self.quality_model:
            return {}
        model = load_model(self.quality_model)
        self._label_of(model)
        numbers = {"min_quality": self.min_quality, "keep_best": self.keep_best}
        return {
            "quality_model_sha256": model.sha256,
            "quality_label": self.quality_label or GOOD,
            **{name: number for name, number in numbers.items() if number is not None},
        }

    def make_rules(self) -> Iterator[Rule]:
        """One rule, which adds the scores as a column."""
        if self.quality_model:
            model = load_model(self.quality_model)
            label = self._label_of(model)
            least = self.min_quality or 0.0
            yield Rule(
                (_REASON,),
                lambda text: judge(model.scores(text, label), np.float32(least)),
                limits=(least,),
            )

    def added(self) -> tuple[str, ...]:
        """The column quality."""
        return (COLUMN,) if self.quality_model else ()

    def _label_of(self, model: LinearModel) -> int:
        """The number of the label.

        Raises:
          FieldError: the model lacks it; shows similar ones.
        """
        label = self.quality_label or GOOD
        if label in model.labels:
            return model.labels.index(label)
        near = difflib.get_close_matches(label, model.labels, 5, cutoff=0.3)
        some = ", ".join(near or model.labels[:5])
        raise FieldError(
            "quality_label",
            label,
            f"the model {self.quality_model} has no such label; it has {len(model.labels):,}, such "
            f"as {some}",
        )


def judge(scores: np.ndarray, least: np.float32) -> RuleResult:
    """Drops documents with lower scores, float32 [n], and counts scores by tenths."""
    observed = {COLUMN: count_tenths(scores)}
    # The shortest decimals that are this float32, as in a JSON Lines corpus.
    measured = np.array([float(str(score)) for score in scores])
    added = {COLUMN: pa.array(scores, pa.float32())}
    return RuleResult(
        scores < least, observed=observed, measured=measured, added=added, scores=scores
    )
