"""Encodes documents twice in one thread, and prints MB per CPU second of both passes as JSON.

    python -m tests.benchmarks.scripts.encode_twice ENGINE DOCUMENTS.jsonl TOKENIZER.json

ENGINE is textmill (the backend that it chooses), gigatoken, tokenizers (as installed) or
snaptokens. Each encodes a short text first, which loads it.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks.clock import Seconds

_BATCH = 1000  # documents
Texts = list[str]


def main(engine: str, documents: str, tokenizer: str) -> None:
    """Times loading and both passes."""
    os.environ.update(RAYON_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
    lines = Path(documents).read_text(encoding="utf-8").split("\n")
    texts = [json.loads(line)["text"] for line in lines if line]
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    began = Seconds.now()
    encode = ENGINES[engine](Path(tokenizer))
    encode(["This loads it."])
    found: dict[str, Any] = {"load": Seconds.now().since(began).cpu}
    for name in ("first", "second"):
        began = Seconds.now()
        found["tokens"] = encode(texts)
        found[name] = megabytes / Seconds.now().since(began).cpu
    print(json.dumps(found))


def _batches(texts: Texts) -> Iterator[Texts]:
    return (texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH))


def _textmill(path: Path) -> Callable[[Texts], int]:
    import pyarrow as pa

    from textmill.pipelines.encoding.tokenizer import LoadedTokenizer

    tokenizer = LoadedTokenizer(path.read_bytes())
    tokenizer.load_backend(1 << 40)  # that for large inputs
    return lambda texts: len(tokenizer.encode(pa.array(texts, pa.large_string())).values)


def _gigatoken(path: Path) -> Callable[[Texts], int]:
    import gigatoken

    tokenizer = gigatoken.Tokenizer.from_json(path.read_bytes())

    def encode(texts: Texts) -> int:
        layouts: Any = (
            tokenizer.encode_batch(batch, parallel=False).layout for batch in _batches(texts)
        )
        return sum(len(layout.content) for layout in layouts)

    return encode


def _tokenizers(path: Path) -> Callable[[Texts], int]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
    name = "ids_array" if hasattr(tokenizer.encode(""), "ids_array") else "ids"
    return lambda texts: sum(
        len(getattr(encoding, name))
        for batch in _batches(texts)
        for encoding in encode(batch, add_special_tokens=False)
    )


def _snaptokens(path: Path) -> Callable[[Texts], int]:
    from snaptokens import Tokenizer  # pyright: ignore[reportMissingImports]

    tokenizer = Tokenizer.from_json_str(path.read_text())
    return lambda texts: sum(
        len(tokenizer.encode_batch_flat(batch, add_special_tokens=False)[0]) // 4
        for batch in _batches(texts)
    )


ENGINES = {
    "textmill": _textmill,
    "gigatoken": _gigatoken,
    "tokenizers": _tokenizers,
    "snaptokens": _snaptokens,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
