import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.corpus.decontamination import hits
from pipelines.corpus.decontamination.hits import Hit, add_hits, hits_file

HIT = Hit("0f", "dev.json", "question", 3, "web/b.txt", 1, 2, 1, "so it „is“")


def test_a_line_a_document_and_text():
    copies = [HIT, replace(HIT, path="web/a.txt"), replace(HIT, document="0a", record=0)]
    [name] = hits_file(copies)
    assert name == "rejects/contamination.jsonl"
    lines = [json.loads(line) for line in hits_file(copies)[name].decode().splitlines()]
    assert [(line["document"], line["record"], line["path"]) for line in lines] == [
        ("0a", 0, "web/b.txt"),
        ("0f", 3, "web/a.txt"),
    ]
    assert lines[1]["overlap"] == HIT.overlap
    assert hits_file([]) == {}


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2), st.sampled_from("ab")), max_size=30),
    st.integers(0, 30),
)
def test_the_same_lines_are_left_whoever_adds_what(drawn, cut):
    found = [replace(HIT, document=f"{d}", record=r, path=p) for d, r, p in drawn]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hits, "_MOST", 5)
        due = add_hits(found)
        assert add_hits([*add_hits(found[cut:]), *add_hits(found[:cut])]) == due
        assert len(due) == min(5, len({(d, r) for d, r, _ in drawn}))
