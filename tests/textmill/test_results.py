"""Results are paths with counts, and `textmill.open` finds them again."""

import base64
import json
import os
import re
import shutil

import pytest

import textmill as tm
from tests.tools.clm_factory import write_clm_set
from tests.tools.numpy_program import numpy_flags, numpy_trainer
from textmill.results import Corpus, Dataset, Run
from textmill.trainers.run.start import train


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    directory = tmp_path_factory.mktemp("results") / "shards"
    write_clm_set(directory, train=40, validation=10)
    return directory


@pytest.fixture(scope="module")
def run(shards, tmp_path_factory):
    """A run without a framework."""
    output = tmp_path_factory.mktemp("results") / "run"
    assert train(numpy_flags(shards, output), numpy_trainer()) == output
    return output


def test_a_dataset(shards):
    data = tm.open(shards)
    assert type(data) is Dataset and (os.fspath(data), str(data)) == (str(shards), str(shards))
    assert data.report == f"{shards}/report.html"
    assert data.stats.split("train").rows == 40 and data.schema.task == "clm"
    facts = data.facts()
    assert list(facts) == ["task", "documents", "rows", "tokens", "packing efficiency"]
    assert facts["rows"] == "train 40, validation 10"
    assert data._repr_html_().startswith(
        f'<table><tr><th style="text-align:left">dataset</th><td>{shards}</td></tr>'
    )
    assert tm.ShardSet(data).rows("train") == 40


def test_a_run(run):
    found = tm.open(run)
    assert type(found) is Run and found.settings["trainer"] == "numpy_clm"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert found.metrics() == lines
    assert list(found.facts()) == ["trainer", "training loss", "validation loss"]
    picture = base64.b64encode((run / "loss.png").read_bytes()).decode()
    assert found._repr_html_().endswith(f'base64,{picture}">')


def test_what_a_notebook_shows_is_escaped():
    class Odd(Corpus):
        def facts(self):
            return {"<b>": "a & b\x1b[31m"}

    html = Odd("<script>", warnings=("1 < 2", "x"))._repr_html_()
    assert re.findall("<[^>]*>", html) == ["<table>", *_ROW * 4, "</table>"]
    assert "&lt;script&gt;" in html and "a &amp; b\\x1b[31m" in html
    assert html.count(">warning<") == 2


_ROW = ["<tr>", '<th style="text-align:left">', "</th>", "<td>", "</td>", "</tr>"]


@pytest.mark.parametrize("name", ["nothing", "a_file", "text"])
def test_other_directories_are_refused(tmp_path, name):
    (tmp_path / "a_file").write_text("x")
    (tmp_path / "text").mkdir()
    with pytest.raises(tm.UsageError, match=f"{name} holds no finished corpus, dataset, tokenizer"):
        tm.open(tmp_path / name)


def test_damage_is_a_data_error(shards, tmp_path):
    copy = shutil.copytree(shards, tmp_path / "copy")
    (copy / "stats.json").unlink()
    with pytest.raises(tm.DataError, match="stats.json is missing, but MANIFEST.json lists"):
        tm.open(copy)
    (copy / "schema.json").write_text("{")
    with pytest.raises(tm.DataError, match="schema.json"):
        tm.open(copy)
