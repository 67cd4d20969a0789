"""Personal data becomes placeholders: <email>, <ip> and, where asked, <phone>.

As datatrove's PIIFormatter and Dolma's taggers do for FineWeb and Dolma, addresses are found by
their form. A placeholder is no address, so that a model learns none; datatrove puts other addresses
in their place. What is found:
  - e-mail addresses: letters, digits and signs, @, and a domain with a dot that ends in letters;
  - IPv4 and IPv6 addresses that are public (`ipaddress.is_global`): 192.168.0.1 and versions with
    more parts (1.2.3.4.5) stay;
  - with --pii_phones, numbers with a plus and 8 to 15 digits, and those of North America with
    separators: (212) 555-0123. Numbers of other forms cannot be told from dates and prices.
"""

import functools
import ipaddress
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from pipelines.corpus.rules.rule import Family, Judged, Rule
from pipelines.host.arrow import pc
from pipelines.host.compiled import entry, inner
from pipelines.rows.text_bytes import utf8_bytes
from schemas.errors import UsageError

_NAMES = ("email", "ip", "phone")
_EMAIL, _IP, _PHONE = range(3)
_PHONES = re.compile(
    rb"(?<![\d+])(?:\+\d(?:[ ().-]{0,2}\d){7,14}|(?:\+?1[ .-]?)?"
    rb"(?:\([2-9]\d\d\)[ .-]?|[2-9]\d\d[.-]|[2-9]\d\d )[2-9]\d\d[ .-]\d{4})(?![\d-])"
)
_FEWEST_DIGITS = 8
_IPV6 = ipaddress.ip_network("2000::/3")  # all of it that is given to anybody


@dataclass(frozen=True)
class Pii(Family):
    """Personal data that can be found by its form; for any language."""

    pii: Literal["keep", "replace"] = "keep"
    """replace puts <email> for e-mail addresses and <ip> for public IP addresses."""
    pii_phones: bool = False
    """Put <phone> for phone numbers, too: those with a plus, and North American ones."""

    def __post_init__(self) -> None:
        """Refuses a flag that does nothing."""
        if self.pii_phones and self.pii != "replace":
            raise UsageError("--pii_phones is of --pii=replace: give that too")

    def edits(self) -> str:
        """--pii=replace."""
        return "--pii=replace" if self.pii == "replace" else ""

    def parameters(self) -> dict[str, Any]:
        """Both flags, where they do something."""
        return vars(self) if self.pii == "replace" else {}

    def make_rules(self) -> Iterator[Rule]:
        """One rule, which edits documents and drops none."""
        if self.pii == "replace":
            yield Rule(("pii:empty",), lambda text: judge(text, self.pii_phones), edits="pii")


def judge(text: pa.LargeStringArray, phones: bool) -> Judged:
    """Puts placeholders into documents, and counts them by kind."""
    data, bounds = utf8_bytes(text)
    found = find_candidates(data, bounds, phones, byte_classes())
    spans = [span for row in found.tolist() for span in _confirm(data, *row)]
    counts = Counter(_NAMES[kind] for _, kind, _, _ in spans)
    edited = pc.replace_with_mask(text, *_replace(data, bounds, spans)) if spans else text
    return Judged(np.zeros(len(text), bool), edited, {"pii": dict(counts)} if spans else {})


def _confirm(
    data: np.ndarray, document: int, kind: int, start: int, stop: int
) -> Iterator[tuple[int, int, int, int]]:
    """What a candidate holds: the document, the kind, the first byte, the one after the last."""
    if kind == _EMAIL:
        yield document, kind, start, stop
        return
    found = data[start:stop].tobytes()
    if kind == _PHONE:
        for number in _PHONES.finditer(found):
            yield document, kind, start + number.start(), start + number.end()
        return
    try:
        address = ipaddress.ip_address(found.decode())
    except ValueError:
        return
    if address.is_global and (address.version == 4 or address in _IPV6):
        yield document, kind, start, stop


def _replace(
    data: np.ndarray, bounds: np.ndarray, spans: list[tuple[int, int, int, int]]
) -> tuple[pa.BooleanArray, pa.LargeStringArray]:
    """Which documents change, and these with placeholders."""
    pieces: dict[int, list[bytes]] = {}
    at: dict[int, int] = {}
    for document, kind, start, stop in sorted(spans, key=lambda span: span[2:]):
        before = at.get(document, int(bounds[document]))
        if stop <= before:  # a number in an address
            continue
        piece = data[before : max(start, before)].tobytes() + f"<{_NAMES[kind]}>".encode()
        pieces.setdefault(document, []).append(piece)
        at[document] = stop
    for document, stop in at.items():
        pieces[document].append(data[stop : bounds[document + 1]].tobytes())
    is_edited = np.zeros(len(bounds) - 1, bool)
    is_edited[list(pieces)] = True
    edited = [b"".join(pieces[document]).decode() for document in sorted(pieces)]
    return pa.array(is_edited), pa.array(edited, pa.large_string())


# ---- compiled ----

_AT, _COLON, _DOT, _DASH = 64, 58, 46, 45
_DIGIT, _LETTER, _HEX, _LOCAL, _DIALED, _BEGINS, _BEGINS_NUMBER = (1 << bit for bit in range(7))


@functools.cache
def byte_classes() -> np.ndarray:
    """What bytes are of: uint8 [256], bits."""
    classes = np.zeros(256, np.uint8)
    digits, letters = b"0123456789", bytes(range(65, 91)) + bytes(range(97, 123))
    for flag, members in (
        (_DIGIT, digits),
        (_LETTER, letters),
        (_HEX, digits + b"abcdefABCDEF"),
        # RFC 5322's atoms, and dots, without / = ? & of URLs.
        (_LOCAL, digits + letters + b"!#$%'*+-.^_`{|}~"),
        (_DIALED, digits + b"+() -."),
        (_BEGINS, digits + b"@:"),
        (_BEGINS_NUMBER, digits + b"+("),
    ):
        classes[[*members]] |= flag
    return classes


@inner
def _email(data, at, first, last, classes):
    """The address around an @ of data[first:last]: start and stop, equal if it is none."""
    start = at
    while start > first and classes[data[start - 1]] & _LOCAL:
        start -= 1
    while start < at and data[start] in (_DOT, 39, 96):  # quotes around it are no part
        start += 1
    stop = at + 1
    while stop < last and (
        classes[data[stop]] & (_DIGIT | _LETTER)
        or (data[stop] in (_DOT, _DASH) and data[stop - 1] not in (_DOT, _AT))
    ):
        stop += 1
    while stop > at + 1 and start < at and data[at - 1] != _DOT:
        dot = stop - 1
        while classes[data[dot]] & _LETTER:
            dot -= 1
        if data[dot] == _DOT and stop - dot > 2 and dot > at + 1:
            return start, stop
        while classes[data[stop - 1]] & (_DIGIT | _LETTER):  # the domain may end before this part
            stop -= 1
        while data[stop - 1] in (_DOT, _DASH):
            stop -= 1
    return at, at


@inner
def _ipv4(data, start, last, classes):
    """Where four numbers with dots between end that begin here; the start if they do not."""
    place = start
    for part in range(4):
        digits = 0
        while place < last and digits < 3 and classes[data[place]] & _DIGIT:
            place += 1
            digits += 1
        if digits == 0 or (part < 3 and (place == last or data[place] != _DOT)):
            return start
        place += part < 3
    if place < last and classes[data[place]] & (_DIGIT | _LETTER):
        return start
    if place + 1 < last and data[place] == _DOT and classes[data[place + 1]] & _DIGIT:
        return start
    return place


@inner
def _ipv6(data, colon, first, last, classes):
    """Hexadecimal digits and colons around the first colon, with two of them: start and stop."""
    start = colon
    while start > first and classes[data[start - 1]] & _HEX and colon - start < 4:
        start -= 1
    stop, colons = colon, 0
    while stop < last and (classes[data[stop]] & _HEX or data[stop] == _COLON):
        colons += data[stop] == _COLON
        stop += 1
    end = stop
    while end > colon + 1 and data[end - 1] == _COLON and data[end - 2] != _COLON:
        end -= 1
    is_apart = start == first or not classes[data[start - 1]] & (_LETTER | _DIGIT)
    is_apart &= stop == last or not classes[data[stop]] & (_LETTER | _DIGIT)
    return (start, end) if is_apart and colons > 1 else (stop, stop)


@inner
def _number(data, start, last, classes):
    """Where digits and what stands between those of phone numbers ends; the start if few are."""
    stop, digits = start, 0
    while stop < last and classes[data[stop]] & _DIALED:
        digits += (classes[data[stop]] & _DIGIT) > 0
        stop += 1
    return stop, digits >= _FEWEST_DIGITS


@entry()
def find_candidates(data, bounds, phones, classes):
    """What may be personal data.

    Args:
      data: uint8, UTF-8 of documents.
      bounds: int64 [n + 1], where each begins.
      phones: whether numbers are looked for.
      classes: uint8 [256], see `byte_classes`.

    Returns:
      int64 [m, 4]: the document, the kind, the first byte, and the byte after the last.
    """
    found, count = np.empty((64, 4), np.int64), 0
    begins = _BEGINS | _BEGINS_NUMBER if phones else _BEGINS
    for document in range(len(bounds) - 1):
        first, last = bounds[document], bounds[document + 1]
        place = dialed = first  # the latter: up to where numbers were looked for
        while place < last:
            if not classes[data[place]] & begins:
                place += 1
                continue
            if count + 2 > len(found):
                found = np.concatenate((found, np.empty_like(found)))
            if phones and place >= dialed and classes[data[place]] & _BEGINS_NUMBER:
                dialed, is_number = _number(data, place, last, classes)
                if is_number:
                    found[count] = document, _PHONE, place, dialed
                    count += 1
            kind, start, stop = _IP, place, place
            if data[place] == _AT:
                kind = _EMAIL
                start, stop = _email(data, place, first, last, classes)
            elif data[place] == _COLON:
                start, stop = _ipv6(data, place, first, last, classes)
            elif classes[data[place]] & _DIGIT and (
                place == first
                or not (classes[data[place - 1]] & (_DIGIT | _LETTER) or data[place - 1] == _DOT)
            ):
                stop = _ipv4(data, place, last, classes)
            if stop > start:
                found[count] = document, kind, start, stop
                count += 1
            place = max(stop, place + 1)
    return found[:count]
