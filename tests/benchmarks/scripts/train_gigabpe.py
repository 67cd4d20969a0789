"""Trains a byte-level BPE with gigabpe and GPT-2's pattern. A document is a line.

python train_gigabpe.py TEXT VOCAB_SIZE OUTPUT.json THREADS
"""

import sys

import gigabpe  # pyright: ignore[reportMissingImports]

SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def main(text: str, vocab_size: str, output: str, threads: str) -> None:
    """Writes a tokenizer.json."""
    gigabpe.train_tokenizer(
        [text],
        int(vocab_size),
        output,
        special_tokens=SPECIALS,
        min_frequency=2,
        pretokenizer="bytelevel",
        threads=int(threads),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
