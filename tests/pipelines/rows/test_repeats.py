"""Repeats go no further than the block they are in, and are counted as if they did."""

import json

import pytest

from pipelines.build_shards import main
from schemas.metadata import read_set


@pytest.mark.parametrize("shuffle_by", ["files", "runner"])
def test_a_document_that_is_there_very_often_changes_no_shard(
    corpus, tokenizer_path, tmp_path, shuffle_by
):
    often = tmp_path / "often.jsonl"
    line = json.dumps({"text": "All rights reserved. Read more and sign in. " * 20}) + "\n"
    made = {}
    for name, times in (("once", 1), ("often", 20_000)):
        often.write_text(line * times)
        output = tmp_path / name
        flags = [f"--input={corpus}", f"--input={often}", f"--tokenizer={tokenizer_path}"]
        flags += [f"--output={output}", "--num_shards=3", "--max_length=64"]
        main([*flags, f"--shuffle_by={shuffle_by}"])
        made[name] = read_set(str(output))
    files = [[f.sha256 for f in info.manifest.files if f.split] for info in made.values()]
    assert files[0] == files[1]
    once, often = (info.stats for info in made.values())
    assert often.documents_read == once.documents_read + 19_999
    repeats = [stats.total().dropped.get("duplicates", 0) for stats in (often, once)]
    assert repeats[0] == repeats[1] + 19_999
