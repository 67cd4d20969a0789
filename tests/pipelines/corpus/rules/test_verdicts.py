"""Verdicts beside datatrove's, and words beside spaCy's: 0 differ, document for document.

`tests.benchmarks.scripts.quality_verdicts` wrote them down;
`tests/benchmarks/compare_quality.py` compares real documents.
"""

import gzip
import json

import pytest

from pipelines.corpus.filters import papers, rules_of
from tests.benchmarks.scripts.quality_verdicts import PLACE
from tests.tools.filter_factory import column, english_words_of, filters_of

KEPT = json.loads(gzip.decompress(PLACE.read_bytes()))
TEXTS, VERDICTS = KEPT["texts"], KEPT["verdicts"]


@pytest.mark.parametrize("paper", papers())
def test_verdicts_are_those_of_datatrove(paper):
    [rule] = rules_of(filters_of(quality=paper))
    judged = rule.judge(column(TEXTS))
    dropped, due = (judged.reason > 0).tolist(), [bool(why) for why in VERDICTS[paper]]
    assert [TEXTS[i] for i in range(len(TEXTS)) if dropped[i] != due[i]] == []
    assert 0.1 < sum(due) / len(due) < 0.98
    assert len({*filter(None, VERDICTS[paper])}) >= {"gopher": 12, "c4": 2, "fineweb": 3}[paper]
    if judged.text is not None:
        texts = zip(judged.text.to_pylist(), VERDICTS[f"{paper} texts"], due, strict=True)
        assert [(ours, text) for ours, text, gone in texts if not gone and ours != text] == []


def test_words_are_those_of_spacy():
    both = zip(english_words_of(TEXTS), KEPT["words"], strict=True)
    assert [(ours, theirs) for ours, theirs in both if ours != theirs] == []
