"""Paragraphs that stand in many documents: spans by hand, removal beside a plain program."""

import re
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from textmill.pipelines.corpus.options import Paragraphs
from textmill.pipelines.corpus.paragraphs import (
    find_repeated,
    list_paragraphs,
    paragraph_spans,
    remove_paragraphs,
    send_paragraphs,
)
from textmill.pipelines.corpus.partition import cut_batch, join_equal, make_batch
from textmill.pipelines.readers.documents import text_documents
from textmill.pipelines.rows.example_batch import to_stream
from textmill.pipelines.rows.routing import content_digests
from textmill.schemas.errors import UsageError


def batch_of(texts):
    documents = text_documents(b"x\n" * len(texts), "line", "a.txt", 0)
    columns = pa.record_batch({"text": pa.array(texts, pa.large_string())})
    return make_batch(documents.keep(np.arange(len(texts)), columns), keep_source=False)


def spans(texts, unit):
    data, starts, stops, document = paragraph_spans(pa.array(texts, pa.large_string()), unit)
    return [
        (d, data[a:b].tobytes().decode())
        for d, a, b in zip(document.tolist(), starts.tolist(), stops.tolist(), strict=True)
    ]


def test_spans_of_paragraphs_and_lines():
    texts = ["one\ntwo\n\n three \n \t\n\nfour", "", " \n ", "five"]
    assert spans(texts, "paragraph") == [(0, "one\ntwo"), (0, "three"), (0, "four"), (3, "five")]
    lines = [(0, "one"), (0, "two"), (0, "three"), (0, "four"), (3, "five")]
    assert spans(texts, "line") == lines


def remove(texts, flag, partitions=4):
    """The texts that the stages leave, sorted, and the bytes of what they remove or join."""
    rule = Paragraphs.parse(flag)
    parts = dict(cut_batch(batch_of(texts), partitions))
    sent, asked = defaultdict(list), defaultdict(list)
    for batch in parts.values():
        for key, rows in send_paragraphs(list_paragraphs(batch, rule), partitions):
            sent[key].append(to_stream(rows))
    for streams in sent.values():
        for key, rows in find_repeated(streams, rule.most, partitions):
            asked[key].append(to_stream(rows))
    left, lost = [], 0
    for key, batch in parts.items():
        edited = remove_paragraphs(batch, asked[key], rule)
        left += edited.unchanged["text"].to_pylist()
        left += edited.changed["text"].to_pylist() if edited.changed else []
        lost += edited.bytes_lost + sum(len(t.encode()) for t in edited.emptied["text"].to_pylist())
        if edited.changed:
            for text, copies in zip(*map(edited.changed.column, ("text", "copies")), strict=True):
                lost += len(text.as_py().encode()) * (copies.as_py() - 1)  # edits made them equal
            again = join_equal(edited.changed)
            assert again["digest"].to_pylist() == [
                d.tobytes() for d in content_digests(again["text"])
            ]
    return sorted(left), lost


def test_what_is_left_of_the_last_paragraph_has_no_line_end():
    left, _ = remove(["a\nfooter", "b\nfooter\n"], "line:1")
    assert sorted(text.strip() for text in left) in (["a", "b\nfooter"], ["a\nfooter", "b"])
    assert any(text in ("a", "b") for text in left)


def test_a_line_that_goes_takes_its_own_indentation():
    code = "def {0}():\n  footer\n\n\t{0}\n    {0}"
    left, _ = remove([code.format("a"), code.format("b")], "line:1")
    whole = {code.format("a"), code.format("b")}
    assert {*left} - whole in ({"def a():\n\ta\n    a"}, {"def b():\n\tb\n    b"})


def plain(texts, unit, most):
    """The same, in a few lines: documents in the order of their hashes."""
    cut = re.compile(r"\n" if unit == "line" else r"\n[ \t\r\v\f]*\n\s*")
    texts = sorted(
        {*texts}, key=lambda t: content_digests(pa.array([t], pa.large_string())).tobytes()
    )
    parts = [[p.strip(" \t\r\v\f\n") for p in cut.split(t)] for t in texts]
    having = defaultdict(set)
    for number, own in enumerate(parts):
        for part in filter(None, own):
            having[part].add(number)
    seen, left = set(), []
    for own in parts:
        kept = []
        for part in filter(None, own):
            if len(having[part]) <= most or part not in seen:
                kept.append(part)
            seen.add(part)
        left.append(kept)
    return [kept for kept in left if kept]


piece = st.sampled_from(["a", "b b", "ø", "a ", " ", "", "\t"])


@example([["a"], ["a", "a", "b b"], ["b b", " ", "a"]], "paragraph", 2)
@given(
    st.lists(st.lists(piece, max_size=6), min_size=1, max_size=8),
    st.sampled_from(["line", "paragraph"]),
    st.integers(1, 3),
)
def test_any_texts_lose_what_a_plain_program_removes(documents, unit, most):
    joint = "\n" if unit == "line" else "\n\n"
    texts = [text for text in (joint.join(pieces) for pieces in documents) if text]
    if not texts:
        return
    left, lost = remove(texts, f"{unit}:{most}")
    assert lost == len("".join({*texts}).encode()) - len("".join(left).encode())
    found = [[p for _, p in spans([text], unit)] for text in left if text.strip()]
    # Documents that edits made equal are one.
    assert {*map(tuple, found)} == {*map(tuple, plain(texts, unit, most))}


@pytest.mark.parametrize("flag", ["", "3", "word:3", "line:0", "paragraph:-1", "line:1x"])
def test_other_flags_are_refused(flag):
    with pytest.raises(UsageError, match="paragraph:N or line:N"):
        Paragraphs.parse(flag)
