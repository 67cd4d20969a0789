"""The script for causal language models: tokens, a separator after each text, cut, and labels.

python clm_datasets.py TEXT TOKENIZER.json OUTPUT LENGTH
"""

import sys
from itertools import chain
from typing import Any

from datasets import load_dataset
from tokenizers import Tokenizer


def main(text: str, tokenizer_path: str, output: str, row_tokens: str) -> None:
    """Text -> rows on disk."""
    tokenizer = Tokenizer.from_file(tokenizer_path)
    length = int(row_tokens)
    separator = tokenizer.token_to_id("</s>")

    def tokenize(batch: dict[str, list]) -> dict[str, list]:
        encodings = tokenizer.encode_batch_fast(batch["text"], add_special_tokens=False)
        return {"input_ids": [[*encoding.ids, separator] for encoding in encodings]}

    def group_texts(batch: dict[str, list]) -> dict[str, list]:
        stream = list(chain.from_iterable(batch["input_ids"]))
        whole = len(stream) // length * length
        rows = [stream[i : i + length] for i in range(0, whole, length)]
        return {"input_ids": rows, "labels": rows}

    data: Any = load_dataset("text", data_files=text, split="train", cache_dir=output + "/cache")
    data = data.map(tokenize, batched=True, num_proc=2, remove_columns=["text"])
    data = data.map(group_texts, batched=True, num_proc=2)
    data.save_to_disk(output + "/set")


if __name__ == "__main__":
    main(*sys.argv[1:])
