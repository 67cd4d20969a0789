"""The code of docs/extending.md (a task, an input format, a filter, a rule) runs in a checkout."""

import gzip
import json
import re
from pathlib import Path

import pytest

from tests.tools.places import ROOT
from tests.tools.python_process import run_python

PAGE = ROOT / "docs" / "extending.md"
TASK, FEATURES = "pipelines/tasks/prefix_lm.py", "schemas/format/features.py"
FORMAT, FORMATS = "pipelines/readers/formats/endoftext.py", "pipelines/readers/formats/table.py"
FILTER = "my_filters.py"
RULE, RULES = "pipelines/corpus/rules/shouting.py", "pipelines/corpus/filters.py"


def code_of_page():
    """The page's blocks of Python by the file that is named before each."""
    text = PAGE.read_text(encoding="utf-8")
    block = r"^`(\S+\.py)`\n\n(?:<!--[^>]*-->\n)?```python\n(.*?)^```$"
    return dict(re.findall(block, text, re.M | re.S))


def link_all_but(changed, here, root):
    """Makes `root` like `here`, of links, without the files that are going to be written."""
    root.mkdir()
    for entry in here.iterdir():
        if entry.name == "__pycache__" or entry in changed:
            continue
        if any(entry in path.parents for path in changed):
            link_all_but(changed, entry, root / entry.name)
        else:
            (root / entry.name).symlink_to(entry)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A checkout with the page's code added: all else are links to the real files."""
    root = tmp_path_factory.mktemp("checkout")
    code = code_of_page()
    for package in ("pipelines", "schemas"):
        link_all_but([ROOT / path for path in code], ROOT / package, root / package)
    (root / "textmill").mkdir()
    for path in (ROOT / "textmill").iterdir():
        own = root / path.name if path.name in ("pipelines", "schemas") else path.resolve()
        (root / "textmill" / path.name).symlink_to(own)
    # As a reader of the page would: a function before its table, and a line in a table.
    function, row = code.pop(FEATURES).split("_TASKS = {..., ")
    row = row.strip().removesuffix("}")
    class_import, rule_row = code.pop(RULES).split("\n\n")
    first_import = "from textmill.pipelines.corpus.rules.sizes import Sizes\n"
    first_row = "    sizes: Row[Sizes]"
    assert (ROOT / RULES).read_text().count(first_import) == 1
    table = {
        RULES: (first_row, f"{rule_row}{first_row}"),
        FEATURES: ("_TASKS = {\n", f"{function}\n_TASKS = {{\n    {row},\n"),
        FORMATS: ("    for row in (\n", f"    for row in (\n        {code.pop(FORMATS)}"),
    }
    for path, (old, new) in table.items():
        text = (ROOT / path).read_text()
        assert text.count(old) == 1
        (root / path).write_text(text.replace(old, new))
    rules = root / RULES
    rules.write_text(rules.read_text().replace(first_import, f"{class_import}\n{first_import}"))
    for path, text in code.items():
        (root / path).write_text(text)
    return root


def run(checkout, *arguments):
    done = run_python(*arguments, cwd=checkout)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_thirty_lines_are_thirty():
    code = code_of_page()
    assert set(code) == {TASK, FEATURES, FORMAT, FORMATS, FILTER, RULE, RULES}
    for path in (TASK, FORMAT):
        assert len([line for line in code[path].splitlines() if line.strip()]) <= 30


def test_the_task_makes_a_set(checkout, topics, tokenizer_path, tmp_path):
    texts = [text for text in topics[:60] if text]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (tmp_path / "in.jsonl").write_text(lines)
    output = str(tmp_path / "set")
    flags = ["--task=prefix_lm", "--prefix_share=0.25", "--max_length=40", "--num_shards=1"]
    paths = [f"--input={tmp_path / 'in.jsonl'}", f"--tokenizer={tokenizer_path}"]
    run(checkout, "-m", "pipelines.build_shards", *flags, *paths, f"--output={output}")
    assert run(checkout, "-m", "pipelines.verify", output).startswith("ok: 1 dataset")
    assert "loss_weights" in run(checkout, "-m", "pipelines.inspect_shards", output)
    schema = json.loads(Path(output, "schema.json").read_text())
    assert schema["parameters"]["prefix_share"] == 0.25
    rows = str(tmp_path / "rows")
    run(checkout, "-m", "pipelines.export", output, "--to=jsonl", f"--output={rows}")
    segments = 0
    for line in Path(rows, "train-00000-of-00001.jsonl").read_text().splitlines():
        row = json.loads(line)
        numbers = row["segment_ids"]
        for number in range(1, max(numbers) + 1):
            places = [place for place, other in enumerate(numbers) if other == number]
            prefix = -(-len(places) // 4)
            mask = [row["prefix_mask"][place] for place in places]
            assert mask == [1] * prefix + [0] * (len(places) - prefix)
            assert [1 - row["loss_weights"][place] for place in places] == mask
            segments += 1
    assert segments >= len(set(texts)) * 0.9


@pytest.mark.slow
def test_the_format_and_the_filter_make_a_set(checkout, tokenizer_path, tmp_path):
    texts = [b"One document\nof two lines.", b"Buy now!", b"", b"\xff is not UTF-8", b"The last."]
    (tmp_path / "in.eot.gz").write_bytes(gzip.compress(b"\n<|endoftext|>\n".join(texts)))
    output = tmp_path / "set"
    flags = [f"--input={tmp_path}/*", f"--tokenizer={tokenizer_path}", f"--output={output}"]
    flags += ["--task=clm", "--filter=my_filters:spam", "--max_length=40"]
    run(checkout, "-m", "pipelines.build_shards", *flags)
    assert run(checkout, "-m", "pipelines.verify", str(output)).startswith("ok: 1 dataset")
    statistics = json.loads((output / "stats.json").read_text())
    assert statistics["documents_read"] == len(texts)
    assert statistics["documents_rejected"] == {"empty": 1, "filter:advert": 1, "not_utf8": 1}
    refused = json.loads((output / "rejects" / "rejects.jsonl").read_text())
    assert (refused["reason"], refused["offset"]) == ("not_utf8", 3)
    found = run(checkout, "-m", "pipelines.inspect_shards", str(output), "--search=two lines")
    assert "One document↵of two lines." in found


def test_the_rule_drops_documents(checkout, tmp_path):
    texts = ["Plain text.", "BUY NOW", "ÆØÅ", "123", ""]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (tmp_path / "in.jsonl").write_text(lines)
    paths = [f"--input={tmp_path / 'in.jsonl'}", f"--output={tmp_path / 'corpus'}"]
    run(checkout, "-m", "pipelines.build_corpus", "--max_capitals=0.3", *paths)
    statistics = json.loads((tmp_path / "corpus" / "stats.json").read_text())
    assert statistics["dropped"] == {"empty": 1, "shouting:capitals": 2}
