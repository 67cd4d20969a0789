import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.corpus.decontamination.finders import cut_out

ENDS = {"line": r"\n", "paragraph": r"\n[ \t\r\v\f]*\n"}
TEXTS = st.text(st.sampled_from("ab\n\n \té"), min_size=1, max_size=30)


def cut(texts, spans, unit):
    spans = np.array(spans, np.int64).reshape(-1, 3)
    return cut_out(pa.array(texts, pa.large_string()), spans, unit).to_pylist()


def plain_cut(text, spans, unit):
    """Unit by unit, of one document."""
    units, begin = [], 0
    for end in re.finditer(ENDS[unit].encode(), text):
        units.append((begin, text[begin : end.start()], end[0]))
        begin = end.end()
    if begin < len(text):
        units.append((begin, text[begin:], b""))
    touched = [
        any(first < at + len(body + end) and at < stop for first, stop in spans)
        for at, body, end in units
    ]
    kept = [(body, end) for (_, body, end), gone in zip(units, touched, strict=True) if not gone]
    left = b"".join(body + end for body, end in kept)
    if kept and touched[-1]:
        left = left.removesuffix(kept[-1][1])
    return left.decode() if left.decode().strip() else ""


@given(st.lists(TEXTS, min_size=1, max_size=4), st.sampled_from(["line", "paragraph"]), st.data())
def test_what_is_left_is_what_no_span_touches(texts, unit, data):
    spans = []
    for number, text in enumerate(texts):
        length = len(text.encode())
        places = st.tuples(st.integers(0, length - 1), st.integers(1, 9))
        for first, size in sorted(data.draw(st.lists(places, max_size=3))):
            spans.append((number, first, min(first + size, length)))
    due = [
        plain_cut(text.encode(), [span[1:] for span in spans if span[0] == number], unit)
        if any(span[0] == number for span in spans)
        else text
        for number, text in enumerate(texts)
    ]
    assert cut(texts, spans, unit) == due


@pytest.mark.parametrize(
    "text, spans, unit, left",
    [
        ("a\n\nb c\n\nd", [(0, 3, 6)], "paragraph", "a\n\nd"),
        ("a\nb\n \nc\n", [(0, 0, 1)], "paragraph", "c\n"),
        ("a\n\nb", [(0, 3, 4)], "paragraph", "a"),
        ("a\n\nb\n\nc", [(0, 0, 4)], "paragraph", "c"),
        ("a\nb\nc", [(0, 2, 3)], "line", "a\nc"),
        ("a\n\n", [(0, 0, 1)], "line", ""),
    ],
)
def test_cuts_worked_by_hand(text, spans, unit, left):
    assert cut([text], spans, unit) == [left]
