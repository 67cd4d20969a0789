"""Bytes -> documents, by hand and against the plainest reading."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipelines.readers.documents import TEXT_ROLES, Role, text_documents
from pipelines.readers.formats.json_lines import json_documents
from tests.tools.read_sources import rejects_of, rows_of


def texts(data, document="line", offset=0):
    return text_documents(data, document, "f", offset).text.to_pylist()


def test_lines_end_at_newlines_alone():
    data = "a\u2028b\x85c\rd\r\n\n e \n".encode()
    assert texts(data) == ["a\u2028b\x85c\rd", " e "]


def test_a_line_may_lack_its_end():
    assert texts(b"a\nb") == ["a", "b"]


def test_paragraphs_are_parted_by_blank_lines():
    assert texts(b"\n a\nb\r\n \t\r\nc\n\n\nd", "paragraph") == [" a\nb", "c", "d"]


def test_a_file_is_one_document():
    found = text_documents(b"", "file", "f", 0)
    assert (found.read, found.empty, len(found.text)) == (1, 1, 0)


def test_a_byte_order_mark_is_skipped_at_the_start_only():
    assert texts(b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n") == ["a", "\ufeffb"]
    assert texts(b"\xef\xbb\xbfa\n", offset=9) == ["\ufeffa"]


def test_a_document_that_is_not_utf8_is_refused_and_the_rest_kept():
    found = text_documents(b"good\nb\xffd\nalso\n", "line", "f", 100)
    assert found.text.to_pylist() == ["good", "also"]
    assert found.read == 3
    [reject] = found.rejects
    assert (reject.path, reject.offset, reject.reason) == ("f", 105, "not_utf8")
    assert "0xff" in reject.detail


BAD_LINES = {
    b'{"text": 3}': "not_a_string",
    b'{"x": "a"}': "missing_field",
    b'{"text": null}': "missing_field",
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
    assert rejects_of([found]) == [(50 + 18, BAD_LINES[line])]


def test_a_missing_field_names_those_that_are_there():
    [reject] = json_documents(b'{"body": "a", "id": 1}\n', TEXT_ROLES, "f", 0).rejects
    assert "'text'" in reject.detail and "body, id" in reject.detail


PRINTABLE = st.text(
    st.characters(exclude_categories=("C", "Z"), include_characters=" "), min_size=1
)


@given(st.lists(PRINTABLE, min_size=1), st.booleans())
def test_json_text_comes_back(texts, ascii_only):
    lines = [json.dumps({"n": 1, "text": t, "z": [t]}, ensure_ascii=ascii_only) for t in texts]
    found = json_documents("\n".join(lines).encode(), TEXT_ROLES, "f", 0)
    assert found.text.to_pylist() == texts
    assert not found.rejects


QA = (
    Role("question", "string", "question"),
    Role("context", "string", "context"),
    Role("id", "id", "id"),
    Role("answers", "answers", "answers"),
    Role("label", "label", "meta.label", optional=True),
)


def test_every_role_has_a_column_of_its_name():
    record = {
        "question": "Who?",
        "context": "Ada did.",
        "id": 7,
        "answers": {"text": ["Ada"], "answer_start": [0]},
    }
    line = json.dumps({**record, "meta": {"label": True}}).encode()
    found = json_documents(line, QA, "f", 0)
    assert found.columns.schema.names == ["question", "context", "id", "answers", "label"]
    answers = [{"text": "Ada", "start": 0}]
    assert rows_of([found]) == [{**record, "id": "7", "answers": answers, "label": "true"}]
    assert found.text.to_pylist() == ["Who?"]


ANSWERS = {
    '[{"text": "a", "answer_start": 3}, {"answer_start": 9, "x": 1, "text": "b"}]': [
        ("a", 3),
        ("b", 9),
    ],
    '{"text": ["a", "b"], "answer_start": [3, 9]}': [("a", 3), ("b", 9)],
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


@pytest.mark.parametrize("others", [(), *([(form,)] for form in ANSWERS)])
@pytest.mark.parametrize("form", [*ANSWERS, *BAD_ANSWERS])
def test_answers_in_every_form_alone_and_beside_another(form, others):
    """Alone a block is parsed by Arrow, beside another form line by line."""
    forms = [form, *(other for group in others for other in group)]
    data = "\n".join(f'{{"text": "t", "answers": {f}}}' for f in forms).encode()
    found = json_documents(data, ANSWER_ROLES, "f", 0)
    assert [[(a["text"], a["start"]) for a in row["answers"]] for row in rows_of([found])] == [
        ANSWERS[f] for f in forms if f in ANSWERS
    ]
    assert [r.reason for r in found.rejects] == [BAD_ANSWERS[f] for f in forms if f in BAD_ANSWERS]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ('{"question": "q", "context": "c", "answers": []}', "missing_field"),
        ('{"question": "q", "context": "c", "id": null, "answers": []}', "missing_field"),
        ('{"question": "q", "context": "c", "id": "", "answers": []}', "missing_field"),
        ('{"question": "q", "context": "c", "id": 1.5, "answers": []}', "not_an_id"),
        ('{"question": "q", "context": ["c"], "id": 1, "answers": []}', "not_a_string"),
        ('{"question": "q", "context": "c", "id": 1}', "missing_field"),
        (
            '{"question": "q", "context": "c", "id": 1, "answers": [], "meta": {"label": []}}',
            "not_a_label",
        ),
    ],
)
def test_a_document_without_a_role_is_refused(record, reason):
    good = '{"question": "q", "context": "", "id": 1, "answers": []}'
    found = json_documents(f"{good}\n{record}\n{good}".encode(), QA, "f", 0)
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


def test_a_text_file_has_no_other_roles():
    roles = (Role("text", "string", "text"), Role("label", "label", "l"), QA[3])
    found = text_documents(b"a\nb\n", "line", "f", 0, roles=roles, label="pos")
    assert rows_of([found]) == [{"text": t, "label": "pos", "answers": []} for t in "ab"]
