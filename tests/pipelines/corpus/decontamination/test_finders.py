import re

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from pipelines.corpus.decontamination.finders import cut_out
from tests.tools.filter_factory import column

ENDS = {"line": r"\n", "paragraph": r"\n[ \t\r\v\f]*\n"}
TEXTS = st.text(st.sampled_from("ab\n\n \té"), min_size=1, max_size=30)
PLACES = st.lists(st.tuples(st.integers(0, 59), st.integers(1, 9)), max_size=3)


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


@given(st.lists(st.tuples(TEXTS, PLACES), min_size=1, max_size=4), st.sampled_from(sorted(ENDS)))
@example([("a\n\nb c\n\nd", [(3, 3)]), ("a\n\nb", [(3, 1)])], "paragraph")
@example([("a\nb\n \nc\n", [(0, 1)]), ("a\n\nb\n\nc", [(0, 4)])], "paragraph")
@example([("a\nb\nc", [(2, 1)]), ("a\n\n", [(0, 1)])], "line")
def test_what_is_left_is_what_no_span_touches(documents, unit):
    texts, spans = [text for text, _ in documents], []
    for number, (text, places) in enumerate(documents):
        length = len(text.encode())
        for first, size in sorted((first % length, size) for first, size in places):
            spans.append((number, first, min(first + size, length)))
    due = [
        plain_cut(text.encode(), [span[1:] for span in spans if span[0] == number], unit)
        if any(span[0] == number for span in spans)
        else text
        for number, text in enumerate(texts)
    ]
    found = cut_out(column(texts), np.array(spans, np.int64).reshape(-1, 3), unit)
    assert found.to_pylist() == due
