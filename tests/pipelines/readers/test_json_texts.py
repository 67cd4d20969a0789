"""The scanner of JSON Lines beside `json.loads`: what it takes is equal, what is plain it takes."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from textmill.pipelines.readers.documents import find_lines
from textmill.pipelines.readers.formats.json_texts import read_texts

TEXTS = st.text(
    st.one_of(st.sampled_from('"\\/\b\f\n\r\tæ—中😀 \x7f'), st.characters(codec="utf-8"))
)
NUMBERS = st.one_of(
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0, -0.0, 1e99]),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
)
NAMES = st.one_of(st.sampled_from(["text", "title", "tex", "texts"]), st.text("ab ", max_size=5))
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=4).flatmap(
    lambda record: st.fixed_dictionaries(
        {}, optional={"text": st.one_of(TEXTS, st.none()), "title": TEXTS}
    ).map(lambda texts: {n: v for n, v in record.items() if n not in ("text", "title")} | texts)
)
FORMS = st.sampled_from([{}, {"separators": (",", ":")}, {"separators": (" ,\t", "\r: ")}])


def read(lines: list[bytes], *fields: str) -> list[dict[str, str | None]] | None:
    data = np.frombuffer(b"\n".join(lines), np.uint8)
    batch = read_texts(data, *find_lines(data, 0), fields)
    if batch is None:
        return None
    batch.validate(full=True)
    assert all(pa.types.is_large_string(column.type) for column in batch.columns)
    return batch.to_pylist()


@given(st.lists(OBJECTS, min_size=1, max_size=4), FORMS, st.booleans())
def test_plain_lines_are_taken_with_their_texts(records, form, ascii_only):
    lines = [json.dumps(r, ensure_ascii=ascii_only, **form).encode() for r in records]
    expected = [{name: record.get(name) for name in ("text", "title")} for record in records]
    assert read([b" " + line + b"\t" for line in lines], "text", "title") == expected


def oracle(line: bytes) -> dict[str, str | None] | None:
    """What json.loads makes of a line, if it is an object with a text."""
    try:
        record = json.loads(line.decode())
        str(record).encode()
    except (ValueError, RecursionError):
        return None
    is_text = isinstance(record, dict) and isinstance(record.get("text"), str | None)
    return {"text": record.get("text")} if is_text else None


@settings(max_examples=500)
@given(OBJECTS, FORMS, st.data())
def test_a_damaged_line_is_refused_or_equal(record, form, data):
    line = bytearray(json.dumps({"text": "a", **record}, **form).encode())
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.integers(0, len(line) - 1))
        piece = data.draw(st.sampled_from([*b'"\\{}[],:0189eE+-.tnu aD\t\x00\x1f', -1]))
        line[place : place + 1] = b"" if piece < 0 else bytes([piece])
    if b"\n" in line or not line.strip():
        return
    found = read([bytes(line)], "text")
    assert found is None or found == [oracle(bytes(line))]


@pytest.mark.parametrize(
    "line",
    [
        *('{"text":"a","b":' + bad + "}" for bad in ("01", "1.", "1e", "-", "+1", ".5", "tru")),
        *('{"text":"a","b":' + bad + "}" for bad in ("nulls", "[1,]", "[,]", '{"a"}', '{"a":}')),
        *('{"text":"a","b":' + bad + "}" for bad in ('{"a":1,}', "[1}", "1 2", "'a'", "[", "")),
        *(
            '{"text":"' + bad + '"}'
            for bad in ("\t", "\\x", "\\u12g4", "\\ud800", "\\udc00\\ud800")
        ),
        *('{"text":"a"' + end for end in ("", ",}", "}x", '} {"text":"b"}', "]", '"b":1}', ":1}")),
        *("[1]", '"text"', "null", "{text:1}", '{"text":1}', '{"text":["a"]}', '{"text"}', "{,}"),
        *('{"text":"a","text":"b"}', '{"\\u0074ext":"a"}', '{"b":NaN}', '{"b":' + "[" * 61 + "}"),
    ],
)
def test_lines_that_are_refused(line):
    """The last ones are rare, and left to json.loads."""
    assert read([b'{"text":"before"}', line.encode()], "text") is None


def test_escapes_at_every_place_of_64_bytes():
    texts = [
        "x" * before + mark + "y" * after
        for before in range(66)
        for after in (0, 1, 2, 61, 62, 63, 64, 65)
        for mark in (
            '"',
            "\\",
            "\n",
            "\n\t" * 35,
            "\nz\x1f",
            "\u00e9",
            "\u20ac",
            "\U0001f600",
            "\x1f",
        )
    ]
    lines = [json.dumps({"text": text}).encode() for text in texts]
    assert read(lines, "text") == [{"text": text} for text in texts]
    assert [read([line], "text") for line in lines] == [[{"text": text}] for text in texts]
    assert not any(read([line[:-3] + b"\\", line], "text") for line in lines)


def test_missing_fields_and_null_are_null():
    lines = [b'{"text":"a","title":null}', b"{}", b'{"title":"\\u00e9"}']
    assert read(lines, "text", "title") == [
        {"text": "a", "title": None},
        {"text": None, "title": None},
        {"text": None, "title": "é"},
    ]
    assert read([b"{" + b'"deep":' + b"[" * 60 + b"]" * 60 + b"}"], "text") == [{"text": None}]
