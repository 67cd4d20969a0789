"""Bytes -> documents, by hand and against the plainest reading."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.documents import json_documents, text_documents


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
    assert texts(b"a\n\nb\n", "file") == ["a\n\nb\n"]
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


@given(st.lists(st.sampled_from(["a", "é", " ", "\n", "\r\n", "\r", "\u2028"])))
def test_lines_are_those_of_the_plainest_reading(parts):
    text = "".join(parts)
    plain = [line[:-1] if line.endswith("\r") else line for line in text.split("\n")]
    assert texts(text.encode()) == [line for line in plain if line]


BAD_LINES = {
    b'{"text": 3}': "not_a_string",
    b'{"x": "a"}': "missing_field",
    b'{"text": null}': "missing_field",
    b"nope": "broken_json",
    b'{"text": "a"} {"text": "b"}': "broken_json",
    b'{"text": "\\ud800"}': "lone_surrogate",
    b'{"text": "\xff"}': "not_utf8",
    b"[1]": "not_an_object",
    b"[" * 100_000: "broken_json",
}


@pytest.mark.parametrize("line", BAD_LINES, ids=lambda line: line[:20])
def test_a_bad_json_line_is_refused_by_name_and_the_rest_kept(line):
    data = b'{"text": "first"}\n' + line + b'\n\n{"text": ""}\n{"text": "last"}'
    found = json_documents(data, "text", "f", 50)
    assert found.text.to_pylist() == ["first", "last"]
    assert (found.read, found.empty) == (4, 1)
    [reject] = found.rejects
    assert (reject.offset, reject.reason) == (50 + 18, BAD_LINES[line])


def test_a_missing_field_names_those_that_are_there():
    [reject] = json_documents(b'{"body": "a", "id": 1}\n', "text", "f", 0).rejects
    assert "'text'" in reject.detail and "body, id" in reject.detail


@given(st.lists(st.text(min_size=1).filter(lambda t: t.isprintable()), min_size=1), st.booleans())
def test_json_text_comes_back(texts, ascii_only):
    lines = [json.dumps({"n": 1, "text": t, "z": [t]}, ensure_ascii=ascii_only) for t in texts]
    found = json_documents("\n".join(lines).encode(), "text", "f", 0)
    assert found.text.to_pylist() == texts
    assert not found.rejects


def test_the_fast_and_the_careful_parser_agree():
    good = b'{"text": "a\\u0000b \\ud83d\\ude00"}\r\n{"te\\u0078t": "c"}\n'
    careful = json_documents(good + b"broken\n", "text", "f", 0)
    assert json_documents(good, "text", "f", 0).text.equals(careful.text)
