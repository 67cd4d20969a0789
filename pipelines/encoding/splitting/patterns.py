r"""The splitting patterns that have a name, as regular expressions.

| name | who uses it, and what it does |
|---|---|
| gpt2 | GPT-2, RoBERTa: a word takes one space along, numbers are of any length |
| cl100k | GPT-4, Phi-4, OLMo 2: numbers of up to three digits, 'LL as 'll, line ends together |
| o200k | GPT-4o, gpt-oss: the same, and a word ends where small letters meet capitals |
| llama3 | Llama 3: cl100k in plainer terms |
| qwen2 | Qwen 2 and 3: the same with single digits |
| digits:N | the same with numbers of up to N digits, 1 to 9 |

Sources: Radford et al. 2019, https://github.com/openai/gpt-2/blob/master/src/encoder.py,
https://github.com/openai/tiktoken/blob/main/tiktoken_ext/openai_public.py, and the tokenizer.json
of the models.
"""

import re

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
    """Cuts words that BertNormalizer and BertPreTokenizer may be given one by one.

    White space, ASCII punctuation and, unless that is switched off, Chinese characters part words
    there, whatever stands beside them, and the normalizer changes a text character by character. So
    words can be looked up and counted as they stand in the text, and only new ones be normalized.
    """
    apart = _MARKS + _CHINESE * chinese_apart
    return rf" ?[^{_SPACES}{apart}]+| ?[{apart}]|[{_SPACES}]+"


def pattern_of(name: str) -> str:
    """The regular expression of a name; what is no name is one itself."""
    digits = re.fullmatch(r"digits:([1-9])", name)
    if digits:
        return _with_digits(rf"\p{{N}}{{1,{digits[1]}}}")
    return PATTERNS.get(name, name)


def name_of(pattern: str) -> str:
    """The name of a regular expression; what has none is its own."""
    names = (*PATTERNS, *(f"digits:{digits}" for digits in range(1, 10)))
    return next((name for name in names if pattern_of(name) == pattern), pattern)
