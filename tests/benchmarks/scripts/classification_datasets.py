"""The script for classifiers: tokenize, cut and pad to one length, number the labels.

python classification_datasets.py JSONL TOKENIZER.json OUTPUT LENGTH
"""

import sys
from typing import Any

from datasets import load_dataset
from transformers import PreTrainedTokenizerFast

CLASSES = ("neg", "pos")


def main(path: str, tokenizer_path: str, output: str, row_tokens: str) -> None:
    """Labelled texts -> rows on disk."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=tokenizer_path, pad_token="<pad>")
    length = int(row_tokens)

    def prepare(batch: dict[str, list]) -> dict[str, Any]:
        rows = tokenizer(batch["text"], truncation=True, max_length=length, padding="max_length")
        return {**rows, "labels": [CLASSES.index(label) for label in batch["label"]]}

    data: Any = load_dataset("json", data_files=path, split="train", cache_dir=output + "/cache")
    data = data.map(prepare, batched=True, num_proc=2, remove_columns=data.column_names)
    data.save_to_disk(output + "/set")


if __name__ == "__main__":
    main(*sys.argv[1:])
