"""Encodes documents twice in one thread, and prints MB per CPU second of both passes as JSON.

    python -m tests.benchmarks.scripts.encode_twice ENGINE DOCUMENTS.jsonl TOKENIZER.json

ENGINE is textmill (the backend that it chooses), gigatoken, tokenizers (as installed) or
snaptokens. Each encodes a short text first, which loads it. Batches of what it takes are made
before the clock starts: Arrow arrays for textmill, whose readers give them, lists for the others.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmarks.clock import Seconds

_BATCH = 1000  # documents
# What makes a batch of texts, and what encodes it and returns the number of tokens.
Engine = tuple[Callable[[list[str]], Any], Callable[[Any], int]]


def main(engine: str, documents: str, tokenizer: str) -> None:
    """Times loading and both passes."""
    os.environ.update(RAYON_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
    lines = Path(documents).read_text(encoding="utf-8").split("\n")
    texts = [json.loads(line)["text"] for line in lines if line]
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    began = Seconds.now()
    batch_of, encode = ENGINES[engine](Path(tokenizer))
    encode(batch_of(["This loads it."]))
    found: dict[str, Any] = {"load": Seconds.now().since(began).cpu}
    batches = [batch_of(texts[i : i + _BATCH]) for i in range(0, len(texts), _BATCH)]
    for name in ("first", "second"):
        began = Seconds.now()
        found["tokens"] = sum(map(encode, batches))
        found[name] = megabytes / Seconds.now().since(began).cpu
    print(json.dumps(found))


def _textmill(path: Path) -> Engine:
    import pyarrow as pa

    from textmill.pipelines.encoding.tokenizer import LoadedTokenizer

    tokenizer = LoadedTokenizer(path.read_bytes())
    tokenizer.load_backend(1 << 40)  # that for large inputs
    return (
        lambda texts: pa.array(texts, pa.large_string()),
        lambda batch: len(tokenizer.encode(batch).values),
    )


def _gigatoken(path: Path) -> Engine:
    import gigatoken

    tokenizer = gigatoken.Tokenizer.from_json(path.read_bytes())

    def encode(batch: list[str]) -> int:
        layout: Any = tokenizer.encode_batch(batch, parallel=False).layout
        return len(layout.content)

    return list, encode


def _tokenizers(path: Path) -> Engine:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
    name = "ids_array" if hasattr(tokenizer.encode(""), "ids_array") else "ids"
    return list, lambda batch: sum(
        len(getattr(encoding, name)) for encoding in encode(batch, add_special_tokens=False)
    )


def _snaptokens(path: Path) -> Engine:
    from snaptokens import Tokenizer  # pyright: ignore[reportMissingImports]

    encode = Tokenizer.from_json_str(path.read_text()).encode_batch_flat
    return list, lambda batch: len(encode(batch, add_special_tokens=False)[0]) // 4


ENGINES = {
    "textmill": _textmill,
    "gigatoken": _gigatoken,
    "tokenizers": _tokenizers,
    "snaptokens": _snaptokens,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
