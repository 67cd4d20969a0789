"""The language-modelling script that people write: `datasets`, `tokenizers`, two processes.

    python mlm_datasets.py TEXT TOKENIZER.json OUTPUT LENGTH

load_dataset("text"), map(tokenize), map(group_texts), save_to_disk. It masks nothing, since that is
left to a collator. Causal modelling is the same script, with a separator and labels: clm_datasets.
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

    def tokenize(batch: dict[str, list]) -> dict[str, list]:
        return {"input_ids": [e.ids for e in tokenizer.encode_batch_fast(batch["text"])]}

    def group_texts(batch: dict[str, list]) -> dict[str, list]:
        stream = list(chain.from_iterable(batch["input_ids"]))
        whole = len(stream) // length * length
        return {"input_ids": [stream[i : i + length] for i in range(0, whole, length)]}

    data: Any = load_dataset("text", data_files=text, split="train", cache_dir=output + "/cache")
    data = data.map(tokenize, batched=True, num_proc=2, remove_columns=["text"])
    data = data.map(group_texts, batched=True, num_proc=2)
    data.save_to_disk(output + "/set")


if __name__ == "__main__":
    main(*sys.argv[1:])
