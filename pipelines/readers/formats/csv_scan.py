"""Where the records of CSV text end. Pure.

A quote opens a quoted field only where a field begins, a doubled one inside is a quote, and
whatever follows the closing one belongs to the field as it stands; a newline, or a return, ends a
record outside of quotes. These are the rules of Arrow's parser and of Python's, so a cut after a
record never cuts one.
"""

import numpy as np

STATE, RECORDS, BEGAN, ENDED = range(4)  # of a scan: see `new_scan`
FIELD_START, PLAIN, QUOTED, QUOTE_IN_QUOTED, BLANK = range(5)
_NEWLINE, _RETURN, _QUOTE = b'\n\r"'


def new_scan(place: int) -> np.ndarray:
    """A scan at the start of a record, which is at `place`: int64 [4].

    [state, records ended so far (blank lines are none), where the current record began, where the
    last one ended (-1: none yet)].
    """
    return np.array([BLANK, 0, place, -1], np.int64)


def scan(
    data: np.ndarray, offset: int, delimiter: int, stop_at: int, limit: int, scan_4: np.ndarray
) -> int:
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
    ends, counts, state = find_ends(data, delimiter, int(scan_4[STATE]))
    counts += scan_4[RECORDS]
    last = min(np.searchsorted(ends, stop_at - offset), np.searchsorted(counts, limit))
    seen = len(data)
    if last < len(ends):
        seen, state = int(ends[last]), BLANK
    last = min(last, len(ends) - 1)
    scan_4[STATE] = state
    if last >= 0:
        scan_4[RECORDS], scan_4[BEGAN:] = counts[last], offset + ends[last]
    return seen


def find_ends(
    data: np.ndarray, delimiter: int, state: int = BLANK
) -> tuple[np.ndarray, np.ndarray, int]:
    """Where lines end that are no part of a quoted field.

    Args:
      data: uint8 [n].
      delimiter: byte between fields.
      state: before the first byte.

    Returns:
      int64, the place after each such newline or return; int64, records ended up to there, for
      blank lines are none; and the state after the last byte.
    """
    edges = _find_edges(data, delimiter, state)
    newlines = np.flatnonzero((data == _NEWLINE) | (data == _RETURN))
    inside = (np.searchsorted(edges, newlines) + (state == QUOTED)) % 2
    ends = newlines[inside == 0] + 1
    counts = np.cumsum(np.diff(ends, prepend=0 if state == BLANK else -1) > 1)
    if (len(edges) + (state == QUOTED)) % 2:
        return ends, counts, QUOTED
    last = len(data) - 1
    if last < 0:
        return ends, counts, state
    if len(edges) and edges[-1] == last:
        return ends, counts, QUOTE_IN_QUOTED
    after = {_NEWLINE: BLANK, _RETURN: BLANK, delimiter: FIELD_START}
    return ends, counts, after.get(int(data[last]), PLAIN)


def _find_edges(data: np.ndarray, delimiter: int, state: int) -> np.ndarray:
    """The quotes that begin or end quoting, in turn; a doubled one ends it and begins it anew."""
    quotes = np.flatnonzero(data == _QUOTE)
    before = data[quotes - 1]
    begins_field = (before == delimiter) | (before == _NEWLINE) | (before == _RETURN)
    if len(quotes) and quotes[0] == 0:
        begins_field[0] = state in (FIELD_START, BLANK)
    closed = -1 if state == QUOTE_IN_QUOTED else -2
    is_doubled = np.diff(quotes, prepend=closed) == 1
    is_inside = state == QUOTED
    if (begins_field | is_doubled)[is_inside::2].all():
        return quotes  # none is text, as nearly everywhere
    edges = []
    for quote, is_first in zip(quotes.tolist(), begins_field.tolist(), strict=True):
        if is_inside:
            closed = quote
        elif not is_first and quote != closed + 1:
            continue
        is_inside = not is_inside
        edges.append(quote)
    return np.array(edges, np.int64)
