"""Masked language modeling: which masks, and what is measured of a split. Python 3.8 syntax."""

from dataclasses import dataclass
from typing import ClassVar, Iterator, List, Literal, Mapping, NamedTuple, Optional, Tuple

from schemas.errors import UsageError
from schemas.sidecar import Schema
from trainers.data.batches import Batch, BatchReader
from trainers.run.flags import RunFlags
from trainers.run.program import Arrays, Measures, Task
from trainers.tasks.language import COUNTED, add_up, describe_tokens, token_measures


@dataclass(frozen=True)
class MlmFlags(RunFlags):
    """How tokens are masked."""

    task: ClassVar[str] = "mlm"

    masking: Literal["auto", "static", "dynamic"] = "auto"
    """static: as stored. dynamic: anew in every epoch, on the device. auto: static if stored."""
    mask_rate: Optional[float] = None
    """Share of tokens that dynamic masking picks while training. None: the contract's."""

    def __post_init__(self) -> None:
        """Refuses values that cannot be meant."""
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
            f"--masking=static, but the rows of {flags.shards} carry no masks: use "
            "--masking=dynamic, or build the set with --static_masking"
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

    def __init__(self, flags: MlmFlags, schema: Schema, shards: Optional[BatchReader] = None):
        """Checks the flags against the contract; raises as `mask_rates`."""
        self.best_by = None if flags.best_by == "none" else flags.best_by
        self._is_masked_anew = mask_rates(flags, schema).training is not None
        self._unit = schema.mask_unit

    def measure(self, found: Iterator[Tuple[Batch, Arrays]]) -> Optional[Measures]:
        """Loss, accuracy and perplexity, and how many tokens were masked."""
        sums, _ = add_up(found)
        measures = token_measures(sums)
        return measures and dict(measures, masked=sums[COUNTED])

    def describe(self, measures: Mapping[str, float]) -> str:
        """The measures in a few words."""
        return describe_tokens(measures, 1)

    def notes(self) -> List[str]:
        """How masks made on the device differ from the set's own."""
        if not self._is_masked_anew or self._unit == "token":
            return []
        return [f"masks made on the device pick single tokens, not {self._unit}s as the set's do"]
