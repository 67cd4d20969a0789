"""Encodes hard texts by our backends and by `tokenizers`, for every family of tokenizers.

    python -m tests.stress.fuzz_encoding --texts=100000 --seed=1
    python -m tests.stress.fuzz_encoding --files "django/**/*.po" "sphinx/**/*.po"

Texts are drawn from pieces that splitters, normalizers and added tokens tell apart, and from pieces
of the tokenizer's own added tokens. Prints how many were tried; exit code 1 if any differs.
With `--files` the texts are files, whole and line by line, and the tokenizers are trained on them:
translations that packages bring are text in a hundred languages.
"""

import glob
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import tyro
from tokenizers import Tokenizer

from tests.tools.tokenizer_factory import TEXT, config_of
from tests.tools.tokenizer_families import FAMILIES, train_family
from textmill.pipelines.encoding.reference import Backend, encode_each
from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
from textmill.pipelines.encoding.tokenizer_types import make_backend
from textmill.pipelines.encoding.word_table import PieceBackend
from textmill.schemas.commands.entry import run_entry
from textmill.schemas.errors import DataError

_WHITE = [chr(c) for c in (*range(9, 14), 32, 0x85, 0xA0, 0x1680, 0x2003, 0x2028, 0x202F, 0x3000)]
_PIECES = [
    *_WHITE,
    *("  ", "   ", " " * 5, " " * 23, " " * 70),
    *("\r\n", "\n\n", "\n \n", " \t", "\t \n", " \u00a0 "),
    *("'s", "'S", "'ll", "'LL", "'Ve", "'re", "'", "''", "``", "'d'm't", "’s", "ſ", "'ſ"),
    *("a", "B", "hello", " world", "The", " the", "HELLO", "aBc", "x" * 70, "ab" * 40, "th" * 200),
    *("1", "12", "1234567", "²", "½", "Ⅷ", "٣", "१२", "1" * 65, "1,000.5", "𝟘", "\U00011de0"),
    *("_", ".", "...", "--", "!?", "/", "#", "@-@", "<br />"),
    *("«", "…", "、", "。", "！", "$", "`", "^"),
    *("é", "e\u0301", "\u0301", "a\u0328\u0301", "\u0323\u0307", "\u0345"),
    *("ǅ", "ʰ", "´", "¨", "ﬁ", "ﷺ"),
    *("न", "ि", "हिन्दी", "ก้", "ำ", "\u0e33", "中", "漢字", "かな", "ガ", "ﾊﾟ", "\uff9e"),
    *("가", "\u1100\u1161", "각", "\u1100\u1161\u11a8", "\u09be", "\u0600", "\u0600 ", "\u0d4e "),
    *("\u110bd", "\u0903", "\uf900", "㐀"),
    *("😀", "👩\u200d👩", "👍🏽", "\u200d", "\u200b", "\u180e", "\ufeff"),
    *("\0", "\x1c", "\x7f", "\xad"),
    *("\ud7ff", "\ue000", "\ufffd", "\uffff", "\U0010ffff", "\U000323b0", "\U00016ea0", "\u088f"),
    *("▁", " ▁", "▁ ", "▁▁", "a▁b", "Ġ", "##ing", "<0x41>", "\U0010fffd\U0010fffe"),
    *("İ", "ß", "ẞ", "Σ", "ς", "ǆ", "\u1e9b\u0323"),
    *("中" * 22, "क" * 90, "'s" * 30, "\u0301" * 30, "\u200b \u200b", "\ufe0f", "🇳🇴", "\U0002f800"),
]


@dataclass(frozen=True)
class Options:
    """How many, and of what."""

    texts: int = 10_000
    """For each family."""
    seed: int = 1
    """Seed of all texts."""
    family: str = ""
    """Only those whose name holds this."""
    files: tuple[str, ...] = ()
    """Patterns of files to take instead of drawn texts."""


def main(argv: list[str]) -> None:
    """Fuzzes the families, and prints a line for each."""
    options = tyro.cli(
        Options, prog="python -m tests.stress.fuzz_encoding", args=argv, use_underscores=True
    )
    wrong = 0
    for name in FAMILIES:
        if options.family in name:
            if options.files:
                texts = _texts_of(options.files)
                tokenizer = train_family(name, texts, 8000)
            else:
                tokenizer = small_tokenizer(name)
                texts = islice(draw_texts(tokenizer, options.seed), options.texts)
            count, found = find_differences(tokenizer, texts)
            print(f"{name}: {count:,} texts, {len(found):,} different", flush=True)
            for text in found[:3]:
                print(f"  {text!r}")
            wrong += len(found)
    if wrong:
        raise DataError(f"{wrong:,} texts were encoded otherwise than by tokenizers")


@cache
def small_tokenizer(name: str) -> Tokenizer:
    """A tokenizer of a family, of about a thousand tokens."""
    words = [
        f"{a}{b}" for a in ("hello", "the", "world", "x", "12", "中") for b in ("s", "ing", "")
    ]
    return train_family(name, [*TEXT, *words, " ".join(words), "".join(_PIECES[:150]) * 3], 1000)


def backend_of(tokenizer: Tokenizer) -> PieceBackend:
    """The word table for a tokenizer of one of the types."""
    backend = make_backend(config_of(tokenizer), tokenizer, is_kept=True)
    assert not isinstance(backend, str), backend
    return backend


def backends_of(tokenizer: Tokenizer) -> list[PieceBackend]:
    """The word table, and gigatoken if it takes the tokenizer."""
    chosen = make_backend(config_of(tokenizer), tokenizer)
    assert not isinstance(chosen, str), chosen
    return [backend_of(tokenizer)] + [chosen] * (chosen.name == "gigatoken")


def _texts_of(patterns: Sequence[str]) -> list[str]:
    """Files, and their lines."""
    paths = sorted({p for pattern in patterns for p in glob.glob(pattern, recursive=True)})
    wholes = [Path(path).read_text(encoding="utf-8", errors="replace") for path in paths]
    return [*wholes, *dict.fromkeys(line for text in wholes for line in text.splitlines(True))]


def find_differences(tokenizer: Tokenizer, texts: Iterable[str]) -> tuple[int, list[str]]:
    """How many texts there are, and those of them that a fast backend encodes otherwise."""
    backends, found, count = backends_of(tokenizer), [], 0
    texts = iter(texts)
    while batch := list(islice(texts, 10_000)):
        for backend in backends:
            found += different(backend, tokenizer, batch)
        count += len(batch)
    return count, found


def different(
    backend: Backend | LoadedTokenizer, tokenizer: Tokenizer, texts: Sequence[str]
) -> list[str]:
    """Those of the texts that an backend encodes otherwise than `tokenizers`."""
    ragged = backend.encode(pa.array(texts, pa.large_string()))
    ours = np.split(ragged.values, ragged.offsets[1:-1])
    expected = encode_each(tokenizer, list(texts))
    return [text for text, a, b in zip(texts, ours, expected, strict=True) if a.tolist() != b]


def draw_texts(tokenizer: Tokenizer, seed: int) -> Iterator[str]:
    """Hard texts without end: few pieces or many, of one kind or of all, and any characters."""
    draw = random.Random(seed)
    added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    parts = [*added[:40], *(t[: len(t) // 2] for t in added[:9]), *(t[1:] for t in added[:9])]
    while True:
        pool = draw.choice([_PIECES, _PIECES, [*_PIECES, *parts * 4], [*_WHITE, *parts, "a", "."]])
        if draw.random() < 0.3:
            pool = draw.sample(pool, 4)
        pieces = draw.choices(pool, k=draw.choice([1, 2, 3, 4, 6, 12, 40]))
        if draw.random() < 0.3:
            pieces.insert(draw.randrange(len(pieces) + 1), _any_character(draw))
        yield "".join(pieces)


def _any_character(draw: random.Random) -> str:
    while True:
        point = draw.randrange(draw.choice([0x80, 0x800, 0x3100, 0x10000, 0x1F000, 0x110000]))
        if not 0xD800 <= point < 0xE000:
            return chr(point)


if __name__ == "__main__":
    run_entry(main)
