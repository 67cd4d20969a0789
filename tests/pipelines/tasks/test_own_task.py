"""The task of one's own in docs/extending.md: two files are touched, and a set comes of it."""

import json
import re
import subprocess
import sys

import pytest

from tests.tools.places import ROOT

PAGE = ROOT / "docs" / "extending.md"
SHOW = """
import json, sys
from schemas.records import open_rows
from schemas.sidecar import read_set
info = read_set(sys.argv[1])
codec = info.schema.codec()
rows = []
for file in info.manifest.shards("train", "array_record"):
    reader = open_rows(f"{info.directory}/{file.path}", codec.stride)
    columns = codec.decode(reader.read_range(0, len(reader)))
    rows += [{k: v[i].tolist() for k, v in columns.items()} for i in range(len(reader))]
print(json.dumps({"rows": rows, "parameters": info.schema.parameters}))
"""


def code_of_page():
    """The page's blocks of Python by the file that is named before each."""
    text = PAGE.read_text(encoding="utf-8")
    return dict(re.findall(r"^`(\S+\.py)`\n\n```python\n(.*?)^```$", text, re.M | re.S))


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A checkout with the page's code added: all else are links to the real files."""
    root = tmp_path_factory.mktemp("checkout")
    changed = {"pipelines": "tasks", "schemas": "features.py"}
    for package, other in changed.items():
        (root / package).mkdir()
        for entry in (ROOT / package).iterdir():
            if entry.name not in (other, "__pycache__" if package == "schemas" else ""):
                (root / package / entry.name).symlink_to(entry)
    (root / "pipelines" / "tasks").mkdir()
    for entry in (ROOT / "pipelines" / "tasks").glob("*.py"):
        (root / "pipelines" / "tasks" / entry.name).symlink_to(entry)
    code = code_of_page()
    (root / "pipelines/tasks/prefix_lm.py").write_text(code["pipelines/tasks/prefix_lm.py"])
    # As a reader of the page would: the function before the table, and a line in the table.
    function, table = code["schemas/features.py"].split("_TASKS = {..., ")
    features = (ROOT / "schemas/features.py").read_text()
    assert features.count("_TASKS = {\n") == 1
    entry = table.strip().removesuffix("}")
    features = features.replace("_TASKS = {\n", f"{function}\n_TASKS = {{\n    {entry},\n")
    (root / "schemas/features.py").write_text(features)
    return root


def run(checkout, *arguments):
    done = subprocess.run(
        [sys.executable, *arguments], cwd=checkout, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_thirty_lines_are_thirty():
    code = code_of_page()
    assert set(code) == {"pipelines/tasks/prefix_lm.py", "schemas/features.py"}
    lines = [line for line in code["pipelines/tasks/prefix_lm.py"].splitlines() if line.strip()]
    assert len(lines) <= 30


def test_the_task_makes_a_set(checkout, topics, tokenizer_path, tmp_path):
    texts = [text for text in topics[:60] if text]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (tmp_path / "in.jsonl").write_text(lines)
    output = str(tmp_path / "set")
    flags = ["--task=prefix_lm", "--prefix_share=0.25", "--max_length=40", "--num_shards=1"]
    paths = [f"--input={tmp_path / 'in.jsonl'}", f"--tokenizer={tokenizer_path}"]
    run(checkout, "-m", "pipelines.build_shards", *flags, *paths, f"--output={output}")
    assert run(checkout, "-m", "pipelines.verify", output).startswith("ok: 1 set")
    assert "loss_weights" in run(checkout, "-m", "pipelines.inspect_shards", output)
    shown = json.loads(run(checkout, "-c", SHOW, output))
    assert shown["parameters"]["prefix_share"] == 0.25
    segments = 0
    for row in shown["rows"]:
        numbers = row["segment_ids"]
        for number in range(1, max(numbers) + 1):
            places = [place for place, other in enumerate(numbers) if other == number]
            prefix = -(-len(places) // 4)
            mask = [row["prefix_mask"][place] for place in places]
            assert mask == [1] * prefix + [0] * (len(places) - prefix)
            assert [1 - row["loss_weights"][place] for place in places] == mask
            segments += 1
    assert segments >= len(set(texts)) * 0.9
