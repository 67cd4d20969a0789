"""The classes of --task=classification: from folders, from a dataset, and counted in stats.json."""

import json

import pytest

from pipelines.build_shards import main
from pipelines.inspection.checks.set_check import verify_set
from schemas.metadata import read_set
from tests.tools.shard_factory import replace_file


@pytest.fixture
def flags(sentinels, tmp_path):
    return ["--task=classification", f"--tokenizer={sentinels}", f"--output={tmp_path / 'set'}"]


def test_classes_of_folders_are_counted(topics, flags, tmp_path, capsys):
    for number, text in enumerate(topics[:60]):
        folder = tmp_path / "in" / ("neg", "pos", "pos")[number % 3]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.txt").write_text(text or "empty")
    main([*flags, f"--input={tmp_path / 'in'}"])
    said = capsys.readouterr().out
    assert "2 classes: neg, pos" in said
    info = read_set(str(tmp_path / "set"))
    assert info.schema.parameters["classes"] == ["neg", "pos"]
    labels = info.stats.total().labels
    assert set(labels) == {"neg", "pos"} and f"{labels['pos']:,} (" in said
    assert verify_set(str(tmp_path / "set")).problems == []
    stats = json.loads((tmp_path / "set" / "stats.json").read_text())
    for part in (*stats["shards"].values(), *stats["splits"].values(), stats["total"]):
        labels = part["labels"]
        part["labels"] = dict(zip(labels, reversed(labels.values()), strict=True))
    replace_file(tmp_path / "set", "stats.json", json.dumps(stats).encode())
    problems = verify_set(str(tmp_path / "set")).problems
    assert any("documents with label 'neg'" in problem for problem in problems)
