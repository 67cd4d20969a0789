"""Verdicts beside datatrove's, and words beside spaCy's, which `tests.tools.quality_verdicts` kept.

0 differ, document for document. `tests/benchmarks/compare_quality.py` compares real documents.
"""

import gzip
import json
from collections import Counter

import pyarrow as pa
import pytest

from pipelines.corpus.english_cutting import english_words
from pipelines.corpus.filters import papers, rules_of
from tests.tools.filter_factory import filters_of
from tests.tools.quality_verdicts import PLACE

KEPT = json.loads(gzip.decompress(PLACE.read_bytes()))
TEXTS, VERDICTS = KEPT["texts"], KEPT["verdicts"]


@pytest.mark.parametrize("paper", papers())
def test_verdicts_are_those_of_datatrove(paper):
    [rule] = rules_of(filters_of(quality=paper))
    judged = rule.judge(pa.array(TEXTS, pa.large_string()))
    dropped, due = (judged.reason > 0).tolist(), [bool(why) for why in VERDICTS[paper]]
    assert [TEXTS[i] for i in range(len(TEXTS)) if dropped[i] != due[i]] == []
    assert 0.1 < sum(due) / len(due) < 0.98
    if judged.text is not None:
        texts = zip(judged.text.to_pylist(), VERDICTS[f"{paper} texts"], due, strict=True)
        assert [(ours, text) for ours, text, gone in texts if not gone and ours != text] == []


def test_every_rule_of_datatrove_is_met():
    for paper, least in (("gopher", 12), ("c4", 2), ("fineweb", 3)):
        assert len(Counter(filter(None, VERDICTS[paper]))) >= least


def test_words_are_those_of_spacy():
    differ = []
    for words in english_words(pa.array(TEXTS, pa.large_string())):
        data = words.data.tobytes()
        spelt = [data[start:stop].decode() for start, stop in words.spans.T.tolist()]
        for first, last in zip(words.offsets, words.offsets[1:], strict=False):
            due = KEPT["words"][len(differ)]
            differ.append((spelt[first:last], due) if spelt[first:last] != due else None)
    assert len(differ) == len(TEXTS)
    assert [both for both in differ if both] == []
