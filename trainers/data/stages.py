"""The value of `--stages`: shares of datasets that change at some steps of a run. Pure.

Stages.parse("0:web=0.8,code=0.2; 90%:web=0.3,math=0.7")

0:      the steps from the first on; later stages may start at a step (9000), at a part of the
run (90%), or after a number of tokens (10B; K, M, B and T are 1e3, 1e6, 1e9 and 1e12)
web=0.8 a dataset and its share; only the proportions of shares count
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Sequence

from textmill.schemas.errors import FieldError, UsageError, flag

EXAMPLE = "0:web=0.8,code=0.2;90%:web=0.3,math=0.7"
_START = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)(%|[KMBT])?")
_SHARE = re.compile(r"-?(?:[0-9]{1,18}\.?[0-9]{0,30}|\.[0-9]{1,30})(?:e[-+]?[0-9]{1,3})?")
_TOKENS = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


class MixtureStage(NamedTuple):
    """The shares of datasets from a start on.

    Attributes:
      start: as text: 0, 9000, 90%, 10B.
      shares: of the datasets by name.
    """

    start: str
    shares: Mapping[str, float]

    def __str__(self) -> str:
        """The text that `Stages.parse` reads: 0:web=0.8,code=0.2."""
        shares = (f"{name}={_digits(share)}" for name, share in self.shares.items())
        return f"{self.start}:{','.join(shares)}"

    @property
    def amount(self) -> Fraction:
        """Steps, a part of the run (90% is 9/10), or tokens: see `unit`."""
        number, unit = _START.fullmatch(self.start).groups()  # type: ignore[union-attr]
        return Fraction(number) * (Fraction(1, 100) if unit == "%" else _TOKENS.get(unit, 1))

    @property
    def unit(self) -> str:
        """steps, run or tokens."""
        last = self.start[-1]
        return "run" if last == "%" else "tokens" if last in _TOKENS else "steps"


@dataclass(frozen=True)
class Stages:
    """The stages of a run, in order: a mapping of starts to shares, or their text.

    Stages.parse("0:web=1;90%:web=0.3,math=0.7") is Stages.of_mapping({0: {"web": 1}, "90%": ...}).
    """

    stages: tuple[MixtureStage, ...]

    def __post_init__(self) -> None:
        """Refuses stages that no run can have."""
        if not self.stages:
            raise FieldError("", self, f"there is no stage; give {EXAMPLE}")
        for stage in self.stages:
            self._check(stage)
        if self.stages[0].amount:
            reason = f"the first stage starts at {self.stages[0].start}: it must start at 0"
            raise FieldError("", self, reason)
        for one, other in zip(self.stages, self.stages[1:]):
            if one.unit == other.unit and one.amount >= other.amount or not other.amount:
                reason = f"a stage at {other.start} follows one at {one.start}: starts must ascend"
                raise FieldError("", self, reason)

    def _check(self, stage: MixtureStage) -> None:
        found = _START.fullmatch(stage.start)
        if found is None:
            reason = f"{stage.start!r} is not a start of a stage; give a step, 90% or 10B (tokens)"
            raise FieldError("", self, reason)
        if stage.unit == "steps" and stage.amount.denominator != 1:
            raise FieldError("", self, f"{stage.start!r} is not a whole number of steps")
        if not stage.shares:
            reason = f"the stage at {stage.start} has no dataset; give {EXAMPLE}"
            raise FieldError("", self, reason)
        for name, share in stage.shares.items():
            if isinstance(share, bool) or not isinstance(share, (int, float)):
                reason = f"the share {share!r} of {name!r} is not a number; give {EXAMPLE}"
                raise FieldError("", self, reason)
            if not (share > 0 and math.isfinite(share)):
                reason = (
                    f"the share {_digits(share)} of {name} must be above 0 and finite; leave "
                    f"{name} out of a stage that does not read it"
                )
                raise FieldError("", self, reason)

    @classmethod
    def parse(cls, text: str) -> Stages:
        """Reads the text.

        Raises:
          FieldError: it has a different form, or no run can have such stages.
        """
        return cls(tuple(_parse_stage(part.strip(), text) for part in text.split(";")))

    @classmethod
    def of_list(cls, parts: Sequence[Any]) -> Stages:
        """Reads the texts of stages, one each."""
        return cls.parse(";".join(map(str, parts)))

    @classmethod
    def of_mapping(cls, stages: Mapping[Any, Any]) -> Stages:
        """Takes {0: {"web": 0.8, "code": 0.2}, "90%": "web=0.3,math=0.7"}."""

        def take(start: Any, shares: Any) -> MixtureStage:
            if isinstance(shares, Mapping):
                return MixtureStage(
                    str(start), {str(name): _number(share) for name, share in shares.items()}
                )
            return _parse_stage(f"{start}:{shares}", f"{start}:{shares}")

        return cls(tuple(take(start, shares) for start, shares in stages.items()))

    def __str__(self) -> str:
        """The text that `parse` reads."""
        return ";".join(map(str, self.stages))

    def __repr__(self) -> str:
        """The text as Python has it, for the call that resumes a run."""
        return repr(str(self))

    @property
    def names(self) -> list[str]:
        """The datasets of all stages, in order."""
        return list(dict.fromkeys(name for stage in self.stages for name in stage.shares))

    @property
    def starts(self) -> list[int]:
        """The steps before each stage; `self` has starts in steps."""
        return [int(stage.start) for stage in self.stages]

    def check_names(self, names: Iterable[str]) -> None:
        """Refuses a dataset that is none of these."""
        known = list(names)
        for name in self.names:
            if name not in known:
                raise UsageError(
                    f"{flag('stages', self)}: there is no dataset {name!r}; {flag('shards')} has "
                    f"{', '.join(known)}. {flag('shards', f'{name}=DIR,...')} gives names"
                )

    def check_length(self, *, steps: int | None, tokens: float | None) -> None:
        """Refuses parts of a run whose length is unknown before its first step."""
        for stage in self.stages:
            if stage.unit == "run" and stage.amount and steps is None and tokens is None:
                raise UsageError(
                    f"{flag('stages', self)}: {stage.start} of the run needs its length: give "
                    f"{flag('steps')} or {flag('tokens')}"
                )

    def in_steps(
        self,
        tokens_per_step: Callable[[MixtureStage], Fraction],
        *,
        steps: int | None = None,
        tokens: float | None = None,
    ) -> Stages:
        """The same stages with starts in steps: the first step with the amount done before it.

        Args:
          tokens_per_step: tokens of a step of a stage, on average.
          steps: of the run, if they are given.
          tokens: of the run, if they are given instead.

        Raises:
          UsageError: starts do not ascend, or the length of the run is unknown.
        """
        self.check_length(steps=steps, tokens=tokens)
        found: list[MixtureStage] = []
        start, done = 0, Fraction(0)  # steps and tokens before the newest stage
        for stage in self.stages:
            amount, unit = stage.amount, stage.unit
            if unit == "run" and amount:
                if steps is None:
                    amount, unit = amount * Fraction(str(tokens)), "tokens"
                else:
                    amount, unit = amount * steps, "steps"
            if found:
                step_tokens = tokens_per_step(found[-1])
                if unit == "tokens":
                    amount = start + (amount - done) / step_tokens
                after = math.ceil(amount)
                if after <= start:
                    raise UsageError(
                        f"{flag('stages', self)}: a stage at {stage.start} (step {max(after, 0):,})"
                        f" follows one at step {start:,}: starts must ascend"
                    )
                done += (after - start) * step_tokens
                start = after
            found.append(MixtureStage(str(start), stage.shares))
        return Stages(tuple(found))

    def check_end(self, steps: int, asked: Stages) -> None:
        """Refuses stages that begin after the last step of a run; `self` has starts in steps."""
        for stage, one in zip(self.stages, asked.stages):
            if stage.amount >= steps:
                raise UsageError(
                    f"{flag('stages', asked)}: the stage at {one.start} begins after the end of "
                    f"the run, which has {steps:,} steps"
                )

    def number_at(self, step: int) -> int:
        """The number, from 1, of the stage of a step, from 1; `self` has starts in steps."""
        return sum(stage.amount < max(step, 1) for stage in self.stages)

    def until(self, step: int) -> Stages:
        """The stages that begin before this many steps are done; `self` has starts in steps."""
        return Stages(self.stages[: self.number_at(step)])


def _parse_stage(text: str, whole: str) -> MixtureStage:
    start, colon, sets = text.partition(":")
    if not colon:
        raise FieldError("", whole, f"{text!r} is not START:SET=SHARE,...; give {EXAMPLE}")
    shares: dict[str, float] = {}
    for item in sets.split(",") if sets.strip() else ():
        name, equals, share = (part.strip() for part in item.rpartition("="))
        if not (equals and name):
            raise FieldError("", whole, f"{item.strip()!r} is not SET=SHARE; give {EXAMPLE}")
        if not _SHARE.fullmatch(share):
            raise FieldError("", whole, f"the share {share!r} of {name!r} is not a number")
        if name in shares:
            raise FieldError("", whole, f"the stage at {start.strip()} names {name} twice")
        shares[name] = float(share)
    return MixtureStage(start.strip(), shares)


def _number(share: Any) -> Any:
    """A share of Python or a file: "1e-1" -> 0.1; what is not a number stays for the check."""
    return float(share) if isinstance(share, str) and _SHARE.fullmatch(share) else share


def _digits(number: float) -> str:
    return str(number)[:-2] if str(number).endswith(".0") else str(number)
