"""The script that people write for language modelling: `datasets`, `tokenizers`, two processes.

    python language_datasets.py DOCUMENTS.jsonl TOKENIZER.json OUTPUT LENGTH [SEPARATOR]

load_dataset, map(tokenize), map(group_texts), save_to_disk. With the id of a separator it is for
causal models: the separator ends each text, and rows have labels. Without one it masks nothing,
since that is left to a collator.
"""

import sys
from itertools import chain
from typing import Any

from datasets import load_dataset
from tokenizers import Tokenizer


def main(documents: str, tokenizer_path: str, output: str, row_tokens: str, *end: str) -> None:
    """Text -> rows on disk."""
    tokenizer = Tokenizer.from_file(tokenizer_path)
    length, separator = int(row_tokens), [*map(int, end)]

    def tokenize(batch: dict[str, list]) -> dict[str, list]:
        encodings = tokenizer.encode_batch_fast(batch["text"], add_special_tokens=not separator)
        return {"input_ids": [encoding.ids + separator for encoding in encodings]}

    def group_texts(batch: dict[str, list]) -> dict[str, list]:
        stream = list(chain.from_iterable(batch["input_ids"]))
        whole = len(stream) // length * length
        rows = [stream[i : i + length] for i in range(0, whole, length)]
        return {"input_ids": rows, **({"labels": rows} if separator else {})}

    data: Any = load_dataset(
        "json", data_files=documents, split="train", cache_dir=output + "/cache"
    )
    data = data.map(tokenize, batched=True, num_proc=2, remove_columns=["text"])
    data = data.map(group_texts, batched=True, num_proc=2)
    data.save_to_disk(output + "/set")


if __name__ == "__main__":
    main(*sys.argv[1:])
