"""Bytes -> documents, by hand and against the plainest reading."""

import json

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.tools.read_sources import rows_of
from textmill.pipelines.readers.documents import TEXT_ROLES, Role, find_lines, text_documents
from textmill.pipelines.readers.formats.json_lines import json_documents


def test_lines_roles_and_marks_of_a_text_file():
    """`test_sources.py` has lines and paragraphs beside those of Python."""
    roles = (*TEXT_ROLES, Role("label", "label", "l"), QUESTION_ROLES[3])
    found = text_documents(b"good\nb\xffd\nalso\n", "line", "f", 100, roles=roles, label="pos")
    assert rows_of([found]) == [
        {"text": t, "label": "pos", "answers": []} for t in ("good", "also")
    ]
    assert found.read == 3
    [reject] = found.rejects
    assert (reject.path, reject.offset, reject.reason) == ("f", 105, "not_utf8")
    assert "0xff" in reject.detail
    empty = text_documents(b"", "file", "f", 0)
    assert (empty.read, empty.empty, len(empty.text)) == (1, 1, 0)
    mark = "\ufeff".encode()
    for offset, first in ((0, "a"), (9, "\ufeffa")):  # a file's start, and the middle of one
        found = text_documents(mark + b"a\n" + mark + b"b\n", "line", "f", offset)
        assert found.text.to_pylist() == [first, "\ufeffb"]


BAD_LINES = {
    b'{"text": 3}': "not_a_string",
    b'{"text": null, "x": "a"}': "missing_field",
    b"nope": "broken_json",
    b'{"text": "a"} {"text": "b"}': "broken_json",
    b'{"text":': "broken_json",
    b'"c"}': "broken_json",
    b'{"text": "\\ud800"}': "lone_surrogate",
    b'{"text": "\xff"}': "not_utf8",
    b"[1]": "not_an_object",
    b"[" * 100_000: "broken_json",
}


@pytest.mark.parametrize("line", BAD_LINES, ids=lambda line: line[:20])
def test_a_bad_json_line_is_refused_by_name_and_the_rest_kept(line):
    data = b'{"text": "first"}\n' + line + b'\n\n{"text": ""}\n{"text": "last"}'
    found = json_documents(data, TEXT_ROLES, "f", 50)
    assert found.text.to_pylist() == ["first", "last"]
    assert (found.read, found.empty) == (4, 1)
    [reject] = found.rejects
    assert (reject.offset, reject.reason) == (50 + 18, BAD_LINES[line])
    if reject.reason == "missing_field":
        assert "'text'" in reject.detail and "its fields: text, x" in reject.detail


TWO = [("a", 3), ("b", 9)]
ANSWERS = {
    '[{"text": "a", "answer_start": 3}, {"answer_start": 9, "x": 1, "text": "b"}]': TWO,
    '{"text": ["a", "b"], "answer_start": [3, 9]}': TWO,
    '{"text": ["a"]}': [("a", -1)],
    '{"text": ["a"], "answer_start": null}': [("a", -1)],
    '{"text": [], "answer_start": []}': [],
    '[{"text": "a"}]': [("a", -1)],
    '"a"': [("a", -1)],
    '["a", ""]': [("a", -1), ("", -1)],
    '""': [],
    "[]": [],
    "null": [],
}
BAD_ANSWERS = {
    "3": "not_answers",
    '["a", 3]': "not_answers",
    '[{"answer_start": 3}]': "not_answers",
    '[{"text": "a", "answer_start": 1.5}]': "not_answers",
    '{"text": ["a"], "answer_start": [1, 2]}': "not_answers",
    '{"texts": ["a"]}': "not_answers",
    '["\\ud800"]': "lone_surrogate",
}
ANSWER_ROLES = (Role("text", "string", "text"), Role("answers", "answers", "answers"))


@pytest.mark.parametrize("form", [*ANSWERS, *BAD_ANSWERS])
def test_answers_in_every_form_alone_and_beside_another(form):
    """Alone a block is parsed by Arrow, beside another form line by line."""
    for forms in ([form], *([form, other] for other in ANSWERS)):
        data = "\n".join(f'{{"text": "t", "answers": {f}}}' for f in forms).encode()
        found = json_documents(data, ANSWER_ROLES, "f", 0)
        assert [[(a["text"], a["start"]) for a in row["answers"]] for row in rows_of([found])] == [
            ANSWERS[f] for f in forms if f in ANSWERS
        ]
        rejected = [BAD_ANSWERS[f] for f in forms if f in BAD_ANSWERS]
        assert [reject.reason for reject in found.rejects] == rejected


QUESTION_ROLES = (
    Role("question", "string", "question"),
    Role("context", "string", "context"),
    Role("id", "id", "id"),
    Role("answers", "answers", "answers"),
    Role("label", "label", "meta.label", optional=True),
)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"id": None}, "missing_field"),
        ({"id": ""}, "missing_field"),
        ({"id": 1.5}, "not_an_id"),
        ({"context": ["c"]}, "not_a_string"),
        ({"meta": {"label": []}}, "not_a_label"),
        ("id", "missing_field"),
        ("answers", "missing_field"),
    ],
)
def test_a_document_without_a_role_is_refused(change, reason):
    good = {"question": "q", "context": "", "id": 1, "answers": []}
    bad = good | change if isinstance(change, dict) else good.copy()
    bad.pop(change if isinstance(change, str) else "", None)
    data = "\n".join(map(json.dumps, (good, bad, good))).encode()
    found = json_documents(data, QUESTION_ROLES, "f", 0)
    assert len(found.text) == 2
    assert [reject.reason for reject in found.rejects] == [reason]


json_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.sampled_from(["", "a", "é\ud800"]),
    st.lists(st.sampled_from(["a", 1]), max_size=2),
    st.fixed_dictionaries({}, optional={"text": st.just(["a"]), "b": st.just("c")}),
)


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["text", "label", "a.b", "a", "answers"]), json_values),
        min_size=1,
    )
)
@example([{"text": "a\0b \U0001f600"}])
def test_a_block_and_its_lines_give_the_same(records):
    """Both parsers agree: a block with a broken line goes to the careful one."""
    roles = (
        Role("text", "string", "text"),
        Role("label", "label", "label"),
        Role("text_pair", "string", "a.b", optional=True),
        Role("answers", "answers", "answers", optional=True),
    )
    data = "\r\n".join(map(json.dumps, records)).encode().replace(b'"a.b"', b'"\\u0061.b"', 1)
    block = json_documents(data, roles, "f", 0)
    careful = json_documents(data + b"\nbroken", roles, "f", 0)
    assert block.columns.equals(careful.columns)
    assert block.empty == careful.empty
    assert block.offsets.tolist() == careful.offsets.tolist()
    assert block.rejects == careful.rejects[:-1]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize(
    "lines",
    [
        [b"a" * (i % 1000) for i in range(1200)],
        [b"a"] * 20_000 + [b""] * 40_000 + [b"b"],  # more newlines than are found at once
        *([b"", b"a" * size, b"b", b""] for size in range(130)),
    ],
)
def test_lines_are_found_at_every_place(lines, end):
    data = end.join(lines)
    starts, stops = find_lines(np.frombuffer(data, np.uint8), 0)
    assert [data[a:b] for a, b in zip(starts, stops, strict=True)] == [*filter(None, lines)]
