"""Megatron's way from JSON Lines to .bin and .idx, as its tools/preprocess_data.py goes it.

python tokens_megatron.py FILE.jsonl TOKENIZER.json OUTPUT

The tool is not part of the package. As there, processes take lines from a pool's imap in lots of
32, parse and encode each with eos, and the parent adds document by document to the package's own
IndexedDatasetBuilder. The tokenizer is called without the layers that the tool puts around it.
"""

import json
import sys
from multiprocessing import Pool

import numpy as np
import torch
from megatron.core.datasets.indexed_dataset import (  # pyright: ignore[reportMissingImports]
    DType,
    IndexedDatasetBuilder,
)
from tokenizers import Tokenizer

WORKERS, LOT = 2, 32
_tokenizers: list[Tokenizer] = []


def start(tokenizer: str) -> None:
    """Loads the tokenizer, once a process."""
    _tokenizers.append(Tokenizer.from_file(tokenizer))


def encode(line: str) -> list[int | None]:
    """The ids of a line's text, with eos."""
    tokenizer = _tokenizers[0]
    ids = tokenizer.encode(json.loads(line)["text"], add_special_tokens=False).ids
    return [*ids, tokenizer.token_to_id("</s>")]


def main(text: str, tokenizer: str, output: str) -> None:
    """Documents -> a pair of files."""
    dtype = DType.optimal_dtype(Tokenizer.from_file(tokenizer).get_vocab_size())
    builder = IndexedDatasetBuilder(f"{output}/documents.bin", dtype=dtype)
    with open(text, encoding="utf-8") as lines, Pool(WORKERS, start, (tokenizer,)) as pool:
        for ids in pool.imap(encode, lines, LOT):
            builder.add_document(torch.from_numpy(np.array(ids, dtype)), [len(ids)])
    builder.finalize(f"{output}/documents.idx")


if __name__ == "__main__":
    main(*sys.argv[1:])
