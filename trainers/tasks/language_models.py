"""Masked and causal language modeling: flags, masks, and what is measured of tokens.

Python 3.8 syntax.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Iterator, List, Literal, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from schemas.errors import UsageError
from schemas.metadata import Schema
from schemas.statistics import ShardStatistics
from trainers.data.batches import Batch, BatchReader
from trainers.flags.run_flags import RunFlags, TaskFlags, at_least
from trainers.models.set_tokenizer import sets_of
from trainers.run.program import Arrays, Metrics, Task

LOSS, CORRECT, COUNTED = "loss", "correct", "counted"  # sums over the tokens that count


def add_up(batches: Iterator[Tuple[Batch, Arrays]]) -> Tuple[Metrics, int]:
    """Sums of LOSS, CORRECT and COUNTED over a split, and how many tokens are no padding.

    In float64: float32 cannot count beyond 2**24.
    """
    sums, tokens = {name: 0.0 for name in (LOSS, CORRECT, COUNTED)}, 0
    for batch, outputs in batches:
        for name in sums:
            sums[name] += float(np.sum(outputs[name], dtype=np.float64))
        tokens += int(np.count_nonzero(batch["segment_ids"]))
    return sums, tokens


def token_metrics(sums: Mapping[str, float]) -> Optional[Metrics]:
    """Loss, accuracy and perplexity of the tokens that count; None if none does."""
    counted = sums[COUNTED]
    if not counted:
        return None
    loss = sums[LOSS] / counted
    return {"loss": loss, "accuracy": sums[CORRECT] / counted, "perplexity": exponential(loss)}


def exponential(value: float) -> float:
    """exp, but for what a float cannot hold: it ends at exp(709)."""
    return math.exp(min(value, 700.0))


def shown(value: float, digits: int) -> str:
    """A perplexity for people: "1,234.5", and "1.0e+304" where it would fill lines."""
    return f"{value:,.{digits}f}" if value < 1e9 else f"{value:.1e}"


def describe_tokens(metrics: Mapping[str, float], digits: int) -> str:
    """Those metrics in a few words: "loss 2.1234, accuracy 51.20%, perplexity 8.4"."""
    return (
        f"loss {metrics['loss']:.4f}, accuracy {metrics['accuracy']:.2%}, perplexity "
        f"{shown(metrics['perplexity'], digits)}"
    )


@dataclass(frozen=True)
class MlmFlags(TaskFlags):
    """How tokens are masked, and what is measured."""

    rows: ClassVar[str] = "mlm"

    masking: Literal["auto", "static", "dynamic"] = "auto"
    """static: as stored. dynamic: anew in every epoch, on the device. auto: static if stored."""
    mask_rate: Optional[float] = None
    """Share of tokens that dynamic masking picks while training. None: the contract's."""

    def __post_init__(self) -> None:
        """Refuses a rate that is no share."""
        super().__post_init__()
        if self.mask_rate is not None and not 0 < self.mask_rate < 1:
            raise UsageError(f"--mask_rate={self.mask_rate}: a share between 0 and 1")


class MaskRates(NamedTuple):
    """Share of tokens that masks made on the device pick; None takes the masks that are stored."""

    training: Optional[float]
    evaluation: Optional[float]


def mask_rates(flags: MlmFlags, schema: Schema) -> MaskRates:
    """Which masks a run takes; those of an evaluation follow from the set alone, so runs compare.

    Raises:
      UsageError: flags and contract do not go together.
    """
    if flags.masking == "static" and not schema.static_masking:
        raise UsageError(
            "--masking=static, but the rows of the set carry no masks: use --masking=dynamic, or "
            "build the set with --static_masking"
        )
    of_the_set = schema.mask_rate or 0.15  # BERT's and RoBERTa's
    is_stored = schema.static_masking and flags.masking != "dynamic"
    if is_stored and flags.mask_rate is not None:
        raise UsageError(
            f"--mask_rate={flags.mask_rate} has no effect on the masks that the rows carry: add "
            "--masking=dynamic, or leave it out"
        )
    rates = MaskRates(
        training=None if is_stored else flags.mask_rate or of_the_set,
        evaluation=None if schema.static_masking else of_the_set,
    )
    has_ordinary = len(set(schema.all_special_ids)) < schema.vocab_size
    if any(rates) and not ("mask" in schema.special_ids and has_ordinary):
        raise UsageError(
            "--masking=dynamic: the set's tokenizer has no mask token, or no ordinary ones; build "
            "the set with a tokenizer made for masked language models"
        )
    return rates


class MlmTask(Task):
    """Cross-entropy of masked tokens."""

    unit, counts = "nats a masked token", "masked"

    def __init__(self, flags: RunFlags, schema: Schema, shards: Optional[BatchReader] = None):
        """Checks the flags against the contract; raises as `mask_rates`."""
        task = flags.task
        assert isinstance(task, MlmFlags)
        self.best_by = task.measure
        self._is_masked_anew = mask_rates(task, schema).training is not None
        self._unit = schema.mask_unit

    def measure(self, batches: Iterator[Tuple[Batch, Arrays]]) -> Optional[Metrics]:
        """Loss, accuracy and perplexity, and how many tokens were masked."""
        sums, _ = add_up(batches)
        metrics = token_metrics(sums)
        return metrics and dict(metrics, masked=sums[COUNTED])

    def describe(self, metrics: Mapping[str, float]) -> str:
        """The metrics in a few words."""
        return describe_tokens(metrics, 1)

    def prepare_training(self, shards: BatchReader) -> List[str]:
        """Says how masks made on the device differ from the set's own."""
        if not self._is_masked_anew or self._unit == "token":
            return []
        return [f"masks made on the device pick single tokens, not {self._unit}s as the set's do"]


@dataclass(frozen=True)
class ClmFlags(TaskFlags):
    """What is measured."""

    rows: ClassVar[str] = "clm"


@dataclass(frozen=True)
class GenerationFlags:
    """How a model continues a text."""

    max_new_tokens: int = 64
    """At most; an end-of-text token ends a sample before."""
    temperature: float = 0.0
    """Of the softmax that tokens are drawn from; 0 takes the likeliest each time."""
    top_k: int = 0
    """Draw from so many likeliest tokens; 0 draws from all."""
    top_p: float = 1.0
    """Draw from the likeliest tokens that have this probability together."""
    samples: int = 1
    """Texts to draw, in one batch; --seed is of the draws."""
    generate: Optional[str] = None
    """Go on with this text."""

    def __post_init__(self) -> None:
        """Refuses what cannot be meant."""
        at_least(self, 1, "samples", "max_new_tokens")
        if not self.temperature >= 0:
            raise UsageError(f"--temperature={self.temperature}: at least 0, which is greedy")
        if self.top_k < 0:
            raise UsageError(f"--top_k={self.top_k}: at least 0, which draws from all tokens")
        if not 0 < self.top_p <= 1:
            raise UsageError(f"--top_p={self.top_p}: a share above 0, at most 1")
        if self.samples > 1 and not self.temperature:
            raise UsageError(
                f"--samples={self.samples} would all be the same text: give --temperature too"
            )


class ClmTask(Task):
    """Cross-entropy of every token given those before it in its segment."""

    unit, counts = "nats a token", "predicted"

    def __init__(self, flags: RunFlags, schema: Schema, shards: Optional[BatchReader] = None):
        self.best_by, split = flags.task.measure, flags.data.validation_split
        sets = sets_of(shards) if shards is not None else []
        # Of conversations only a part is predicted: a loss over all bytes would say nothing.
        sets = [] if any(part.schema.task == "chat" for part in sets) else sets
        counts = [part.stats.split(split) for part in sets if split in part.splits]
        self._text = sum(counts, ShardStatistics())

    def measure(self, batches: Iterator[Tuple[Batch, Arrays]]) -> Optional[Metrics]:
        """Loss, accuracy, perplexity, and what compares models of different tokenizers.

        Bits per byte and perplexity per word spread the loss over the whole text, whatever its
        tokens are. The first token of a segment is given, not predicted: its bytes count and its
        loss does not, so that both are a little low, the more so the shorter the segments.
        `unpredicted` is the number of such tokens, and of others with a loss weight of 0.
        """
        sums, tokens = add_up(batches)
        metrics = token_metrics(sums)
        if metrics is None:
            return None
        metrics.update(predicted=sums[COUNTED], unpredicted=tokens - sums[COUNTED])
        if self._text.text_bytes:
            metrics["bits_per_byte"] = sums[LOSS] / math.log(2) / self._text.text_bytes
        if self._text.words:
            metrics["word_perplexity"] = exponential(sums[LOSS] / self._text.words)
        return metrics

    def describe(self, metrics: Mapping[str, float]) -> str:
        """The metrics in a few words."""
        text = describe_tokens(metrics, 2)
        if "bits_per_byte" in metrics:
            text += f", {metrics['bits_per_byte']:.4f} bits per byte"
        if "word_perplexity" in metrics:
            text += f", perplexity per word {shown(metrics['word_perplexity'], 1)}"
        return text
