"""Where the records of CSV text end: one look at each byte. Pure.

A quote opens a quoted field only where a field begins, a doubled one inside is a quote, and
whatever follows the closing one belongs to the field as it stands; a newline, or a return, ends a
record outside of quotes. These are the rules of Arrow's parser and of Python's, so a cut after a
record never cuts one.
"""

import numpy as np

STATE, RECORDS, BEGAN, ENDED = range(4)  # of a scan: see `new_scan`
FIELD_START, PLAIN, QUOTED, QUOTE_IN_QUOTED, BLANK = range(5)


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
    # Imports numba, which other formats spare.
    from pipelines.readers.formats.csv_loop import scan_loop

    return scan_loop(data, offset, delimiter, stop_at, limit, scan_4)
