"""Why there is no --append: documents that come to a set go to shards all over it."""

import json
import math

import numpy as np
import pytest

from pipelines.build_shards import main
from pipelines.rows.routing import Routes
from schemas.metadata import read_set

SHARDS = 64


@pytest.mark.parametrize("added", [1, SHARDS // 2, SHARDS, 5 * SHARDS])
def test_so_many_documents_reach_so_many_shards(added):
    """One reaches one, and as many as there are shards reach 1 - 1/e of them."""
    draw = np.random.default_rng(added)
    routes = Routes({"train": 1.0}, {"train": SHARDS})
    reached = [
        len(np.unique(routes.of(draw.integers(0, 256, (added, 16), np.uint8)))) / SHARDS
        for _ in range(200)
    ]
    expected = 1 - (1 - 1 / SHARDS) ** added
    assert np.mean(reached) == pytest.approx(expected, abs=0.01)
    if added == SHARDS:
        assert expected == pytest.approx(1 - 1 / math.e, abs=0.005)
    assert added > 1 or set(reached) == {1 / SHARDS}


def test_a_document_more_changes_one_file_of_a_split_and_no_other(topics, tokenizer_path, tmp_path):
    texts = [text for text in topics[:900] if text]
    made = []
    for more in (0, 1):
        source = tmp_path / f"{more}.jsonl"
        source.write_text(
            "".join(json.dumps({"text": text}) + "\n" for text in texts + ["One more."] * more)
        )
        flags = [f"--input={source}", f"--tokenizer={tokenizer_path}", "--num_shards=8"]
        main([*flags, f"--output={tmp_path / f'set{more}'}", "--max_length=64"])
        files = read_set(str(tmp_path / f"set{more}")).manifest.files
        made.append({file.path: file.sha256 for file in files if file.split})
    assert len(made[0]) == 9
    assert sum(made[0][path] != made[1][path] for path in made[0]) == 1
