"""The work of train_tokenizer without its printing, as Python code calls it."""

import json

import pytest

from textmill.pipelines.runners.result import Result
from textmill.pipelines.tokenizer.options import TextFlags, TokenizerOptions
from textmill.pipelines.tokenizer.run import plan, run
from textmill.pipelines.tokenizer.summary import print_plan, print_result
from textmill.schemas.errors import as_flags
from textmill.schemas.files.finished import TokenizerInfo
from textmill.schemas.typed_json import to_json


@pytest.fixture
def options(text, tmp_path):
    reading = TextFlags(input=(str(text),), document="line")
    return TokenizerOptions(vocab_size=300, output=str(tmp_path / "out"), reading=reading)


def test_run_makes_or_finds_a_tokenizer_and_prints_nothing(options, capsys):
    lines: list[str] = []
    made = run(options, [], say=lines.append)
    assert capsys.readouterr().out == ""
    assert [line.partition(":")[0] for line in lines] == ["counting words", "merging"]
    with open(f"{options.output}/report.json") as file:
        report = json.load(file)
    assert json.loads(to_json(made.thing.report)) == report and report["vocab_size"] == 300
    assert made.thing.directory == options.output
    assert made.seconds is not None and made.seconds > 0
    unit = "each line of a text file is one document (--document=line)"
    assert as_flags(made.documents) == unit

    lines.clear()
    found = run(options, [], say=lines.append)
    assert found == Result(
        thing=made.thing,
        seconds=None,
        documents=made.documents,
        warnings=made.warnings,
        inputs=options.reading.input,
    )
    assert lines == [] and capsys.readouterr().out == ""


def test_warnings_are_returned(options, text):
    text.write_text("a line\nanother\n\na second paragraph\n" * 9, newline="\r\n")
    reading = TextFlags(input=(str(text),))
    made = run(
        TokenizerOptions(vocab_size=5000, output=options.output, reading=reading),
        [],
        say=lambda _: None,
    )
    returns, small = made.warnings
    assert "contain a carriage return" in returns
    assert as_flags(small).endswith(
        "instead of 5,000: no other pair of tokens occurs 2 times; give more text, or a lower "
        "--vocab_size"
    )


def test_a_plan_is_returned(options, tmp_path, capsys):
    planned = plan(options, [], say=print)
    assert (planned.documents, planned.options) == (12, options)
    assert not (tmp_path / "out").exists() and capsys.readouterr().out == ""


def test_what_is_printed_goes_where_it_is_told(options, capsys):
    said: list[object] = []
    print_plan(plan(options, [], say=print), said.append)
    print_result(run(options, [], say=said.append), said.append)
    result = run(options, [], say=said.append)
    assert isinstance(result.thing, TokenizerInfo)
    print_result(result, said.append)
    lines = [str(each) for each in said if isinstance(each, str)]
    assert lines[2].startswith("next, build a dataset: ")
    assert lines[3] == f"{options.output} already contains this tokenizer: nothing to do"
    assert capsys.readouterr().out == ""
