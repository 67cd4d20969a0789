"""Rules that drop, edit and count, applied one after the other."""

import numpy as np
import pyarrow as pa

from pipelines.corpus.filter_documents import apply_rules
from pipelines.corpus.rules.rule import Judged, Rule
from tests.tools.filter_factory import column


def judge_lengths(text):
    lengths = np.array([len(document) for document in text.to_pylist()])
    return Judged(np.where(lengths < 2, 1, np.where(lengths > 8, 2, 0)), observed=seen(text))


def seen(text):
    return {"seen": {document: 1 for document in text.to_pylist()}}


def strip_x(text):
    stripped = column([document.strip("x") for document in text.to_pylist()])
    return Judged(np.zeros(len(text), bool), stripped)


LENGTHS = Rule(("short", "long"), judge_lengths)
STRIPS = Rule(("nothing_left",), strip_x, edits="strip")


def test_rules_drop_edit_and_count_one_after_the_other():
    texts = ["a", "xxab", "abc", "xx", "a" * 9, "abcx"]
    columns = pa.RecordBatch.from_pydict({"text": column(texts), "label": list("uvwxyz")})
    applied = apply_rules(columns, (LENGTHS, STRIPS, LENGTHS))
    assert applied.reasons == {0: "short", 4: "long", 3: "nothing_left"}
    assert applied.left.tolist() == [1, 2, 5]
    assert applied.columns.to_pylist() == [
        {"text": "ab", "label": "v"},
        {"text": "abc", "label": "w"},
        {"text": "abc", "label": "z"},
    ]
    first = dict.fromkeys(texts, 1)
    assert applied.observed["seen"] == {**first, "ab": 1, "abc": 2}
    assert applied.observed["edited"] == {"strip": 2}
    assert applied.observed["edited_bytes"] == {"strip": 3}


def test_a_rule_may_judge_by_other_fields_of_the_documents_that_are_left():
    columns = pa.RecordBatch.from_pydict(
        {"text": column(["a", "bc", "de"]), "n": column(list("xyz"))}
    )

    def judge(text, field):
        assert (text.to_pylist(), field.to_pylist()) == (["bc", "de"], ["y", "z"])
        return Judged(np.array([False, True]))

    applied = apply_rules(columns, (LENGTHS, Rule(("by_field",), judge, roles=("n",))))
    assert applied.reasons == {0: "short", 2: "by_field"}
