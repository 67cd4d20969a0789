"""Properties of characters for cutting English text into words. Pure."""

import functools
import string
import sys
import unicodedata

import numpy as np

SPACE, ALPHA, LOWER, UPPER, DIGIT = 1, 2, 4, 8, 16
BEGINS, ENDS = 32, 64  # cut off the beginning, or end, of a word
ENDS_BEFORE_DOT = 128  # a full stop after it is cut off
QUOTE, ICON, CURRENCY = 256, 512, 1024
SOLID = 2048  # a word with one is not punctuation to datatrove
MARK, TERMINAL, BREAK = 4096, 8192, 16384  # punctuation; may end a sentence; ends a line
LETTER, ENDS_LINE = 32768, 65536  # any letter (hyphens cut only between ALPHA); FineWeb's line end

_QUOTES = "'\"”“`‘´’‚,„»«「」『』（）〔〕【】《》〈〉⟦⟧"
_MARKS = "…,:;!?¿؟¡()[]{}<>_#*&。？！，、；：～·।۔؛٪،"
_CURRENCIES = "$£€¥฿₽﷼₴"
_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
# Punctuation to datatrove, besides line ends and control characters other than \t and \n.
_SIGNS = string.punctuation + "«´»–—’“”„…∶━►、〈〉《》「」【】％（），１：；～"
# Unicode's property Sentence_Terminal in the older version that spaCy has; and the characters that
# datatrove adds as ends of lines for FineWeb.
_TERMINALS = """
21 2e 3f 589 61f 6d4 700-702 7f9 964-965 104a-104b 1362 1367-1368 166e 1735-1736 1803 1809 1944-1945
1aa8-1aab 1b5a-1b5b 1b5e-1b5f 1c3b-1c3c 1c7e-1c7f 203c-203d 2047-2049 2e2e 2e3c 3002 a4ff a60e-a60f
a6f3 a6f7 a876-a877 a8ce-a8cf a92f a9c8-a9c9 aa5d-aa5f aaf0-aaf1 abeb fe52 fe56-fe57 ff01 ff0e ff1f
ff61 10a56-10a57 11047-11048 110be-110c1 11141-11143 111c5-111c6 111cd 111de-111df 11238-11239
1123b-1123c 112a9 1144b-1144c 115c2-115c3 115c9-115d7 11641-11642 1173c-1173e 11a42-11a43
11a9b-11a9c 11c41-11c42 16a6e-16a6f 16af5 16b37-16b38 16b44 1bc9f 1da88
"""
_LINE_ENDS = """
61d-61e 837 839 83d-83e 17d4-17d6 17d9-17da 1b7d-1b7e 2e53-2e54 10f55-10f59 10f86-10f89 11944 11946
11ef7-11ef8 11f43-11f44 16e98
"""


@functools.cache
def character_table() -> np.ndarray:
    """uint32 [code points]: the properties above, combined by or."""
    table = np.array([_of_category(chr(point)) for point in range(sys.maxunicode + 1)], np.uint32)
    for characters, properties in (
        (_QUOTES, QUOTE | BEGINS | ENDS | ENDS_BEFORE_DOT),
        (_MARKS, BEGINS | ENDS | ENDS_BEFORE_DOT),
        (_CURRENCIES, BEGINS | CURRENCY),
        (map(chr, range(0x20A0, 0x20C0)), BEGINS | CURRENCY),
        ("—–", BEGINS | ENDS),
        ("§%=", BEGINS),
        ("%²-+|", ENDS_BEFORE_DOT),
        ("0123456789", DIGIT | ENDS_BEFORE_DOT),
        (_BREAKS, BREAK),
    ):
        table[list(map(ord, characters))] |= properties
    for ranges, properties in ((_TERMINALS, TERMINAL | ENDS_LINE), (_LINE_ENDS, ENDS_LINE)):
        for part in ranges.split():
            first, _, last = part.partition("-")
            table[int(first, 16) : int(last or first, 16) + 1] |= properties
    is_sign = (table & ENDS_LINE) > 0
    is_sign[[*map(ord, _SIGNS), *range(9), *range(11, 32), *range(127, 160)]] = True
    table[~is_sign] |= SOLID
    return table


def _of_category(character: str) -> int:
    category = unicodedata.category(character)
    properties = SPACE if character.isspace() else 0
    properties |= LETTER if character.isalpha() else 0
    if category[0] == "L" and not 0x2B0 <= ord(character) < 0x300:  # not phonetic modifiers
        lower, upper = category in ("Ll", "Lo"), category in ("Lu", "Lt", "Lo")
        properties |= ALPHA | (LOWER | ENDS_BEFORE_DOT) * lower | UPPER * upper
    if category[0] == "P":
        properties |= MARK
    if category == "So":
        properties |= ICON | BEGINS | ENDS
    return properties
