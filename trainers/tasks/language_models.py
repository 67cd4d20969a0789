"""Masked and causal language modeling: mask rates, metrics of tokens.

Python 3.8 syntax.
"""

from __future__ import annotations

import math
from typing import Dict, Iterator, Mapping, NamedTuple, Sequence

import numpy as np

from textmill.schemas.errors import UsageError, flag
from textmill.schemas.format.features import max_masked_slots
from textmill.schemas.format.metadata import Schema
from textmill.schemas.format.statistics import ShardStatistics
from textmill.trainers.data.batches import Batch, BatchReader
from textmill.trainers.flags.run_flags import RunFlags
from textmill.trainers.flags.task_flags import MlmFlags
from textmill.trainers.models.set_tokenizer import sets_of
from textmill.trainers.run.program import TOKENS
from textmill.trainers.run.tensors import Arrays
from textmill.trainers.run.training_task import Metrics, TrainingTask

LOSS, CORRECT, COUNTED = "loss", "correct", "counted"  # sums over the tokens that count


TokenSums = Dict[int, Metrics]
"""LOSS, CORRECT, COUNTED and TOKENS (without padding) of a split, for each dataset of a mixture by
its `set_index`, or for 0. They are float64: float32 cannot count beyond 2**24."""


def add_up(batches: Iterator[tuple[Batch, Arrays]]) -> TokenSums:
    """The sums of batches from `BatchReader.sequential_batches`, each of one dataset."""
    of_sets: TokenSums = {}
    for batch, outputs in batches:
        index = int(batch["set_index"][0]) if "set_index" in batch else 0
        sums = of_sets.setdefault(index, dict.fromkeys((LOSS, CORRECT, COUNTED, TOKENS), 0.0))
        for name in (LOSS, CORRECT, COUNTED):
            sums[name] += float(np.sum(outputs[name], dtype=np.float64))
        sums[TOKENS] += int(outputs.get(TOKENS, np.count_nonzero(batch["segment_ids"])))
    return of_sets


def total(sums: TokenSums, name: str) -> float:
    """A sum over all datasets."""
    return sum(own[name] for own in sums.values())


def token_metrics(sums: TokenSums, names: Sequence[str]) -> Metrics | None:
    """Loss, accuracy and perplexity of the tokens that count; None if there are none.

    `names` of a mixture's datasets add the loss of each: {"loss/books": 2.1, "loss/web": 3.2}.
    """
    counted = total(sums, COUNTED)
    if not counted:
        return None
    loss = total(sums, LOSS) / counted
    metrics = {"loss": loss, "accuracy": total(sums, CORRECT) / counted}
    metrics["perplexity"] = exponential(loss)
    for index, own in sums.items():
        if names and own[COUNTED]:
            metrics[f"loss/{names[index]}"] = own[LOSS] / own[COUNTED]
    return metrics


def exponential(value: float) -> float:
    """exp(value), at most exp(700): a float overflows at exp(709.8)."""
    return math.exp(min(value, 700.0))


def shown(value: float, digits: int) -> str:
    """A perplexity as text: "1,234.5", or "1.0e+304" from a billion on."""
    return f"{value:,.{digits}f}" if value < 1e9 else f"{value:.1e}"


def describe_tokens(metrics: Mapping[str, float], digits: int) -> str:
    """The metrics as a line: "loss 2.1234 (books 1.9, web 2.3), accuracy 51.20%, ..."."""
    of_sets = [
        f"{name[5:]} {value:.4f}" for name, value in metrics.items() if name.startswith("loss/")
    ]
    return (
        f"loss {metrics['loss']:.4f}{' ({})'.format(', '.join(of_sets)) if of_sets else ''}, "
        f"accuracy {metrics['accuracy']:.2%}, perplexity {shown(metrics['perplexity'], digits)}"
    )


class MaskRates(NamedTuple):
    """Share of tokens that dynamic masking masks; None takes the masks of the rows."""

    training: float | None
    evaluation: float | None


def mask_rates(flags: MlmFlags, schema: Schema) -> MaskRates:
    """The mask rates of a run. Those of evaluations depend on the dataset only, so runs compare.

    Raises:
      UsageError: the flags do not fit the dataset.
    """
    if flags.masking == "static" and not schema.static_masking:
        raise UsageError(
            f"{flag('masking', 'static')}, but the dataset has no masks: use "
            f"{flag('masking', 'dynamic')}, or build the dataset with "
            f"{flag('static_masking', True)}"
        )
    of_the_set = schema.mask_rate or 0.15  # BERT's and RoBERTa's
    is_stored = schema.static_masking and flags.masking != "dynamic"
    if is_stored and flags.mask_rate is not None:
        raise UsageError(
            f"{flag('mask_rate', flags.mask_rate)} has no effect on the dataset's static masks: "
            f"add {flag('masking', 'dynamic')}, or leave it out"
        )
    rates = MaskRates(
        training=None if is_stored else flags.mask_rate or of_the_set,
        evaluation=None if schema.static_masking else of_the_set,
    )
    has_ordinary = len(set(schema.all_special_ids)) < schema.vocab_size
    if any(rates) and not ("mask" in schema.special_ids and has_ordinary):
        raise UsageError(
            f"{flag('masking', 'dynamic')}: the dataset's tokenizer has no mask token, or special "
            "tokens only; build the dataset with a tokenizer for masked language models"
        )
    return rates


class MlmTask(TrainingTask):
    """Cross-entropy of masked tokens."""

    unit, counts = "nats a masked token", "masked"

    def __init__(self, flags: RunFlags, schema: Schema, shards: BatchReader | None = None):
        """Checks the flags against the schema; raises like `mask_rates`."""
        task = flags.task
        assert isinstance(task, MlmFlags)
        self.best_metric = task.measure
        rates = mask_rates(task, schema)
        slots = max_masked_slots(schema.max_length, rates.training or schema.mask_rate)
        self.head_share = slots / schema.max_length
        self._is_dynamic = rates.training is not None
        self._unit, self._names = schema.mask_unit, shards.names if shards is not None else ()

    def measure(self, batches: Iterator[tuple[Batch, Arrays]]) -> Metrics | None:
        """Loss, accuracy and perplexity, and the number of masked tokens."""
        sums = add_up(batches)
        metrics = token_metrics(sums, self._names)
        return metrics and dict(metrics, masked=total(sums, COUNTED))

    def describe(self, metrics: Mapping[str, float]) -> str:
        """The metrics as a line."""
        return describe_tokens(metrics, 1)

    def prepare_training(self, shards: BatchReader) -> list[str]:
        """A note if dynamic masks are of a different kind than the dataset's."""
        if not self._is_dynamic or self._unit == "token":
            return []
        return [f"dynamic masking masks single tokens; the dataset's own masks are {self._unit}s"]


class ClmTask(TrainingTask):
    """Cross-entropy of every token given those before it in its segment."""

    unit, counts = "nats a token", "predicted"

    def __init__(self, flags: RunFlags, schema: Schema, shards: BatchReader | None = None):
        self.best_metric, split = flags.task.measure, flags.data.validation_split
        sets = sets_of(shards) if shards is not None else []
        self._names = shards.names if shards is not None else ()
        # In conversations only some tokens are predicted: bits per byte would mean nothing.
        sets = [] if any(part.schema.task == "chat" for part in sets) else sets
        self._text_of_sets = {i: part.stats.split(split) for i, part in enumerate(sets)}

    def measure(self, batches: Iterator[tuple[Batch, Arrays]]) -> Metrics | None:
        """Loss, accuracy, perplexity, and two metrics to compare models of different tokenizers.

        Bits per byte and perplexity per word spread the loss over the text. Both are a little low,
        more so for short segments: the first token of a segment is not predicted, so its bytes
        count without a loss. `unpredicted` counts such tokens and others of loss weight 0. With
        --evaluation_rows the text of each dataset counts in proportion to its tokens.
        """
        sums = add_up(batches)
        metrics = token_metrics(sums, self._names)
        if metrics is None:
            return None
        loss, counted = total(sums, LOSS), total(sums, COUNTED)
        metrics.update(predicted=counted, unpredicted=total(sums, TOKENS) - counted)
        text_bytes = words = 0.0
        for index, own in sums.items():
            text = self._text_of_sets.get(index, ShardStatistics())
            share = own[TOKENS] / max(1, text.tokens_in_rows)
            text_bytes += text.text_bytes * share
            words += text.words * share
        if text_bytes:
            metrics["bits_per_byte"] = loss / math.log(2) / text_bytes
        if words:
            metrics["word_perplexity"] = exponential(loss / words)
        return metrics

    def describe(self, metrics: Mapping[str, float]) -> str:
        """The metrics as a line."""
        text = describe_tokens(metrics, 2)
        if "bits_per_byte" in metrics:
            text += f", {metrics['bits_per_byte']:.4f} bits per byte"
        if "word_perplexity" in metrics:
            text += f", perplexity per word {shown(metrics['word_perplexity'], 1)}"
        return text
