"""Detects the encoding of text, and bytes that are not text. Pure.

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
_MOST_BAD = 0.1  # share of U+FFFD above which characters are not text
_FEW_BAD = 10  # may be in a text of any length
_CONTROL = 5  # weight of a control character beside U+FFFD


def find_utf_16(data: bytes) -> str:
    """The byte order of UTF-16 without a mark, by the positions of NULs; "" if it is not UTF-16."""
    if b"\0" not in data:
        return ""
    least = max(_NUL_SHARE * (len(data) // 2), _FEW_NULS)
    even, odd = data[::2].count(0), data[1::2].count(0)
    if odd > least and not even:
        return "UTF-16LE"
    return "UTF-16BE" if even > least and not odd else ""


def count_replaced(text: str) -> int:
    """The number of U+FFFD in a text."""
    # Most texts have none, which takes a fifth of the time to find out.
    return text.count("\ufffd") if "\ufffd" in text else 0


def is_binary(text: str, utf_8: bytes | None = None) -> bool:
    """Whether characters are decoded binary data: more than 2 % control characters, 10 % U+FFFD.

    Random bytes have 10 % control characters in any encoding, pickled words 5 %.

    Args:
      text: characters.
      utf_8: the same in UTF-8, if it is known.
    """
    data = (text.encode() if utf_8 is None else utf_8).rstrip(b"\0")
    controls = len(data) - len(data.translate(None, _CONTROLS))
    return _CONTROL * controls + count_replaced(text) > max(_MOST_BAD * len(text), _FEW_BAD)
