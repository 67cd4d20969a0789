"""Splits given by their inputs: what an evaluation split holds is taken out of train."""

import json

import pytest

from pipelines.build_shards import main
from pipelines.verify import main as verify
from schemas.errors import UsageError
from schemas.metadata import read_set
from tests.tools.segments import segments_of


def write(path, documents):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    return path


@pytest.fixture(scope="module")
def documents(topics):
    unique = sorted(set(filter(None, topics)))
    return {"train": unique[:-60] + unique[:7], "validation": unique[-90:-30], "test": unique[-30:]}


def build(documents, tokenizer_path, folder, *more):
    arguments = [
        f"--{split}_input={write(folder / f'{split}.jsonl', texts)}"
        for split, texts in documents.items()
    ]
    output = folder / "set"
    main([*arguments, f"--tokenizer={tokenizer_path}", f"--output={output}", *more])
    verify([str(output)])
    return read_set(str(output))


def test_train_loses_what_validation_and_test_have(documents, tokenizer_path, tmp_path):
    made = build(documents, tokenizer_path, tmp_path, "--num_shards=9", "--max_length=512")
    shards = made.schema.shards  # by the size of each input
    assert shards["train"] == 9 and 1 <= shards["test"] <= shards["validation"] < 5
    assert made.schema.splits == {"test": 0.0, "train": 0.0, "validation": 0.0}
    splits = made.stats.splits()
    assert splits["validation"].documents == 60 and splits["test"].documents == 30
    both = set(documents["train"]) & set(documents["validation"])
    assert len(both) == 30 == splits["train"].dropped["held_out"]
    assert splits["train"].dropped["duplicates"] == 7
    assert splits["train"].documents == len(set(documents["train"])) - 30
    assert made.stats.documents_read == sum(map(len, documents.values()))
    train, validation = (
        set(segments_of(made.directory, split)) for split in ("train", "validation")
    )
    assert train and validation and not train & validation


def test_swapped_splits_are_other_inputs(documents, tokenizer_path, tmp_path):
    small = {split: documents[split][:20] for split in ("train", "validation")}
    build(small, tokenizer_path, tmp_path)
    build(small, tokenizer_path, tmp_path)
    swapped = {"train": small["validation"], "validation": small["train"]}
    with pytest.raises(UsageError, match="but other content, labels, splits or names"):
        build(swapped, tokenizer_path, tmp_path)
