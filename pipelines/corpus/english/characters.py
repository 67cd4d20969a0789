"""What is to be known of each character where English text is cut into words. Pure."""

import functools
import sys
import unicodedata

import numpy as np

SPACE, ALPHA, LOWER, UPPER, DIGIT = 1, 2, 4, 8, 16
BEGINS, ENDS = 32, 64  # cut off where a word begins or ends with it
ENDS_BEFORE_DOT = 128  # a full stop after it is cut off
QUOTE, ICON, CURRENCY = 256, 512, 1024
SOLID = 2048  # neither punctuation nor a symbol: what makes a word more than a mark
MARK, TERMINAL, BREAK = 4096, 8192, 16384  # punctuation; may end a sentence; ends a line
LETTER = 32768  # any; ALPHA is one of those between which a hyphen parts words

_QUOTES = "'\"”“`‘´’‚,„»«「」『』（）〔〕【】《》〈〉⟦⟧"
_MARKS = "…,:;!?¿؟¡()[]{}<>_#*&。？！，、；：～·।۔؛٪،"
_CURRENCIES = "$£€¥฿₽﷼₴"
_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
# Unicode's property Sentence_Terminal.
_TERMINALS = """
21 2e 3f 589 61d-61f 6d4 700-702 7f9 837 839 83d-83e 964-965 104a-104b 1362 1367-1368 166e
1735-1736 17d4-17d5 1803 1809 1944-1945 1aa8-1aab 1b4e-1b4f 1b5a-1b5b 1b5e-1b5f 1b7d-1b7f 1c3b-1c3c
1c7e-1c7f 2024 203c-203d 2047-2049 2cf9-2cfb 2e2e 2e3c 2e53-2e54 3002 a4ff a60e-a60f a6f3 a6f7
a876-a877 a8ce-a8cf a92f a9c8-a9c9 aa5d-aa5f aaf0-aaf1 abeb fe12 fe15-fe16 fe52 fe56-fe57 ff01
ff0e ff1f ff61 10a56-10a57 10f55-10f59 10f86-10f89 11047-11048 110be-110c1 11141-11143 111c5-111c6
111cd 111de-111df 11238-11239 1123b-1123c 112a9 1144b-1144c 115c2-115c3 115c9-115d7 11641-11642
1173c-1173e 11944 11946 11a42-11a43 11a9b-11a9c 11c41-11c42 11ef7-11ef8 11f43-11f44 16a6e-16a6f
16af5 16b37-16b38 16b44 16e98 1bc9f 1da88
"""


@functools.cache
def character_table() -> np.ndarray:
    """uint16 [code points]: the properties above, added up."""
    table = np.array([_of_category(chr(point)) for point in range(sys.maxunicode + 1)], np.uint16)
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
    for part in _TERMINALS.split():
        first, _, last = part.partition("-")
        table[int(first, 16) : int(last or first, 16) + 1] |= TERMINAL
    return table


def _of_category(character: str) -> int:
    category = unicodedata.category(character)
    found = SPACE if character.isspace() else 0
    found |= LETTER if character.isalpha() else 0
    if category[0] == "L" and not 0x2B0 <= ord(character) < 0x300:  # signs of phonetics are none
        lower, upper = category in ("Ll", "Lo"), category in ("Lu", "Lt", "Lo")
        found |= ALPHA | (LOWER | ENDS_BEFORE_DOT) * lower | UPPER * upper
    if category[0] not in "PSC":
        found |= SOLID
    if category[0] == "P":
        found |= MARK
    if category == "So":
        found |= ICON | BEGINS | ENDS
    return found
