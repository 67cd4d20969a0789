"""English spellings with their own rules for cutting words. Pure.

`don't` is `do` and `n't`, `cannot` is `can` and `not`, `Mr.` keeps its full stop, `10pm` is `10`
and `pm`, as in the Penn Treebank and the tokenizers after it.
"""

import functools
from collections.abc import Iterator

import numpy as np

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
