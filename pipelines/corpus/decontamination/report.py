"""decontamination.json: the evaluation texts, and which of them are not searched for. Pure."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from textmill.pipelines.corpus.decontamination.ngram_index import NgramIndex
from textmill.schemas.commands.terminal import number_of
from textmill.schemas.errors import Caution, flag
from textmill.schemas.format.drops import Observed, shorten, total_counts
from textmill.schemas.format.manifest import DECONTAMINATION
from textmill.schemas.typed_json import parse_json, to_json

_SHOWN = 100  # examples of a kind in decontamination.json
_FEW = 3  # examples in a warning
_NOT_SEARCHED = ("too_short", "common")


def describe_targets(index: NgramIndex, kept: NgramIndex, common: np.ndarray) -> bytes:
    """decontamination.json; a text counts for the first target that has it."""
    targets = index.targets
    states = {
        "too_short": index.short_T,
        "common": ~index.short_T & (kept.total_T == 0),
        "whole": kept.whole_T,
    }
    files = []
    for number, (path, sha256) in enumerate(targets.files):
        own = targets.file_T == number
        counts = {name: int((own & which).sum()) for name, which in states.items()}
        files.append({"path": path, "sha256": sha256, "texts": int(own.sum())} | counts)
    examples = {
        name: [
            shorten(text)
            for text in targets.text.filter(pa.array(states[name]))[:_SHOWN].to_pylist()
        ]
        for name in _NOT_SEARCHED
    }
    shown = sorted({index.text_of(gram) for gram in common[:_SHOWN].tolist()})
    return to_json(
        {
            "targets": files,
            "ngrams": len(index.hash_G),
            "common_ngrams": len(common),
            "common_examples": shown,
            "not_searched": examples,
        }
    )


def count_targets(report: bytes) -> Observed:
    """Counts of evaluation texts for stats.json, from decontamination.json."""
    files = parse_json(report, DECONTAMINATION)["targets"]
    counts = [{name: file[name] for name in ("texts", *_NOT_SEARCHED, "whole")} for file in files]
    return {"evaluation_texts": total_counts(*counts)}


def warn_of_targets(report: bytes, parameters: Mapping[str, Any]) -> list[Caution]:
    """Warnings about evaluation texts that are not searched for, with examples.

    Args:
      report: decontamination.json.
      parameters: the values of the flags.
    """
    [counts] = count_targets(report).values()
    examples = parse_json(report, DECONTAMINATION)["not_searched"]
    why = {
        "too_short": "fewer than {decontaminate_min_words} words "
        f"({flag('decontaminate_min_words')})",
        "common": "few or short words, and are in more than {decontaminate_max_documents} "
        f"documents: {flag('decontaminate_max_documents', 0)} searches for them",
    }
    return [
        Caution(
            f"{flag('decontaminate')}: {count:,} of {number_of(counts['texts'], 'text')} "
            f"{'is' if count == 1 else 'are'} not searched for, such as "
            f"{', '.join(json.dumps(text, ensure_ascii=False) for text in examples[name][:_FEW])}; "
            f"they have {why[name].format(**parameters)}"
        )
        for name in _NOT_SEARCHED
        if (count := counts.get(name, 0))
    ]
