"""histogram.parquet: what it holds, what is not a histogram, and training from one."""

import json
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.tools.places import ROOT
from textmill.pipelines.encoding.patterns import PATTERNS
from textmill.pipelines.tokenizer import histogram
from textmill.pipelines.tokenizer.histogram import (
    Histogram,
    Origin,
    PreTokenization,
    read_histogram,
    to_parquet,
)
from textmill.schemas.errors import DataError, UsageError


def histogram_bytes(counts: dict[bytes, int], metadata: dict | None = None, **origin) -> bytes:
    table = pa.table([list(counts), list(counts.values())], schema=histogram.SCHEMA)
    given: dict[str, Any] = {"cutting": PreTokenization(), "documents": 1, "bytes": 3}
    given |= {"normalized_bytes": 3} | origin
    content = to_parquet(Histogram(table, Origin(**given)))
    return (
        content
        if metadata is None
        else parquet_of(
            pq.read_table(pa.BufferReader(content)), {"textmill.histogram": json.dumps(metadata)}
        )
    )


def parquet_of(table: pa.Table, metadata: dict | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata(metadata), sink)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"no Parquet", "cannot be read as Parquet"),
        (histogram_bytes({b"abc": 1})[:-100], "cannot be read as Parquet"),
        (parquet_of(pa.table({"a": [1]})), "has no word counts"),
        (histogram_bytes({b"b": 1, b"a": 2}), "is damaged"),
        (histogram_bytes({b"a": 1, b"a\0": 0}), "is damaged"),
        (histogram_bytes({b"a": 2}), "is damaged"),
        (histogram_bytes({b"a": 3}, bytes="3"), "bytes is '3', not of type int"),
        (histogram_bytes({b"a": 3}, {"format_version": 2}), "missing fields"),
        (histogram_bytes({b"a": 3}, {}), "has format version None"),
        (histogram_bytes({b"a": 3}, format_version=9), "has format version 9"),
    ],
)
def test_files_that_are_no_histogram(tmp_path, content, says):
    (tmp_path / "h").write_bytes(content)
    with pytest.raises(DataError, match=says):
        read_histogram(str(tmp_path / "h"))


def test_a_histogram_trains_the_tokenizer_of_its_text(train, tmp_path):
    first = tmp_path / "first"
    flags = ("--pattern=llama3", "--normalizer=nfkc", "--add_prefix_space")
    train("first", *flags)
    found = read_histogram(str(first / "histogram.parquet"))
    assert found.origin.cutting == PreTokenization(PATTERNS["llama3"], "nfkc", True)
    given = (f"--from_histogram={first}/histogram.parquet", "--add_prefix_space")
    for name, more in {"again": [], "same": ["--pattern=digits:3"]}.items():
        report = train(name, *given, *more)
        assert (report["text"]["documents"], report["fertility"]) == (12, [])
        for file in ("tokenizer.json", "histogram.parquet"):
            assert (tmp_path / name / file).read_bytes() == (first / file).read_bytes()
    train("again", *given)  # found
    with pytest.raises(UsageError, match="one is trained from text, the other from a histogram"):
        train("first", *given, *flags)
    report = train("first", *given, "--vocab_size=310", "--overwrite")  # its own histogram
    assert report["vocab_size"] == 310


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        (
            "--filter=my_filters:spam",
            "^--filter=my_filters:spam: it has no effect with a histogram, which",
        ),
        ("--group_field=lang", "^--group_field=lang: it has no effect with"),
        ("--text_field=body", "^--text_field=body: it has no effect with"),
        ("--document=line", "^--document=line: it has no effect with"),
        ("--input=text", "^--input=text: it has no effect with a histogram, which holds words"),
        ("--from_histogram=gone", "there is no such file"),
        ("--from_histogram=.", "is a directory; give the histogram.parquet"),
        ("--pattern=gpt2", "was counted with --pattern=llama3, but this command has gpt2:"),
        ("--normalizer=none", "was counted with --normalizer=nfkc, but this command has none:"),
        ("--add_prefix_space", "was counted with --add_prefix_space=False, but this"),
        ("--model=wordpiece", "was counted with --pattern=llama3, but this command has"),
    ],
)
def test_flags_that_a_histogram_excludes(train, tmp_path, flag, says):
    cutting = PreTokenization(PATTERNS["llama3"], "nfkc")
    (tmp_path / "h").write_bytes(histogram_bytes({b"abc": 1}, cutting=cutting))
    with pytest.raises(UsageError, match=says):
        train("out", f"--from_histogram={tmp_path}/h", flag)
    assert not (tmp_path / "out" / "tokenizer.json").exists()


def test_training_pulls_in_no_beam_from_a_histogram(tmp_path):
    """Beam takes a second or more to import."""
    (tmp_path / "h").write_bytes(histogram_bytes({b"abc": 1}))
    code = (
        "import sys; from textmill.pipelines import train_tokenizer\n"
        f"train_tokenizer.main(['--from_histogram={tmp_path}/h',"
        f"'--vocab_size=280', '--output={tmp_path}/out'])\n"
        "assert not {'apache_beam', 'jax', 'torch', 'tensorflow'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
