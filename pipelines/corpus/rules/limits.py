"""Rules that compare a measured value of a document with the limit of a flag. Pure."""

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from pipelines.corpus.english.cutting import Words, english_words
from pipelines.corpus.rules.rule import Judged, Rule
from schemas.errors import UsageError

Limits = dict[str, float]
Measure = Callable[[Words, Limits], Mapping[str, np.ndarray]]


def ngram_limits(name: str, value: str | None) -> Limits:
    """Limits for each n: gopher_max_top_ngrams "2:0.2,3:0.18" -> gopher_max_top_2_grams: 0.2, ...

    Raises:
      UsageError: it has another form.
    """
    limits: dict[int, float] = {}
    for part in value.split(",") if value else ():
        n, _, share = part.partition(":")
        try:
            limits[int(n)] = float(share)
            if not (1 < int(n) < 100 and 0 <= float(share) <= 1):
                raise ValueError(part)
        except ValueError as error:
            raise UsageError(
                f"--{name}={value}: {part!r} is not WORDS:SHARE; give 2 to 99 words and a share "
                "from 0 to 1, such as 2:0.2"
            ) from error
    form = name.replace("_ngrams", "_{}_grams")
    return {form.format(n): share for n, share in sorted(limits.items())}


def rule_of(limits: Limits, measure: Measure) -> Rule:
    """Makes a rule that drops documents below a minimum or above a maximum.

    Args:
      limits: flag -> limit. A value below gopher_min_words, or above gopher_max_words, drops a
        document for the reason gopher:min_words or gopher:max_words; the first limit counts.
      measure: returns the values of D documents for each limit, by name, each [D].
    """

    def judge(text: pa.LargeStringArray) -> Judged:
        reasons, measured = [np.zeros(0, np.int64)], [np.zeros(0)]
        for words in english_words(text):
            values = measure(words, limits)
            is_dropped = np.stack(
                [
                    values[name] < limit if "_min_" in name else values[name] > limit
                    for name, limit in limits.items()
                ]
            )
            first = is_dropped.argmax(axis=0)
            reasons.append(np.where(is_dropped.any(axis=0), first + 1, 0))
            measured.append(np.choose(first, [values[name] for name in limits]))
        return Judged(np.concatenate(reasons), measured=np.concatenate(measured))

    names = tuple(name.replace("_", ":", 1) for name in limits)
    return Rule(names, judge, limits=tuple(limits.values()))
