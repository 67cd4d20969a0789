"""Results are paths with counts, and `textmill.open` finds them again."""

import base64
import json
import os
import re
import shutil

import pytest

import textmill as tm
from tests.golden.outputs import HERE, KEPT
from tests.tools.clm_factory import write_clm_set
from tests.tools.corpus_factory import build
from tests.tools.numpy_program import numpy_flags, numpy_trainer
from tests.tools.python_process import run_python
from textmill.pipelines.inspection.report.parts import FactList
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
    assert f"<dt>dataset</dt><dd><bdi>{shards}</bdi></dd>" in data._repr_html_()
    assert tm.ShardSet(data).rows("train") == 40


def test_a_run(run):
    found = tm.open(run)
    assert type(found) is Run and found.settings["trainer"] == "numpy_clm"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert found.metrics() == lines
    assert list(found.facts()) == ["trainer", "training loss", "validation loss"]
    picture = base64.b64encode((run / "loss.png").read_bytes()).decode()
    html = found._repr_html_()
    assert f'<img alt="losses" src="data:image/png;base64,{picture}"' in html
    assert "Textmill · run · numpy_clm" in html and "<dt>validation loss</dt>" in html


def test_what_a_builder_made_in_a_notebook():
    data = tm.open(KEPT / "clm")._repr_html_()
    assert "<h1>18 documents in 40 rows of 32 tokens</h1>" in data
    assert 'aria-label="from read 18, to train 15, validation 3"' in data
    corpus = tm.open(KEPT / "corpus")._repr_html_()
    assert "<h1>18 of 24 documents kept</h1>" in corpus
    flow = "from read 24, to kept 18, too few sentences 4, exact duplicates 1, near-duplicates 1"
    assert f'aria-label="{flow}"' in corpus
    tokenizer = tm.open(KEPT / "bpe")._repr_html_()
    assert "<h1>360 tokens</h1>" in tokenizer and "<dt>merges</dt><dd>97</dd>" in tokenizer
    assert "Fertility" in tokenizer and "<bdi>3.25</bdi>" in tokenizer


def test_the_head_of_a_report_is_that_of_the_notebook(tmp_path):
    build(HERE / "inputs" / "documents.jsonl", tmp_path / "corpus", "--min_words=5")
    page = (tmp_path / "corpus" / "report.html").read_text()
    shown = tm.open(tmp_path / "corpus")._repr_html_()
    for start, end in (("<header>", "</header>"), ('<div class="flow"', "</div>\n")):
        first = shown.index(start)
        part = shown[first : shown.index(end, first)]
        assert len(part) > 300 and part in page


def test_what_a_notebook_shows_is_escaped():
    class Odd(Corpus):
        def _head(self):
            return [FactList({"<b>": "a & b\x1b[31m"})]

    html = Odd("<script>", warnings=("1 < 2", "x"))._repr_html_()
    shown = html[html.index("</style>") :]
    tags = {*re.findall("<[^>]*>", shown)}
    assert tags <= {"</style>", '<dl class="facts">', "</dl>", "</div>", *_FACT}
    assert "&lt;script&gt;" in html and "a &amp; b\\x1b[31m" in html
    assert html.count("<dt>warning") == 2


_FACT = ("<dt>", "</dt>", "<dd>", "</dd>", "<bdi>", "</bdi>")


def test_a_host_of_trainers_shows_counts(shards):
    """It has jinja2, but no pyarrow."""
    code = "import sys; sys.modules['pyarrow'] = None; import textmill as tm; "
    result = run_python("-c", code + f"print(tm.open({str(shards)!r})._repr_html_())")
    assert "<dt>rows</dt><dd><bdi>train 40, validation 10</bdi></dd>" in result.stdout


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
