"""Splitters beside `tokenizers`, which cuts the same text by the same regular expressions.

More of the same: pytest tests/pipelines/encoding/test_splitter.py --hypothesis-seed=N, and
SPLITTER_TEXTS=1000000 for so many random texts of each pattern.
"""

import os
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from tests.tools.tokenizer_families import DEEPSEEK, QWEN35
from textmill.pipelines.encoding.automaton import UnsupportedPattern
from textmill.pipelines.encoding.character_sets import CODE_POINTS, property_set
from textmill.pipelines.encoding.patterns import GPT2, PATTERNS, pattern_of
from textmill.pipelines.encoding.splitter import CHUNK, split_by

TEXTS = int(os.environ.get("SPLITTER_TEXTS", "1500"))
PUBLISHED = {
    **{name: (pattern,) for name, pattern in PATTERNS.items()},
    "digits:2": (pattern_of("digits:2"),),
    "Qwen 3.5": (QWEN35,),
    "DeepSeek V3": DEEPSEEK,
    "digits, then gpt2": (r"\p{N}", PATTERNS[GPT2]),
    # Not published: what leaves gaps, prefers the shorter alternative, gives back, looks ahead.
    "preferring": (r"ab|abc|[a-c]+?d|(?:x|xy)z*",),
    "giving back": (r"[a-z]+\d",),
    "looking ahead": (r"a(?=b)|b+(?!c)|.",),
    "counting": (r"(?:ab){2,3}|'(?:s|t)|x{2}|y{3,}?",),
    "twice": (r"\s+", r"[aeiou]"),
    # Possessive repetitions: the first four match what greedy ones do, the others less.
    **{name: (name,) for name in (r"a++b", r"[^\s]?+\s+", r"yx*+[xy]*", r"(?:a++b)+c")},
    **{name: (name,) for name in (r"\s++\s|a", r"[ab]?+b|c", r"a*+[ab]x|b", r"(?:[ab]++|c)+a|x")},
    **{name: (name,) for name in (r"(?:x?+y)+x|a", r"[ab]?+[bc]?+c|.")},
}
CHARACTERS = [
    *"aaabbcdxxyyzstrevmlST \t\n\r'0129.,!-_/ſ\u00a0\u3000\u2028\x85²Ⅷ١\u0301\u0302ǅʰßéﬆ中文の한Kİ",
    *("\U0001f469", "\u200d", "\U000e0101", "\ufeff", "\u0903", "\u0e48", "\U0010ffff", "\0"),
]


def cut(patterns: Sequence[str], texts: Sequence[str]) -> list[list[bytes]]:
    """The words of each text."""
    encoded = [text.encode() for text in texts]
    data = np.frombuffer(b"".join(encoded), np.uint8)
    offsets = np.cumsum([0, *map(len, encoded)])
    chunks = [chunk.copy() for chunk in split_by(*patterns).cut(data, offsets)]
    starts = np.unique(np.concatenate([offsets[:1], *chunks]))
    for before, after in zip(chunks, chunks[1:], strict=False):
        assert before[-1] == after[0]
    assert set(offsets) <= set(starts)
    found, content = [], data.tobytes()
    for begin, stop in zip(offsets, offsets[1:], strict=False):
        low, high = np.searchsorted(starts, [begin, stop + 1])
        edges = starts[low:high]
        found.append([content[a:b] for a, b in zip(edges, edges[1:], strict=False)])
    return found


def cut_by_tokenizers(patterns: Sequence[str], texts: Sequence[str]) -> list[list[bytes]]:
    """The same by the library."""
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    sequence = pre_tokenizers.Sequence(splits)
    return [
        [text[start:stop].encode() for _, (start, stop) in sequence.pre_tokenize_str(text)]
        for text in texts
    ]


@pytest.mark.parametrize("name", PUBLISHED)
def test_random_texts_are_cut_as_by_tokenizers(name):
    drawn = random.Random(f"{name} {TEXTS}")
    sizes = (1, 2, 3, 5, 8, 20, 60)
    texts = ["".join(drawn.choices(CHARACTERS, k=drawn.choice(sizes))) for _ in range(TEXTS)]
    found, expected = cut(PUBLISHED[name], texts), cut_by_tokenizers(PUBLISHED[name], texts)
    different = [text for text, a, b in zip(texts, found, expected, strict=True) if a != b]
    assert not different, different[:3]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "o200k"])
def test_every_character_is_cut_as_by_tokenizers(name):
    points = [chr(point) for point in range(0x323B0) if not 0xD800 <= point < 0xE000]
    texts = [f"a{c}1{c} {c}b'{c}\n{c}{c}A" for c in points]
    assert cut(PUBLISHED[name], texts) == cut_by_tokenizers(PUBLISHED[name], texts)


@given(st.sampled_from(sorted(PUBLISHED)), st.lists(st.text(max_size=30), max_size=5))
def test_any_texts_are_cut_as_by_tokenizers(name, texts):
    assert cut(PUBLISHED[name], texts) == cut_by_tokenizers(PUBLISHED[name], texts)


@pytest.mark.parametrize("name", ["gpt2", "giving back", "twice", "DeepSeek V3"])
@pytest.mark.parametrize("unit", ["x", "x1 ", " ", "\n ", "..\n", "e\u0301é", "'s1a"])
def test_texts_of_many_chunks_are_cut_as_by_tokenizers(name, unit):
    if name == "giving back" and unit == "x":
        unit = "xxxxxxxxx "  # a pattern that looks for a digit to the end, from each letter on
    texts = ["a", unit * (2 * CHUNK // len(unit) + 7), "", unit * (CHUNK // len(unit)), "b"]
    assert cut(PUBLISHED[name], texts) == cut_by_tokenizers(PUBLISHED[name], texts)


@pytest.mark.parametrize(
    "pattern",
    [
        *("a*", "(?!b)", "", "a|", "a{0,3}", r"\s*(?=x)"),  # may match nothing
        *("a)", "(a", "[a", "[]", "*a", "a{70}", "(?<=a)b", "^a", "a$", r"\bx", r"(a)\1"),
        *("[[:a:]]", r"\p{Nonsense}", r"[a-\s]", "[b-a]", "(?i:[a-c])", "[a&&b]", r"\Aa"),
        *("(?=ab)c", "(?!a)*", "(?:a*b?)+c", "(?:x?+y?+)+x", "(?:ab)++c", "(?i:ss)", "\\", "a\\"),
    ],
)
def test_patterns_that_no_automaton_matches_are_refused(pattern):
    with pytest.raises(UnsupportedPattern):
        split_by(pattern)


@pytest.mark.parametrize("atom", [r"\p{L}", r"\p{Mn}", r"\s", r"\P{N}", r"\d", r"\p{Co}"])
def test_properties_hold_for_code_points_that_were_not_asked(atom):
    members = property_set(atom)
    assert len(members) == CODE_POINTS
    for point in (0x41, 0x3FFFF, 0x40000, 0x7ABCD, 0xDFFFF, 0xE0101, 0xE1000, 0xEFFFF, 0x10ABCD):
        cut_alone = cut_by_tokenizers([atom], [chr(point) * 2]) == [[chr(point).encode()] * 2]
        assert members[point] == cut_alone, hex(point)
