"""Why there is no --append: one more document changes a file of the dataset."""

import json

from pipelines.build_shards import main
from schemas.metadata import read_set


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
