"""The value of --shards: one dataset, or several with weights, names, or stages."""

import re

import pytest

from textmill.schemas.errors import UsageError
from textmill.trainers.data.shards_value import (
    ShardsPart,
    absolute_shards,
    check_shares,
    parse_shards,
    shards_name,
)
from textmill.trainers.data.stages import Stages


@pytest.mark.parametrize(
    "text, expected",
    [
        ("data/a", [ShardsPart("data/a")]),
        ("gs://bucket/a", [ShardsPart("gs://bucket/a")]),
        ("a:0.7,b:0.3", [ShardsPart("a", 0.7), ShardsPart("b", 0.3)]),
        ("a:7,b:3e-1,c:.5", [ShardsPart("a", 7.0), ShardsPart("b", 0.3), ShardsPart("c", 0.5)]),
        ("a:1", [ShardsPart("a", 1.0)]),
        ("x:y:0.7,gs://b/c:3", [ShardsPart("x:y", 0.7), ShardsPart("gs://b/c", 3.0)]),
        ("host:80:1,b:1", [ShardsPart("host:80", 1.0), ShardsPart("b", 1.0)]),
        ("a:1,b,c:2", [ShardsPart("a", 1.0), ShardsPart("b,c", 2.0)]),
        ("data/a,gs://b/c", [ShardsPart("data/a"), ShardsPart("gs://b/c")]),
        ("web=data/a", [ShardsPart("data/a", name="web")]),
        (
            "web=data/a,x-1=gs://b/day=1",
            [ShardsPart("data/a", name="web"), ShardsPart("gs://b/day=1", name="x-1")],
        ),
        ("web=a:0.7,b:0.3", [ShardsPart("a", 0.7, "web"), ShardsPart("b", 0.3)]),
    ],
)
def test_shards_flag(text, expected, tmp_path, monkeypatch):
    assert parse_shards(text) == expected
    monkeypatch.chdir(tmp_path)
    (tmp_path / text).mkdir(parents=True)
    assert parse_shards(text) == [ShardsPart(text)], "a directory is one, whatever its name"


def test_a_name_of_shards():
    assert shards_name("data/books:0.7,data/web:0.3") == "books+web"
    assert shards_name("old=data/v1,data/v2") == "old+v2"


def test_absolute_shards(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for text, due in (
        ("a", f"{tmp_path}/a"),
        ("a:1,n=gs://b/c:2", f"{tmp_path}/a:1.0,n=gs://b/c:2.0"),
        ("a,n=b", f"{tmp_path}/a,n={tmp_path}/b"),
    ):
        assert absolute_shards(text) == due == absolute_shards(due)


@pytest.mark.parametrize(
    "text, said",
    [
        ("a:0.7,b", "'b' has no weight; give one directory, or each with its weight"),
        ("a:0.7,a:0.3", "names a twice"),
        ("a,a", "names a twice"),
        ("x=a,x=b", "gives two datasets the name x"),
        ("a:0.7.1,b:1", "'0.7.1' is not a number"),
    ],
)
def test_wrong_shards_flags(text, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        parse_shards(text)


@pytest.mark.parametrize(
    ("text", "stages", "said"),
    [
        ("a,b", None, "--shards=a,b: 'a,b' has no weight; give one directory, or each with its"),
        ("a:1,b:1", "0:a=1", "--stages=0:a=1 gives the shares of the datasets: leave the weights"),
        ("x/a,x/b", "0:a=1;5:c=1", "there is no dataset 'c'; --shards has a, b. --shards=c=DIR"),
        ("x/v,y/v", "0:v=1", "there is no dataset 'v'; --shards has x/v, y/v"),
    ],
)
def test_shares_are_given_once(text, stages, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        check_shares(text, Stages.parse(stages) if stages else None)


def test_shares_that_are_given_once():
    for text, stages in (
        ("a", None),
        ("a:1,b:2", None),
        ("x/a,x/b", "0:a=1;5:b=1"),
        ("w=x/v,y/v", "0:w=1;5:v=1"),
    ):
        check_shares(text, Stages.parse(stages) if stages else None)
