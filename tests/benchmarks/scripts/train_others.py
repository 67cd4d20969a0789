"""Trains a byte-level BPE with `tokenizers` (2 threads) or gigatoken: prints its seconds as JSON.

    python train_others.py tokenizers|gigatoken TEXT VOCAB_SIZE OUTPUT.json

A document is a line. Reading is not timed.
"""

import json
import os
import sys

os.environ.update(RAYON_NUM_THREADS="2", TOKENIZERS_PARALLELISM="true")

import gigatoken  # noqa: E402  both read the environment
from tokenizers import ByteLevelBPETokenizer  # noqa: E402

from tests.benchmarks.clock import Seconds  # noqa: E402

SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def main(library: str, text: str, tokens: str, output: str) -> None:
    """Times one of the two."""
    vocab_size = int(tokens)
    if library == "gigatoken":
        with open(text, "rb") as file:
            documents = file.read()
        began = Seconds.now()
        gigatoken.train_bpe(documents, vocab_size, SPECIALS, separator=b"\n")
        ended = Seconds.now()
    else:
        with open(text, encoding="utf-8") as file:
            lines = file.read().split("\n")
        tokenizer = ByteLevelBPETokenizer()
        began = Seconds.now()
        tokenizer.train_from_iterator(
            lines, vocab_size, special_tokens=SPECIALS, show_progress=False
        )
        ended = Seconds.now()
        tokenizer.save(output)
    print(json.dumps(ended.since(began)))


if __name__ == "__main__":
    main(*sys.argv[1:])
