"""The value of --shards: one dataset, or several with weights."""

import re

import pytest

from textmill.schemas.errors import UsageError
from textmill.trainers.data.shards_value import parse_shards, shards_name


@pytest.mark.parametrize(
    "text, expected",
    [
        ("data/a", {"data/a": None}),
        ("gs://bucket/a", {"gs://bucket/a": None}),
        ("a:0.7,b:0.3", {"a": 0.7, "b": 0.3}),
        ("a:7,b:3e-1,c:.5", {"a": 7.0, "b": 0.3, "c": 0.5}),
        ("a:1", {"a": 1.0}),
        ("x:y:0.7,gs://b/c:3", {"x:y": 0.7, "gs://b/c": 3.0}),
        ("host:80:1,b:1", {"host:80": 1.0, "b": 1.0}),
        ("a:1,b,c:2", {"a": 1.0, "b,c": 2.0}),
    ],
)
def test_shards_flag(text, expected, tmp_path, monkeypatch):
    assert parse_shards(text) == expected
    monkeypatch.chdir(tmp_path)
    (tmp_path / text).mkdir(parents=True)
    assert parse_shards(text) == {text: None}, "a directory is one, whatever its name"


def test_a_name_of_shards():
    assert shards_name("data/books:0.7,data/web:0.3") == "books+web"


@pytest.mark.parametrize(
    "text, said",
    [
        ("a,b", "'a,b' has no weight"),
        ("a:0.7,b", "'b' has no weight; give one directory, or each with its weight"),
        ("a:0.7,a:0.3", "names a twice"),
        ("a:0.7.1,b:1", "'0.7.1' is not a number"),
    ],
)
def test_wrong_shards_flags(text, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        parse_shards(text)
