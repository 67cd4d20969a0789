"""Tables of characters and spellings for cutting English text into words. Pure.

`don't` is `do` and `n't`, `cannot` is `can` and `not`, `Mr.` keeps its full stop, `10pm` is `10`
and `pm`, as in the Penn Treebank and the tokenizers after it.
"""

import functools
import string
import sys
import unicodedata
from collections.abc import Iterator

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


_NEGATED = (
    "ai are ca could dare did do does had has have is may might must need ought sha should was "
    "were wo would"
)
_NEGATED_HAVE = "ca could did do does had may might must need ought sha should wo would"
_HAVE = (
    "could might must not should would i you we they what where who how there these those when why"
)
_SUBJECTS = "i you he she it we they this that these those there who what when where why how"
_IS = "he she it that this there who what when where why how"
_ARE = "you we they these those there who what when where why how"
# Contractions that are other words without the apostrophe.
_WORDS = "ill its hell shell shed were well whore"
_PAIRS = "can|not gon|na got|ta let|'s c'm|on"
_ABBREVIATIONS = (
    "Adm. Ak. Ala. Apr. Ariz. Ark. Aug. Bros. Calif. Co. Colo. Conn. Corp. D.C. Dec. Del. Dr. E.G. "
    "E.g. Feb. Fla. Ga. Gen. Gov. I.E. I.e. Ia. Id. Ill. Inc. Ind. Jan. Jr. Jul. Jun. Kan. Kans. "
    "Ky. La. Ltd. Mar. Mass. Md. Messrs. Mich. Minn. Miss. Mo. Mont. Mr. Mrs. Ms. Mt. N.C. N.D. "
    "N.H. N.J. N.M. N.Y. Neb. Nebr. Nev. Nov. Oct. Okla. Ore. Pa. Ph.D. Prof. Rep. Rev. S.C. Sen. "
    "Sep. Sept. St. Tenn. Va. Wash. Wis. a.m. p.m. co. e.g. i.e. v.s. vs. and/or w/o o'clock "
    "O'clock ma'am Ma'am C++ ol' Ol' 'em 'bout 'cause 'Cause 'cos 'Cos 'coz 'Coz 'cuz 'Cuz 'nuff "
    "'S 's 'd 'll 're '' doin' Doin' goin' Goin' havin' Havin' lovin' Lovin' nothin' Nothin' "
    "nuthin' Nuthin' somethin' Somethin'"
)
_FACES = (
    "(: (; (= (-: (-; :) :)) :))) ;) :-) :-)) :-))) ;-) ): )-: :( :(( :((( :-( :-(( :-((( :D :-D "
    ";D ;-D =D 8D 8-D 8) 8-) (-8 :P :-P :p :-p :O :-O :o :-o :0 :-0 :o) (o: :* :-* :/ :-/ =/ :| "
    ":-| =| :x :-x :X :-X :] :-] [: [-: [= =] =[ :} :-} :> :-> :3 :-3 =3 :1 =) =( :'( :'-( :') "
    ":'-) >:( >:o <3 <33 <333 </3 xD XD xDD XDD ^_^ ^__^ ^___^ -_- -__- (-_-) (^_^) >_< (>_<) >.< "
    ">.> <.< o.o O.O o.O O.o 0.0 o.0 0.o o_o O_O o_O O_o 0_0 o_0 0_o V.V V_V v.v v_v ;_; ._. "
    "(._.) @_@"
)
_UNITS = (
    "km km² km³ m m² m³ dm dm² dm³ cm cm² cm³ mm mm² mm³ ha µm nm yd in ft kg g mg µg t lb oz m/s "
    "km/h kmh mph hPa Pa mbar mb MB kb KB gb GB tb TB T G M K %"
)
_ROOM = 1 << 13  # slots of the table, for some 2,000 spellings
UNIT = 0xFF  # value of a unit of measure, which is cut off after a digit


@functools.cache
def spelling_table() -> np.ndarray:
    """int64 [2, slots]: a hash table of spellings, with hashes in row 0 and values in row 1.

    The value is 1 + first cut + second cut * 256, with cuts in bytes, or 0 for a free slot.
    """
    keys, values = np.zeros(_ROOM, np.uint64), np.zeros(_ROOM, np.int64)
    entries = {
        spelling: 1 + sum(c << 8 * i for i, c in enumerate(cuts)) for spelling, cuts in _spellings()
    }
    entries |= {"\0" + unit: UNIT for unit in _UNITS.split()}
    for spelling, value in entries.items():
        key = hash_spelling(spelling.encode())
        place = key % _ROOM
        while values[place]:
            place = (place + 1) % _ROOM
        keys[place], values[place] = key, value
    return np.stack([keys.view(np.int64), values])


def hash_spelling(spelling: bytes) -> int:
    """FNV-1a, 64 bits."""
    value = 0xCBF29CE484222325
    for byte in spelling:
        value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    return value


def _spellings() -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields spellings and the bytes at which they are cut."""
    for parts in _contractions():
        for cased in (parts, (parts[0].capitalize(), *parts[1:])):
            for form in {cased, tuple(part.replace("'", "’") for part in cased)}:
                cuts = np.cumsum([len(part.encode()) for part in form])[:-1]
                yield "".join(form), tuple(cuts.tolist())
    yield from ((f"°{scale}.", (2, 3)) for scale in "CFKcfk")
    yield from (("yall", (1,)), ("y'all", (2,)), ("y’all", (4,)))
    for spelling in (_ABBREVIATIONS + " " + _FACES).split():
        for form in {spelling, spelling.replace("'", "’")}:
            yield form, ()
    for letter in "abcdefghijklmnopqrstuvwxyzäöü":
        yield f"{letter}.", ()
    for hour in range(1, 13):
        for half in ("am", "pm", "a.m.", "p.m."):
            yield f"{hour}{half}", (len(str(hour)),)


def _contractions() -> Iterator[tuple[str, ...]]:
    for parts in _with_apostrophes():
        yield parts
        bare = tuple(part.replace("'", "") for part in parts)
        if "".join(bare) not in _WORDS.split() and parts[0] != "let":
            yield bare
    for pair in _PAIRS.split():
        yield tuple(pair.split("|"))


def _with_apostrophes() -> Iterator[tuple[str, ...]]:
    for verb in _NEGATED.split():
        yield verb, "n't"
    for verb in _NEGATED_HAVE.split():
        yield verb, "n't", "'ve"
    for words, ending in ((_HAVE, "'ve"), (_SUBJECTS, "'d"), (_SUBJECTS, "'ll"), (_IS, "'s")):
        for word in words.split():
            yield word, ending
    for word in _SUBJECTS.split():
        yield word, "'d", "'ve"
        yield word, "'ll", "'ve"
    for word in _ARE.split():
        yield word, "'re"
    yield "i", "'m"
    yield "i", "'m", "a"
