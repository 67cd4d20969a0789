"""Splitting patterns: how text is cut into words, within which the merges stay.

A pattern is a module of this folder, named as in --pattern. It has two functions:

- `pre_tokenizer(add_prefix_space)` gives the part of tokenizer.json that cuts text so;
- `cut(data, offsets)` cuts documents, data[offsets[i] : offsets[i + 1]] of UTF-8, and yields int64
  arrays: where words start, and at last where the last of them ends. Words leave nothing out:
  `it's a dog` -> [[0, 2, 4, 6, 10]].
"""

from importlib import import_module
from types import ModuleType

GPT2 = "gpt2"
PATTERNS = {GPT2: "ByteLevel, GPT-2 pattern"}  # and what histogram.parquet says of each


def load_pattern(name: str) -> ModuleType:
    """The module of a pattern; its loops take half a second to load."""
    return import_module(f"{__package__}.{name}")
