"""The command in this process, as the tests of this folder run it."""

import json
import sys

import pytest
import zstandard

from tests.tools.places import DATA
from textmill.pipelines import train_tokenizer

TEXT = (
    "low lower lowest\nnew newer newest, it's wide wider widest\n\n"
    "Blåbær på Ærø: 中文字符 и кириллица 🙂\nlow lower lowest low\n"
) * 3


@pytest.fixture
def text(tmp_path):
    """A file with 12 lines of text."""
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture
def train(tmp_path, text):
    """Runs the command into a directory of this name, and returns its report.

    A document is a line of `text` and the vocabulary has 300 tokens, but for flags that change it.
    """

    def run(name, *flags):
        given = {flag.partition("=")[0] for flag in flags}
        usual = {"--vocab_size": "300", "--document": "line", "--input": str(text)}
        if "--from_histogram" in given:
            del usual["--input"], usual["--document"]
        elif "--input" in given and not any(".txt" in flag for flag in flags):
            del usual["--document"]
        usual = {} if "--config" in given else usual
        more = [f"{flag}={value}" for flag, value in usual.items() if flag not in given]
        train_tokenizer.main([f"--output={tmp_path / name}", *more, *flags])
        return json.loads((tmp_path / name / "report.json").read_text())

    return run


@pytest.fixture(scope="session")
def real_texts():
    """Reads the lines of a file of real data; of JSON their text."""
    if not DATA.is_dir():
        pytest.skip("../shared/data is not there")

    def read(name):
        with zstandard.open(DATA / f"{name}.zst", "rt", encoding="utf-8") as file:
            lines = filter(None, file.read().split("\n"))
            return [json.loads(line)["text"] if "jsonl" in name else line for line in lines]

    return read


@pytest.fixture
def calls_of():
    """Counts the functions that the interpreter calls, Python's and C's, while another runs."""

    def count_calls(function):
        calls = 0

        def count(_, event, __):
            nonlocal calls
            calls += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            function()
        finally:
            sys.setprofile(None)
        return calls

    return count_calls
