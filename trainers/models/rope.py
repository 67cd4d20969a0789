"""Rotary positions (RoPE): parameters, from and to Hugging Face's config.json, and frequencies.

Su et al., "RoFormer", 2021 (arXiv:2104.09864). Scaled for longer texts: `linear` divides all
frequencies by a factor, `llama3` the low ones, `yarn` those that turn seldom in the original length
(Peng et al., "YaRN", 2023, arXiv:2309.00071).

transformers 4 writes `rope_theta` and `rope_scaling`, transformers 5 `rope_parameters`, which some
families have for each type of layer. Pure numpy; Python 3.8 syntax.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Mapping, NamedTuple

import numpy as np

from textmill.schemas.errors import DataError, UsageError, flag
from textmill.schemas.typed_json import quote

_LENGTH = "original_max_position_embeddings"
_USED: dict[str, tuple[str, ...]] = {
    "default": ("rope_theta",),
    "linear": ("rope_theta", "factor"),
    "llama3": ("rope_theta", "factor", _LENGTH, "low_freq_factor", "high_freq_factor"),
    "yarn": ("rope_theta", "factor", _LENGTH, "beta_slow", "beta_fast", "attention_factor"),
}
_LIMITS: dict[str, tuple[float, float]] = {
    "rope_theta": (2, 1e12),
    "factor": (1, 1e6),
    _LENGTH: (1, 1 << 30),
    **dict.fromkeys(("low_freq_factor", "high_freq_factor"), (1e-3, 1e6)),
    **dict.fromkeys(("beta_slow", "beta_fast", "attention_factor"), (1e-3, 1e6)),
}
_REQUIRED = ("factor", "low_freq_factor", "high_freq_factor")
_BANDS = {"llama3": ("low_freq_factor", "high_freq_factor"), "yarn": ("beta_slow", "beta_fast")}
_ONLY = {"partial_rotary_factor": 1, "truncate": True}  # keys with one supported value
_READ = {"type", "rope_type", "finetuned", *_LIMITS, *_ONLY}  # "finetuned" has no effect


class RopeKey(NamedTuple):
    """Rotary positions in Hugging Face's config.json."""

    ours: str = "rope"  # a field of ModelConfig, rope or local_rope
    theirs: str = "rope_theta"  # the key of theta that transformers 4 writes
    theta: float = 10000.0  # its default
    layers: str = ""  # the key in `rope_parameters` of families with several


@dataclass(frozen=True)
class Rope:
    """Parameters of rotary positions, named as in config.json.

    Raises:
      UsageError: an unknown type, or a number outside of its limits.
      DataError: not a number.
    """

    rope_theta: float = 10000.0  # base of the wavelengths, from 2 pi to 2 pi theta positions
    rope_type: str = "default"  # or linear, llama3, yarn; decides which of the others are used
    factor: float = 1.0  # by which texts are longer than the original ones
    original_max_position_embeddings: int = 0  # tokens of the original texts
    low_freq_factor: float = 1.0  # frequencies that turn less often in these are divided
    high_freq_factor: float = 4.0  # frequencies that turn more often stay
    beta_fast: float = 32.0  # as high_freq_factor, in yarn
    beta_slow: float = 1.0  # as low_freq_factor, in yarn
    attention_factor: float = 1.0  # of the rotated queries and of the rotated keys, in yarn

    def __post_init__(self) -> None:
        """Checks the values that the type uses."""
        if not isinstance(self.rope_type, str) or self.rope_type not in _USED:
            raise UsageError(
                f"rope_type {quote(self.rope_type)} is not supported: give a model with one of "
                f"{', '.join(_USED)}"
            )
        for name in _USED[self.rope_type]:
            value, (least, most) = getattr(self, name), _LIMITS[name]
            if type(value) is not int and (name == _LENGTH or type(value) is not float):
                kind = "a whole number" if name == _LENGTH else "a number"
                raise DataError(f"{name} is {quote(value)} instead of {kind}: copy it again")
            if not least <= value <= most:
                raise UsageError(f"{flag(name, quote(value))}: must be from {least:g} to {most:g}")
        if self.rope_type in _BANDS:
            (low, from_), (high, to) = ((n, getattr(self, n)) for n in _BANDS[self.rope_type])
            if from_ >= to:
                raise UsageError(f"{low}={from_}: must be below {high}={to}")

    @classmethod
    def from_json(cls, content: Mapping[str, Any], key: RopeKey, *, where: str) -> Rope:
        """The rotary positions of a config.json; errors begin with `where`, "--init_from=DIR".

        Raises:
          UsageError: a setting that is not supported.
          DataError: a value of a wrong type, or none that the type needs.
        """
        try:
            scaling, given = (
                _object(content, name) for name in ("rope_scaling", "rope_parameters")
            )
            if key.layers:
                own = _object(given, key.layers)
                given = {**own, **(scaling if key.ours == "rope" else {})}
            else:
                given = scaling or given
            given = {"rope_theta": content.get(key.theirs, key.theta), **given}
            if content.get("partial_rotary_factor") is not None:
                given.setdefault("partial_rotary_factor", content["partial_rotary_factor"])
            values = {name: value for name, value in given.items() if value is not None}
            kind = values.get("rope_type", values.get("type", "default"))
            names = _USED.get(kind, ()) if isinstance(kind, str) else ()
            _check_keys(values, names)
            values.setdefault(_LENGTH, content.get("max_position_embeddings"))
            used = {name: values[name] for name in names if name in values}
            rope = cls(rope_type=kind, **used)
        except (UsageError, DataError) as error:
            raise type(error)(f"{where}: config.json: {error.in_python()}") from None
        if kind == "yarn" and "attention_factor" not in used:
            return replace(rope, attention_factor=0.1 * math.log(rope.factor) + 1)
        return rope

    def to_json(self) -> dict[str, Any]:
        """The value of `rope_parameters` in config.json, or of one type of layer in it."""
        values = asdict(self)
        return {name: values[name] for name in ("rope_type", *_USED[self.rope_type])}

    def inverse_frequencies(self, head_size: int) -> np.ndarray:
        """Radians by which each pair of a head's numbers turns from one token to the next.

        float32 [D / 2], falling from 1; for D 4 and theta 10,000 [1, 0.01]. Each operation rounds
        to float32, as in transformers: at position 8,000 a different rounding would be 0.0005
          radians.
        """
        exponents = np.arange(0, head_size, 2, dtype=np.float32) / np.float32(head_size)
        powers = float(np.float32(self.rope_theta)) ** exponents.astype(np.float64)
        inverse = np.float32(1) / powers.astype(np.float32)
        if self.rope_type == "default":
            return inverse
        scaled = inverse / np.float32(self.factor)
        if self.rope_type == "linear":
            return scaled
        if self.rope_type == "llama3":
            wavelengths = np.float32(2 * math.pi) * (1 / inverse)
            turns = np.float32(self.original_max_position_embeddings) * (1 / wavelengths)
            kept = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        else:
            first = max(math.floor(self._pair_of(self.beta_fast, head_size)), 0)
            last = min(math.ceil(self._pair_of(self.beta_slow, head_size)), head_size - 1)
            span = last - first or 0.001
            kept = 1 - (np.arange(head_size // 2, dtype=np.float32) - first) / np.float32(span)
        kept = np.clip(kept, 0, 1).astype(np.float32)
        return scaled * (1 - kept) + inverse * kept

    def _pair_of(self, turns: float, head_size: int) -> float:
        """The pair that turns so often in the original length, as a fraction of a number."""
        wavelength = self.original_max_position_embeddings / turns
        return head_size * math.log(wavelength / (2 * math.pi)) / (2 * math.log(self.rope_theta))


def _object(content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = content.get(key)
    if value is not None and not isinstance(value, dict):
        raise DataError(f"{key} is {quote(value)}, not an object: copy it again")
    return value or {}


def _check_keys(values: Mapping[str, Any], names: tuple[str, ...]) -> None:
    """Refuses keys that are unknown or change more than a type's parameters; finds missing ones."""
    for name, value in values.items():
        if name not in _READ or (name in _ONLY and value != _ONLY[name]):
            raise UsageError(
                f"rotary positions with {name}={quote(value)} are not supported: give other weights"
            )
    for name in names:
        if name in _REQUIRED and name not in values:
            raise DataError(f"the rotary positions lack {name}: copy it again")
