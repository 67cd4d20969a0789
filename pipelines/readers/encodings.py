"""Detects the encoding of text, and bytes that are no text. Pure.

This file imports no package: processes that read web pages start with it.
"""

import codecs

ENCODED = (  # UTF-32 first, because its marks begin like those of UTF-16
    (codecs.BOM_UTF32_LE, "UTF-32LE"),
    (codecs.BOM_UTF32_BE, "UTF-32BE"),
    (codecs.BOM_UTF16_LE, "UTF-16LE"),
    (codecs.BOM_UTF16_BE, "UTF-16BE"),
)
_NUL_SHARE = 0.2  # minimum share of NULs in every other byte of UTF-16
_FEW_NULS = 8  # may be in every other byte of text by chance
# Control characters that no text has; those of spacing, overstriking and terminal colors remain.
_CONTROLS = bytes({*range(32), 127} - {*b"\b\t\n\v\f\r\x1b"})
_MOST_BAD = 0.1  # share of U+FFFD above which characters are no text
_FEW_BAD = 10  # may be in a text of any length
_CONTROL = 5  # weight of a control character beside U+FFFD


def find_utf_16(data: bytes) -> str:
    """The byte order of UTF-16 without a mark, by the positions of NULs; "" if it is not UTF-16."""
    least = max(_NUL_SHARE * (len(data) // 2), _FEW_NULS)
    even, odd = data[::2].count(0), data[1::2].count(0)
    if odd > least and not even:
        return "UTF-16LE"
    return "UTF-16BE" if even > least and not odd else ""


def is_binary(text: str) -> bool:
    """Whether characters are decoded binary data: more than 2 % control characters, 10 % U+FFFD.

    Random bytes have 10 % control characters in any encoding, pickled words 5 %.
    """
    data = text.rstrip("\0").encode()
    controls = len(data) - len(data.translate(None, _CONTROLS))
    return _CONTROL * controls + text.count("\ufffd") > max(_MOST_BAD * len(text), _FEW_BAD)
