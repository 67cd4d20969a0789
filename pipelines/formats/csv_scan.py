"""Where the records of CSV text end: one look at each byte, compiled by numba. Pure.

A quote opens a quoted field only where a field begins, a doubled one inside is a quote, and
whatever follows the closing one belongs to the field as it stands; a newline, or a return, ends a
record outside of quotes. These are the rules of Arrow's parser and of Python's, so a cut after a
record never cuts one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

STATE, RECORDS, BEGAN, ENDED = range(4)  # of a scan: see `new_scan`
FIELD_START, PLAIN, QUOTED, QUOTE_IN_QUOTED, BLANK = range(5)
_NEWLINE, _RETURN, _QUOTE = 10, 13, 34


def _compiled(function: Callable) -> Any:
    """`function` compiled; the machine code is kept on disk where some directory allows it."""
    try:
        return numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # numba found no place it may write a cache to
        return numba.njit(nogil=True)(function)


def new_scan(place: int) -> np.ndarray:
    """A scan at the start of a record, which is at `place`: int64 [4].

    [state, records ended so far (blank lines are none), where the current record began, where the
    last one ended (-1: none yet)].
    """
    return np.array([BLANK, 0, place, -1], np.int64)


@_compiled
def scan(data, offset, delimiter, stop_at, limit, scan_4):
    """Goes on with a scan.

    Args:
      data: uint8 [n].
      offset: place of data[0].
      delimiter: byte between fields.
      stop_at: stop after the first record that ends at this place or later.
      limit: stop after so many records.
      scan_4: of `new_scan`, changed in place.

    Returns:
      How many bytes were looked at.
    """
    state, records, began, ended = scan_4
    n = data.size
    i = 0
    while i < n:
        byte = data[i]
        i += 1
        if state == QUOTED:
            if byte == _QUOTE:
                state = QUOTE_IN_QUOTED
        elif state == QUOTE_IN_QUOTED and byte == _QUOTE:
            state = QUOTED
        elif byte == _NEWLINE or byte == _RETURN:
            if state != BLANK:
                records += 1
            state = BLANK
            ended = offset + i
            began = ended
            if ended >= stop_at or records >= limit:
                break
        elif byte == delimiter:
            state = FIELD_START
        elif byte == _QUOTE and (state == FIELD_START or state == BLANK):
            state = QUOTED
        else:
            state = PLAIN
    scan_4[STATE], scan_4[RECORDS], scan_4[BEGAN], scan_4[ENDED] = state, records, began, ended
    return i
