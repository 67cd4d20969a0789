"""The demo: its documents, its commands, its failures. People run `make demo`: it trains."""

import json
import re
import sys

import pytest

from tests.tools.places import ROOT
from textmill.pipelines.demo import main, read_docstrings, run, write_documents
from textmill.schemas.errors import DataError, UsageError


def test_docstrings_are_read_without_importing(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "module.py").write_text(
        '"""A module."""\n'
        "raise SystemExit('imported')\n"
        "class A:\n    '''A class.\n\n    More.\n    '''\n"
        "    async def b(self):\n        'A method.'\n"
        "def silent(): pass\n"
    )
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "left_out.py").write_text('"""A test."""')
    assert list(read_docstrings(tmp_path)) == [
        ("package.module.", "A module."),
        ("package.module.A", "A class.\n\nMore."),
        ("package.module.b", "A method."),
    ]


@pytest.fixture
def short(monkeypatch):
    docstrings = [("m.f", "x" * 40), ("n", "x")]
    monkeypatch.setattr("textmill.pipelines.demo.read_docstrings", lambda root: iter(docstrings))


def test_the_corpus_is_json_lines_and_replaces_no_file_of_the_user(tmp_path, short):
    raw = tmp_path / "raw.jsonl"
    raw.write_text('{"text": "mine"}')
    with pytest.raises(UsageError, match="raw.jsonl is not the text of this Python's demo: use an"):
        main([f"--output={tmp_path}"])
    assert raw.read_text() == '{"text": "mine"}'
    raw = tmp_path / "new" / "raw.jsonl"
    number, size = write_documents(raw)
    assert write_documents(raw) == (number, size)
    lines = raw.read_bytes().split(b"\n")
    assert lines.pop() == b"" and len(lines) == number > 50
    assert json.loads(lines[-1]) == {"name": "m.f", "text": "x" * 40}
    assert size == raw.stat().st_size > 300_000


@pytest.mark.parametrize(
    ("name", "error", "reason"),
    [
        ("file", DataError, "cannot write .*/file/raw.jsonl: "),
        ("file/below", DataError, "cannot write .*raw.jsonl: "),
        ("gs://bucket/demo", UsageError, "--output=gs://.*: give a directory of this machine"),
    ],
)
def test_an_output_that_is_no_directory_is_refused(tmp_path, short, name, error, reason):
    (tmp_path / "file").touch()
    with pytest.raises(error, match=reason):
        main([f"--output={name if '://' in name else tmp_path / name}"])


def test_a_command_that_fails_stops_the_demo(tmp_path, capfd):
    with pytest.raises(DataError, match="python -m pipelines.verify .* ended with exit code 1"):
        run(["pipelines.verify", str(tmp_path / "nothing")])
    said = capfd.readouterr()
    assert "$ python -m pipelines.verify" in said.out
    assert "error:" in said.err


@pytest.mark.slow  # the golden outputs have each command
def test_the_way_from_text_to_the_last_screen(tmp_path, capfd, monkeypatch):
    """Every step for real, on a few documents and three training steps."""
    words = (" ".join(f"word{i * k % 97}" for k in range(i % 40 + 10)) for i in range(1, 301))
    documents = [(f"m{i}", text) for i, text in enumerate(words)]
    monkeypatch.setattr("textmill.pipelines.demo.read_docstrings", lambda root: iter(documents))
    monkeypatch.setattr("textmill.pipelines.demo.topics.topics", {})
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    main([f"--output={tmp_path}", "--steps=3", "--vocab_size=400", "--max_length=64"])
    said = capfd.readouterr().out
    assert said.count("$ python -m ") == 5
    assert "loss" in said.split("From text to a training step")[1]
    assert "Run next" in said
    assert sys.executable not in said
    # The page shows the lines of a longer run: the same commands, and rows of the same names.
    shown = (ROOT / "docs/quick_start.md").read_text().split("$ make demo")[1].split("```")[0]
    commands = re.findall(r"^\$ python -m [\w.]+", shown, re.M)
    assert commands == re.findall(r"^\$ python -m [\w.]+", said, re.M)
    names = re.findall(r"^│ [\w ]+\b", shown, re.M)
    assert len(names) > 3 and [name for name in names if f"{name} " not in said] == []
