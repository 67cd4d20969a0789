"""The code point at a byte of UTF-8, for loops over text."""

import numpy as np

from pipelines.host.compiled import inner


@inner
def code_point(data, i):
    """The code point that begins at byte i of valid UTF-8, and how many bytes it takes."""
    lead = np.int64(data[i])
    if lead < 0x80:
        return lead, 1
    if lead < 0xE0:
        return (lead & 0x1F) << 6 | (data[i + 1] & 0x3F), 2
    if lead < 0xF0:
        return (lead & 0x0F) << 12 | np.int64(data[i + 1] & 0x3F) << 6 | (data[i + 2] & 0x3F), 3
    code = (lead & 0x07) << 18 | np.int64(data[i + 1] & 0x3F) << 12
    return code | np.int64(data[i + 2] & 0x3F) << 6 | (data[i + 3] & 0x3F), 4
