import json
import unicodedata
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.filter_factory import column
from tests.tools.places import DATA
from textmill.pipelines.rows import word_hashes
from textmill.pipelines.rows.text_bytes import utf8_bytes
from textmill.pipelines.rows.word_hashes import (
    are_same_words,
    character_table,
    hash_some_characters,
    hash_words,
    weigh_words,
)

# Letters whose other case has more characters or bytes, marks, digits of several kinds, astral
# letters, what stands between words, and an unassigned code point.
CHARACTERS = st.sampled_from("aAzéÉßẞİıΣςσſKΔ你好あ١٢²Ⅷ𝔘𐐀𐐨😀\u0301\ufe0f\u200d\u00ad_'-. \n\u0378")
TEXTS = st.lists(st.text(CHARACTERS | st.characters(exclude_categories=["Cs"]), max_size=30))


def fold(character):
    if character in "ıİ":
        return "i"
    folded = character.casefold()
    return folded if len(folded) == 1 else character.lower()[0]


def is_alone(character):
    """Whether it is of a script without spaces between words, by the beginning of its name."""
    name = unicodedata.name(character, "")
    return unicodedata.category(character)[0] in "LN" and name.startswith(
        ("CJK UNIFIED", "CJK COMPATIBILITY IDEO", "IDEOGRAPHIC ", "BOPOMOFO", "HENTAIGANA")
        + ("HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA", "MYANMAR", "THAI", "LAO", "KHMER")
    )


def plain_words(text):
    """(folded word, first byte, byte after the last) of each, character by character."""
    words, word, start, place = [], "", 0, 0
    for character in text:
        category = unicodedata.category(character)[0]
        letter = fold(character) if category in "LN" and character not in "ßẞ" else ""
        if word and letter and (is_alone(character) or is_alone(word[0])):
            words.append((word, start, place))
            word = ""
        if letter:
            start = start if word else place
            word += letter
        elif word and character in "ßẞ":
            word += "ss"
        elif category == "M" and word:
            word += character.replace("\u0307", "")
        elif word:
            words.append((word, start, place))
            word = ""
        place += len(character.encode())
    return [*words, (word, start, place)] if word else words


def joined_words(words):
    """The words, with a space where something lies between two."""
    last = 0
    for word, start, stop in words:
        yield " " * (0 < last < start) + word
        last = stop


def check(texts):
    words, first = hash_words(column(texts)), 0
    named = {}
    for number, text in enumerate(texts):
        begin, end = words.offsets[number : number + 2]
        found = [(words.starts[i] - first, words.stops[i] - first) for i in range(begin, end)]
        expected = plain_words(text)
        assert found == [(start, stop) for _, start, stop in expected]
        for place, (word, _, _) in zip(range(begin, end), expected, strict=True):
            assert named.setdefault(word, words.hashes[place]) == words.hashes[place]
        first += len(text.encode())
    assert len(set(named.values())) == len(named)  # 64 bits: no two of so few by chance


@given(TEXTS, st.sampled_from([16, word_hashes._AT_ONCE]))
def test_words_are_those_found_character_by_character(texts, at_once):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_hashes, "_AT_ONCE", at_once)
        check(texts)


def hash_slowly(word):
    """The hash of a folded word, letter by letter."""
    mixed, ones = 0x9E3779B97F4A7C15, 2**64 - 1
    for letter in word:
        mixed = (mixed ^ ord(letter)) * 0xD6E8FEB86659FD93 & ones
        mixed ^= mixed >> 32
    mixed = (mixed ^ mixed >> 29) * 0xC2B2AE3D27D4EB4F & ones
    return mixed ^ mixed >> 32


@given(st.integers(0, 2**32), st.integers(1, 3), st.sampled_from(["", "é", "éß'ж"]))
def test_long_texts_of_words_of_all_lengths(seed, documents, others):
    random, letters = Random(seed), "abcXYZ019" * 4 + others
    sizes, between = (1, 3, 7, 8, 9, 17, 70), (" ", ", ", "_")
    texts = [
        "".join(
            "".join(random.choices(letters, k=random.choice(sizes))) + random.choice(between)
            for _ in range(random.randrange(700))
        ).strip()
        for _ in range(documents)
    ]
    check(texts)
    words, text = hash_words(column(texts)), "".join(texts).encode()
    for start, stop, value in zip(words.starts, words.stops, words.hashes.tolist(), strict=True):
        word = text[start:stop].decode().replace("ß", "ss").lower()
        assert value == hash_slowly(word)


def test_hard_strings():
    if not DATA.exists():
        pytest.skip("no ../shared/data beside the checkout")
    hard = DATA / "hard"
    files = ("bmp-separated.txt", "sup-unseparated.txt", "utf8tests.txt")
    check(json.loads((hard / "blns.json").read_text(encoding="utf-8")))
    check([(hard / name).read_text(encoding="utf-8") for name in files])


def test_scripts_without_spaces_have_a_word_a_character():
    text = "GPT模型，が゙ーと ที่ดี ខ្មែរ"
    words = hash_words(column([text]))
    data = text.encode()
    found = [data[a:b].decode() for a, b in zip(words.starts, words.stops, strict=True)]
    khmer = ["ខ្", "មែ", "រ"]
    assert found == ["GPT", "模", "型", "が゙", "ー", "と", "ที่", "ดี", *khmer]
    assert weigh_words(column([text]), words.starts).tolist() == [12, 8, 8, *[4] * 3, *[3] * 5]


@given(TEXTS)
def test_characters_are_those_of_words_with_spaces_between(texts):
    hashes, offsets = hash_some_characters(*utf8_bytes(column(texts)))
    joined = ["".join(joined_words(plain_words(text))) for text in texts]
    assert np.diff(offsets).tolist() == [len(text) for text in joined]
    named = {}
    for character, value in zip("".join(joined), hashes.tolist(), strict=True):
        assert named.setdefault(character, value) == value
    assert len(set(named.values())) == len(named)


SPELT = st.lists(
    st.sampled_from(["s", "S", "ß", "ẞ", "a", "i", "İ", "ı", "\u0307", "\u0301"]), max_size=6
)


@given(SPELT.map("".join), SPELT.map("".join))
def test_words_are_the_same_where_their_hashes_are(one, other):
    texts = ["x" + one, "x" + other]
    words, (data, _) = hash_words(column(texts)), utf8_bytes(column(texts))
    first, second = np.array([0]), np.array([1])
    places = (data, words.starts, words.stops)
    length = np.array([1])
    same = are_same_words(*places, first, *places, second, length, character_table())
    assert same.tolist() == [words.hashes[0] == words.hashes[1]]
    assert same.tolist() == [plain_words(texts[0])[0][0] == plain_words(texts[1])[0][0]]
