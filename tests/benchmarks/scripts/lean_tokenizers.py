"""The least that anyone writes with `tokenizers`: JSON Lines to ids on disk, in some processes.

    python lean_tokenizers.py DOCUMENTS.jsonl TOKENIZER.json OUTPUT PROCESSES

Process n writes its share of the documents to OUTPUT.n for np.memmap: uint32, SEPARATOR after each
document. Nothing is packed, deduplicated or checked. The same script runs with 0.23 and with 1.0.
"""

import json
import os
import sys
from collections.abc import Iterator
from itertools import islice
from multiprocessing import Pool

import numpy as np
from tokenizers import Tokenizer

SEPARATOR = 2**32 - 1
_BATCH = 1000  # documents


def main(documents: str, tokenizer_path: str, output: str, processes: str) -> None:
    """Encodes in parallel."""
    os.environ.update(RAYON_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
    shares = [(documents, tokenizer_path, output, n, int(processes)) for n in range(int(processes))]
    with Pool(int(processes)) as pool:
        pool.starmap(encode_share, shares)


def encode_share(documents: str, tokenizer_path: str, output: str, n: int, processes: int) -> None:
    """Encodes the lines that begin in the n-th part of the file."""
    tokenizer = Tokenizer.from_file(tokenizer_path)
    encode_batch = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
    separator = np.array([SEPARATOR], np.uint32)
    size = os.path.getsize(documents)
    lines = _lines(documents, size * n // processes, size * (n + 1) // processes)
    with open(f"{output}.{n}", "wb") as file:
        while batch := [json.loads(line)["text"] for line in islice(lines, _BATCH)]:
            for encoding in encode_batch(batch, add_special_tokens=False):
                ids = getattr(encoding, "ids_array", None)  # new in 1.0
                file.write(np.asarray(encoding.ids if ids is None else ids, np.uint32).tobytes())
                file.write(separator.tobytes())


def _lines(path: str, begin: int, end: int) -> Iterator[bytes]:
    with open(path, "rb") as file:
        if begin:
            file.seek(begin - 1)
            file.readline()
        while file.tell() < end:
            yield file.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])
