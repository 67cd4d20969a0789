"""`tokenizers.encode_batch_fast` with two threads, and nothing besides: prints seconds as JSON.

    python encode_alone.py TEXT TOKENIZER.json

Reading and the tokenizer's making are not timed. Batches of 10,000 documents.
"""

import json
import os
import sys
import time

os.environ.update(RAYON_NUM_THREADS="2", TOKENIZERS_PARALLELISM="true")

from tokenizers import Tokenizer  # noqa: E402  reads the environment


def main(text: str, tokenizer_path: str) -> None:
    """Times it."""
    tokenizer = Tokenizer.from_file(tokenizer_path)
    with open(text, encoding="utf-8") as file:
        documents = file.read().split("\n")
    wall, cpu = time.perf_counter(), time.process_time()
    for start in range(0, len(documents), 10_000):
        tokenizer.encode_batch_fast(documents[start : start + 10_000])
    print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu]))


if __name__ == "__main__":
    main(*sys.argv[1:])
