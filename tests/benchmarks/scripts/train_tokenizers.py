"""Trains a byte-level BPE with `tokenizers`: prints the seconds of training as JSON.

    python train_tokenizers.py TEXT VOCAB_SIZE OUTPUT.json [PATTERN [THREADS]]

It cuts words by the pattern, a name or a regular expression. A document is a line. Reading is not
timed.
"""

import json
import os
import sys

THREADS = (sys.argv[5:] or ["2"])[0]
os.environ.update(RAYON_NUM_THREADS=THREADS, TOKENIZERS_PARALLELISM="true")

from tokenizers import (  # noqa: E402  reads the environment
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


def main(text: str, tokens: str, output: str, pattern: str = GPT2, _: str = "") -> None:
    """Times the training."""
    with open(text, encoding="utf-8") as file:
        lines = file.read().split("\n")
    began = Seconds.now()
    tokenizer = train_by_tokenizers(lines, int(tokens), pattern)
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
