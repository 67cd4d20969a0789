r"""Named splitting patterns as regular expressions, and the byte alphabet of GPT-2.

| name | used by, and how it splits |
|---|---|
| gpt2 | GPT-2, RoBERTa: a word includes one leading space, numbers have any length |
| cl100k | GPT-4, Phi-4, OLMo 2: numbers of up to three digits, 'LL like 'll, line ends together |
| o200k | GPT-4o, gpt-oss: like cl100k, and a word ends where lower case meets upper case |
| llama3 | Llama 3: cl100k, written more simply |
| qwen2 | Qwen 2 and 3: llama3 with single digits |
| digits:N | llama3 with numbers of up to N digits, 1 to 9 |

Sources: Radford et al. 2019, https://github.com/openai/gpt-2/blob/master/src/encoder.py,
https://github.com/openai/tiktoken/blob/main/tiktoken_ext/openai_public.py, and the tokenizer.json
of the models.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

GPT2 = "gpt2"
_LETTERS_OF_ANY_CASE = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def _with_digits(digits: str) -> str:
    return (
        rf"{_LETTERS_OF_ANY_CASE}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_REST}"
    )


PATTERNS = {
    GPT2: r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    "o200k": rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_LETTERS_OF_ANY_CASE}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_LETTERS_OF_ANY_CASE}?|\p{{N}}{{1,3}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_REST}",
    "llama3": _with_digits(r"\p{N}{1,3}"),
    "qwen2": _with_digits(r"\p{N}"),
}
NAMES = (*PATTERNS, "digits:N")
_SPACES, _MARKS = r" \t\r\n", r"!-/:-@\[-`{-~"
_CHINESE = (  # as BertNormalizer has them
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b81f"
    "\U0002b920-\U0002ceaf\U0002f800-\U0002fa1f"
)


def bert_words(*, chinese_apart: bool = True) -> str:
    """A pattern that cuts words which BertNormalizer and BertPreTokenizer can take one by one.

    White space, ASCII punctuation and, unless switched off, Chinese characters always separate
    words, and the normalizer works character by character. Words can therefore be looked up and
    counted before normalization, and only new ones need to be normalized.
    """
    apart = _MARKS + _CHINESE * chinese_apart
    return rf" ?[^{_SPACES}{apart}]+| ?[{apart}]|[{_SPACES}]+"


def pattern_of(name: str) -> str:
    """The regular expression of a name; any other string is taken as an expression."""
    digits = re.fullmatch(r"digits:([1-9])", name)
    if digits:
        return _with_digits(rf"\p{{N}}{{1,{digits[1]}}}")
    return PATTERNS.get(name, name)


def name_of(pattern: str) -> str:
    """The name of a regular expression; the expression itself if it has none."""
    names = (*PATTERNS, *(f"digits:{digits}" for digits in range(1, 10)))
    return next((name for name in names if pattern_of(name) == pattern), pattern)


# ---- the alphabet of byte-level vocabularies ----


def byte_characters() -> list[str]:
    """The printable character that stands for each of the 256 bytes: GPT-2's alphabet.

    Printable Latin-1 characters stand for themselves; the 68 other bytes take the code points
    from 256 on, in order: byte 0 is chr(256), a space chr(288). Source: Radford et al. 2019.
    """
    itself = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in itself]
    return [chr(byte) if byte in itself else chr(256 + others.index(byte)) for byte in range(256)]


def first_tokens(special_tokens: Sequence[str]) -> list[str]:
    """The vocabulary before any merge: special tokens, then the remaining byte characters."""
    return list(dict.fromkeys([*special_tokens, *sorted(byte_characters())]))


def spelt_bytes(tokens: Iterable[str]) -> list[bytes]:
    r"""The bytes that each token stands for: "Ġé" is b" \xe9".

    A token with a character outside `byte_characters` stands for itself.
    """
    tokens = list(tokens)
    outside = 256 + 68  # the code point after those of `byte_characters`
    byte_of = np.full(outside + 1, -1, np.int16)
    byte_of[[*map(ord, byte_characters())]] = np.arange(256)
    characters = np.frombuffer("".join(tokens).encode("utf-32-le", "surrogatepass"), np.uint32)
    found = byte_of[np.minimum(characters, outside)]
    joined, ends = found.astype(np.uint8).tobytes(), np.cumsum([0, *map(len, tokens)])
    spelt = [joined[start:end] for start, end in pairwise(ends.tolist())]
    for odd in {*np.searchsorted(ends, np.flatnonzero(found < 0), "right").tolist()}:
        spelt[odd - 1] = tokens[odd - 1].encode()
    return spelt
