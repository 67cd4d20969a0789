"""Every document of the corpora through the backend of build_shards, and through `tokenizers`.

    python -m tests.benchmarks.compare_tokenization [--tokenizer=PATH]

Prints how many differ; exit code 1 if one does.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import tyro
import zstandard
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer

from textmill.pipelines.encoding.tokenizer import LoadedTokenizer, load_tokenizer

_BATCH = 2_000  # documents compared at a time: the reference needs about 15 bytes a byte of text


@dataclass(frozen=True)
class Options:
    """What to compare."""

    data: Path = Path("../shared/data")
    """Where the corpora lie."""
    tokenizer: Path | None = None
    """Default: the published RoBERTa tokenizer among the data."""


def main(options: Options) -> int:
    """Prints a table; 1 if ids differed."""
    path = options.tokenizer or options.data / "tokenizers" / "roberta-base"
    tokenizer = load_tokenizer(path)
    print(f"{path}: {tokenizer.vocab_size:,} ids, backend {tokenizer.load_backend()}")
    return check(tokenizer, options.data)


def check(tokenizer: LoadedTokenizer, data: Path) -> int:
    """Compares ids document by document."""
    reference = Tokenizer.from_buffer(tokenizer.json)
    table = Table("text", "documents", "MB", "tokens", "different")
    sums = np.zeros(4)
    for name, documents in corpora(data).items():
        row = np.sum([compare(tokenizer, reference, part) for part in batches(documents)], axis=0)
        sums += row
        table.add_row(name, *_numbers(row))
    table.add_row("all", *_numbers(sums), style="bold")
    Console().print(table)
    return int(sums[3] > 0)


def compare(
    tokenizer: LoadedTokenizer, reference: Tokenizer, documents: list[str]
) -> tuple[int, float, int, int]:
    """(documents, MB, tokens, different)."""
    text = pa.array(documents, pa.large_string())
    found = tokenizer.encode(text)
    encodings = reference.encode_batch(documents, add_special_tokens=False)
    different = 0
    for i, encoding in enumerate(encodings):
        expected = np.array(encoding.ids, np.uint32)
        ids = found.values[found.offsets[i] : found.offsets[i + 1]]
        if not np.array_equal(ids, expected):
            different += 1
            print(f"different: {documents[i][:200]!r}", file=sys.stderr)
    return len(documents), text.nbytes / 1e6, len(found.values), different


def corpora(data: Path) -> dict[str, list[str]]:
    """Every text at hand, by name."""
    return {
        "IMDB": [
            json.loads(line)["text"]
            for part in ("train", "test")
            for line in read(data / f"imdb/{part}.jsonl.zst").splitlines()
        ],
        "NoReC": [
            json.loads(line)["text"]
            for part in ("train", "valid")
            for line in read(data / f"norec/{part}.jsonl.zst").split(b"\n")
            if line
        ],
        "WikiText-2": [
            line
            for part in ("train", "valid", "test")
            for line in read(data / f"wikitext-2/wiki.{part}.tokens.zst").decode().split("\n")
        ],
        "SQuAD contexts": [
            paragraph["context"]
            for part in ("train", "dev")
            for article in json.loads(read(data / f"squad/{part}-v1.1.json.zst"))["data"]
            for paragraph in article["paragraphs"]
        ],
        "hard strings": hard_strings(data / "hard"),
    }


def hard_strings(directory: Path) -> list[str]:
    """Naughty strings, all code points, and the torture text whole and by line."""
    torture = (directory / "utf8tests.txt").read_text(encoding="utf-8")
    return [
        *json.loads((directory / "blns.json").read_text(encoding="utf-8")),
        *(directory / "bmp-separated.txt").read_text(encoding="utf-8").split("\n"),
        (directory / "bmp-separated.txt").read_text(encoding="utf-8"),
        (directory / "sup-unseparated.txt").read_text(encoding="utf-8"),
        torture,
        *torture.split("\n"),
    ]


def read(path: Path) -> bytes:
    """A .zst file, unpacked."""
    return zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read()


def batches(documents: list[str]) -> Iterator[list[str]]:
    """Pieces of the list."""
    for start in range(0, len(documents), _BATCH):
        yield documents[start : start + _BATCH]


def _numbers(row: np.ndarray) -> list[str]:
    documents, megabytes, tokens, different = row.tolist()
    return [
        f"{documents:,.0f}",
        f"{megabytes:.1f}",
        *(f"{n:,.0f}" for n in (tokens, different)),
    ]


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options)))
