"""Causal language modeling: what is measured of a split, how text is drawn. Python 3.8 syntax."""

import math
from dataclasses import dataclass
from typing import ClassVar, Iterator, Mapping, Optional, Tuple

from schemas.errors import UsageError
from schemas.sidecar import Schema
from schemas.statistics import ShardStatistics
from trainers.data.batches import Batch, BatchReader
from trainers.data.flag_values import at_least
from trainers.models.set_tokenizer import sets_of
from trainers.run.flags import RunFlags
from trainers.run.program import Arrays, Measures, Task
from trainers.tasks import language
from trainers.tasks.language import COUNTED, LOSS


@dataclass(frozen=True)
class ClmFlags(RunFlags):
    """What a trainer of causal language models has in any framework."""

    task: ClassVar[str] = "clm"


@dataclass(frozen=True)
class GenerationFlags(ClmFlags):
    """How a model goes on with a text."""

    generate: Optional[str] = None
    """Do not train: go on with this text, with the weights of --checkpoint."""
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

    def __post_init__(self) -> None:
        """Refuses values that cannot be meant."""
        super().__post_init__()
        at_least(self, "samples", 1)
        self.sampling(())
        if self.samples > 1 and not self.temperature:
            raise UsageError(
                f"--samples={self.samples} would all be the same text: give --temperature too"
            )

    @property
    def uses_run(self) -> bool:
        """Whether something is asked of a run that can be done without a set."""
        return super().uses_run or self.generate is not None

    @property
    def trains(self) -> bool:
        """Whether there is anything to train."""
        return super().trains and self.generate is None

    def sampling(self, eos_ids: Tuple[int, ...]) -> "Sampling":
        """How tokens are chosen by a model whose texts end with one of these ids."""
        return Sampling(self.max_new_tokens, self.temperature, self.top_k, self.top_p, eos_ids)


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen: as `GenerationFlags` say.

    Attributes:
      eos_ids: that end a text; the one that came is part of it.
    """

    max_new_tokens: int = 64
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    eos_ids: Tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuses what cannot be meant."""
        at_least(self, "max_new_tokens", 1)
        if not self.temperature >= 0:
            raise UsageError(f"--temperature={self.temperature}: at least 0, which is greedy")
        if self.top_k < 0:
            raise UsageError(f"--top_k={self.top_k}: at least 0, which draws from all tokens")
        if not 0 < self.top_p <= 1:
            raise UsageError(f"--top_p={self.top_p}: a share above 0, at most 1")


class ClmTask(Task):
    """Cross-entropy of every token given those before it in its segment."""

    unit, counts = "nats a token", "predicted"

    def __init__(self, flags: ClmFlags, schema: Schema, shards: Optional[BatchReader] = None):
        """Takes the counts of bytes and words of the split that is evaluated."""
        self.best_by = None if flags.best_by == "none" else flags.best_by
        split = flags.validation_split
        sets = sets_of(shards) if shards is not None else []
        # Of conversations only a part is predicted: a loss over all bytes would say nothing.
        sets = [] if any(part.schema.task == "chat" for part in sets) else sets
        counts = [part.stats.split(split) for part in sets if split in part.splits]
        self._text = sum(counts, ShardStatistics())

    def measure(self, found: Iterator[Tuple[Batch, Arrays]]) -> Optional[Measures]:
        """Loss, accuracy, perplexity, and what compares models of different tokenizers.

        Bits per byte and perplexity per word spread the loss over the whole text, whatever its
        tokens are. The first token of a segment is given, not predicted: its bytes count and its
        loss does not, so that both are a little low, the more so the shorter the segments.
        `unpredicted` is the number of such tokens, and of others with a loss weight of 0.
        """
        sums, tokens = language.add_up(found)
        measures = language.token_measures(sums)
        if measures is None:
            return None
        measures.update(predicted=sums[COUNTED], unpredicted=tokens - sums[COUNTED])
        if self._text.text_bytes:
            measures["bits_per_byte"] = sums[LOSS] / math.log(2) / self._text.text_bytes
        if self._text.words:
            measures["word_perplexity"] = language.exponential(sums[LOSS] / self._text.words)
        return measures

    def describe(self, measures: Mapping[str, float]) -> str:
        """The measures in a few words."""
        said = language.describe_tokens(measures, 2)
        if "bits_per_byte" in measures:
            said += f", {measures['bits_per_byte']:.4f} bits per byte"
        if "word_perplexity" in measures:
            said += f", perplexity per word {language.shown(measures['word_perplexity'], 1)}"
        return said
