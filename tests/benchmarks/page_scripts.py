"""Writes the text of pages in other scripts, to measure whether they change the main text.

Each word becomes letters of the script, as many as a translation has on average (lengths of the
Universal Declaration of Human Rights, without white space): the same word always the same letters.
Punctuation and spaces become those of the script. Markup and code stay, so a page has the same
blocks in each script, and the same ones should be chosen.
"""

import random
import re
import zlib
from dataclasses import dataclass

import numpy as np

from textmill.pipelines.readers.page_scan import LINK, TAGS, TEXT, Elements, Runs

_PIECES = re.compile(r"&#?\w+;|[^\W\d_]+")
_CODE = [TAGS[name] for name in ("pre", "code")]


@dataclass(frozen=True)
class Script:
    """How a script writes text.

    Attributes:
      letters: letters of words.
      rate: letters for each letter of English.
      space: between words.
      marks: what stands for ". ", ", " and others.
    """

    letters: str
    rate: float
    space: str = " "
    marks: tuple[tuple[str, str], ...] = ()


def _letters(first: int, last: int) -> str:
    return "".join(map(chr, range(first, last + 1)))


_IDEOGRAPHS = _letters(0x4E00, 0x55FF)
_WIDE_MARKS = ((r"\?", "？"), ("!", "！"), (";", "；"), (":", "："))
_NONE = tuple((mark, " ") for mark in (r"\.", ",", r"\?", "!", ";", ":"))
SCRIPTS = {
    "German": Script("aeinrstlduhgmcboäüß", 1.15),
    "Russian": Script(_letters(0x430, 0x44F), 1.15),
    "Arabic": Script(_letters(0x627, 0x63A), 0.8, " ", ((",", "،"), (r"\?", "؟"), (";", "؛"))),
    "Thai": Script(_letters(0xE01, 0xE2E) + _letters(0xE30, 0xE39), 1.05, "", _NONE),
    "Chinese": Script(_IDEOGRAPHS, 0.33, "", ((r"\.", "。"), (",", "，"), *_WIDE_MARKS)),
    "Japanese": Script(
        _letters(0x3041, 0x3093) + _IDEOGRAPHS[:80],
        0.55,
        "",
        ((r"\.", "。"), (",", "、"), *_WIDE_MARKS),
    ),
}


def write_in(markup: bytes, elements: Elements, runs: Runs, script: Script) -> bytes:
    """The markup of a page with its text in a script.

    Args:
      markup: the page as a parser writes it.
      elements: its elements.
      runs: its runs of text.
      script: one of SCRIPTS.
    """
    is_code = np.isin(elements.tags, _CODE)
    for at in range(1, len(is_code)):
        is_code[at] |= is_code[elements.parents[at]]
    words: dict[str, str] = {}
    pieces, last = [], 0
    is_text = np.isin(runs.kinds, (TEXT, LINK)) & ~is_code[runs.elements]
    for start, stop in zip(runs.starts[is_text], runs.stops[is_text], strict=True):
        text = markup[start:stop].decode("utf-8", "replace")
        pieces += markup[last:start], write_text(text, script, words).encode()
        last = stop
    return b"".join((*pieces, markup[last:]))


def write_text(text: str, script: Script, words: dict[str, str]) -> str:
    """A text in a script: in Thai letters without spaces, "a cat, a dog" is "กคข กฃข".

    Args:
      text: text with character references, which stay.
      script: one of SCRIPTS.
      words: words that were written before; new ones are added.
    """

    def replace(match: re.Match[str]) -> str:
        word = match[0]
        if word.startswith("&"):
            return word
        if word not in words:
            count = max(1, round(len(word) * script.rate))
            choose = random.Random(zlib.crc32(word.lower().encode())).choices
            written = "".join(choose(script.letters, k=count))
            words[word] = written.capitalize() if word[0].isupper() else written
        return words[word]

    text = _PIECES.sub(replace, text)
    letter = rf"[{script.letters}]"
    for mark, sign in script.marks:
        text = re.sub(rf"(?<={letter}){mark}(?=\s|$)", sign, text)
    if not script.space:
        text = re.sub(rf"(?<={letter})[ \t\r\n]+(?={letter})|(?<=[。，、？！；：])[ ]", "", text)
    return text
