"""Trains a byte-level BPE with `tokenizers` (2 threads) or gigatoken: prints its seconds as JSON.

    python train_others.py tokenizers|gigatoken TEXT VOCAB_SIZE OUTPUT.json [PATTERN]

`tokenizers` cuts words by the pattern, a name or a regular expression. A document is a line.
Reading is not timed.
"""

import json
import os
import sys

os.environ.update(RAYON_NUM_THREADS="2", TOKENIZERS_PARALLELISM="true")

import gigatoken  # noqa: E402  both read the environment
from tokenizers import (  # noqa: E402
    ByteLevelBPETokenizer,
    Regex,
    Tokenizer,
    models,
    pre_tokenizers,
    trainers,
)

from tests.benchmarks.clock import Seconds  # noqa: E402
from textmill.pipelines.encoding.patterns import GPT2, pattern_of  # noqa: E402

SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def main(library: str, text: str, tokens: str, output: str, pattern: str = GPT2) -> None:
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
        began = Seconds.now()
        tokenizer = train_by_tokenizers(lines, vocab_size, pattern)
        ended = Seconds.now()
        tokenizer.save(output)
    print(json.dumps(ended.since(began)))


def train_by_tokenizers(lines: list[str], vocab_size: int, pattern: str) -> Tokenizer:
    """A byte-level BPE of lines."""
    if pattern == GPT2:
        byte_level = ByteLevelBPETokenizer()
        byte_level.train_from_iterator(
            lines, vocab_size, special_tokens=SPECIALS, show_progress=False
        )
        return Tokenizer.from_str(byte_level.to_str())
    tokenizer = Tokenizer(models.BPE())
    steps = [
        pre_tokenizers.Split(Regex(pattern_of(pattern)), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)  # pyright: ignore[reportAttributeAccessIssue]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


if __name__ == "__main__":
    main(*sys.argv[1:])
