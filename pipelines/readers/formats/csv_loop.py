"""The loop of `csv_scan.py`, which says what it does, compiled by numba."""

from pipelines.host.compiled import entry
from pipelines.readers.formats.csv_scan import (
    BEGAN,
    BLANK,
    ENDED,
    FIELD_START,
    PLAIN,
    QUOTE_IN_QUOTED,
    QUOTED,
    RECORDS,
    STATE,
)

_NEWLINE, _RETURN, _QUOTE = 10, 13, 34


@entry()
def scan_loop(data, offset, delimiter, stop_at, limit, scan_4):
    """The compiled loop of `csv_scan.scan`, which explains it."""
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
