"""SQuAD's files, v1.1 and v2.0, by hand and the real one."""

import bz2
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipelines.readers.test_documents import QUESTION_ROLES
from tests.tools.read_sources import read_all, rejects_of, texts_of
from textmill.pipelines.readers.documents import Role
from textmill.pipelines.readers.formats import squad
from textmill.pipelines.readers.sources import Source
from textmill.pipelines.readers.stored import Part
from textmill.schemas.errors import DataError, UsageError

ROLES = QUESTION_ROLES[:4]


def article(*questions, context="Ada wrote it."):
    return {"title": "T", "paragraphs": [{"context": context, "qas": list(questions)}]}


GOOD = {"id": "a", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 0}]}
NO_ANSWERS = {"answers": [], "plausible_answers": [{"text": "it", "answer_start": 10}]}
IMPOSSIBLE = {"id": "b", "question": "When?", "is_impossible": True, **NO_ANSWERS}
BAD = [
    {"id": "c", "answers": []},
    {"question": "Why?", "answers": []},
    {"id": "d", "question": "Why?", "answers": [{"answer_start": 3}]},
    {"id": "e", "question": 3, "answers": []},
    {"id": "f", "question": "Why?"},
]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("compress", [lambda data: data, bz2.compress])
def test_questions_are_documents_and_bad_ones_are_refused_by_number(tmp_path, indent, compress):
    content = {"version": "v2.0", "data": [article(GOOD, *BAD), article(IMPOSSIBLE)]}
    path = tmp_path / f"x.json{'.bz2' if compress is bz2.compress else ''}"
    path.write_bytes(compress(json.dumps(content, indent=indent).encode()))
    [piece] = read_all(path, roles=ROLES)
    shared = {"context": "Ada wrote it."}
    assert piece.columns.to_pylist() == [
        {"question": "Who?", **shared, "id": "a", "answers": [{"text": "Ada", "start": 0}]},
        {"question": "When?", **shared, "id": "b", "answers": []},
    ]
    reasons = ("missing_field", "missing_field", "not_answers", "not_a_string", "missing_field")
    assert rejects_of([piece]) == list(enumerate(reasons, 1))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"data": [', "not complete JSON"),
        ('{"data": [{"paragraphs": 3}]}', r"no list 'paragraphs' at data\[0\]"),
        (
            '{"data": [{"paragraphs": [{"qas": [7]}]}]}',
            r"\[0\].paragraphs\[0\].qas\[0\] is not an obj",
        ),
        ('[{"text": "a"}]', "one JSON array.*jq -c"),
    ],
)
def test_what_is_not_built_as_squad_is_an_error(tmp_path, content, message):
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(DataError, match=rf"x\.json.*{message}"):
        read_all(path, roles=ROLES)


def test_json_lines_may_be_called_json_and_look_like_squad(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"data": "d", "text": "a"}\n{"text": "b"}\n')
    assert texts_of(read_all(path)) == ["a", "b"]
    path.write_text(json.dumps({"data": [article(GOOD)], "text": "a"}) + "\n")
    assert texts_of(read_all(path, input_format="jsonl")) == ["a"]
    with pytest.raises(
        UsageError, match="no field 'text', .*: answers, context, id.*input_format=jsonl"
    ):
        read_all(path)


STRINGS = st.sampled_from(["a", "null", 'b: "c"', "\u00e9\u2028", "", "Ada wrote it."])
ANSWERS = st.lists(
    st.fixed_dictionaries({"text": STRINGS}, optional={"answer_start": st.integers(-1, 20)}),
    max_size=3,
)
QUESTIONS = st.fixed_dictionaries(
    {"id": STRINGS, "question": STRINGS, "answers": ANSWERS},
    optional={"is_impossible": st.booleans()},
)
PARAGRAPHS = st.fixed_dictionaries(
    {"context": STRINGS, "qas": st.lists(QUESTIONS, min_size=1, max_size=3)}
)
ARTICLES = st.fixed_dictionaries({"paragraphs": st.lists(PARAGRAPHS, min_size=1, max_size=3)})
FIELDS = st.sampled_from(["id", "question", "context", "answers", "is_impossible"])
ODD = st.one_of(STRINGS, ANSWERS, st.booleans(), st.sampled_from([None, 7, {}, [None], ["a"]]))


def read_squad(data, roles):
    part = Part("x.json", len(data), 0, len(data), "squad")
    [documents] = squad.read(io.BytesIO(data), part, Source(("x.json",), roles=roles))
    return documents


@given(st.lists(ARTICLES, max_size=3), st.booleans(), st.data())
def test_whatever_a_field_holds_each_question_is_kept_refused_or_empty(articles, ascii_only, drawn):
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    questions = [question for paragraph in paragraphs for question in paragraph["qas"]]
    for _ in range(drawn.draw(st.integers(0, 2)) if articles else 0):
        some = drawn.draw(st.sampled_from([articles, paragraphs, questions]))
        field, where = drawn.draw(FIELDS), drawn.draw(st.integers(-1, len(some) - 1))
        for place in some if where < 0 else [some[where]]:
            if drawn.draw(st.booleans()):
                place[field] = drawn.draw(ODD)
            else:
                place.pop(field, None)
    data = json.dumps({"version": "x", "data": articles}, ensure_ascii=ascii_only).encode()
    optional = (*ROLES[:2], Role("id", "id", "id", optional=True), ROLES[3])
    for roles in (ROLES, optional, ROLES[:2]):
        found = read_squad(data, roles)
        assert found.read == len(questions)
        assert all(found.columns["question"].to_pylist())
        assert not any(column.null_count for column in found.columns.columns)


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        (article(GOOD, GOOD | {"question": "", "id": "f"}), ["a"]),
        (article(GOOD, IMPOSSIBLE | {"answers": GOOD["answers"]}), ["a", "b"]),
        (article(GOOD, GOOD | {"context": "Ada.", "id": "f"}), ["a", "f"]),  # its own
        (article(GOOD, GOOD | {"context": None, "id": "f"}), ["a"]),
        (article(GOOD | {"id": 7}), ["7"]),
        (article(GOOD | {"answers": [{"text": "Ada", "answer_start": None}]}), ["a"]),
        (article(GOOD | {"question": "\ud800"}), []),
    ],
)
def test_a_question_with_an_odd_field_is_kept_where_it_can_be(content, kept):
    data = json.dumps({"data": [content]}).encode()
    assert read_squad(data, ROLES).columns["id"].to_pylist() == kept
