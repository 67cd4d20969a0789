"""The steps of 64 bytes beside Python's own."""

import numpy as np
import pytest

from textmill.pipelines.runtime.byte_vectors import (
    AT_ONCE,
    copy,
    count_bits,
    first_bit,
    in_range,
)
from textmill.pipelines.runtime.compiled import entry

_BYTES = np.random.default_rng(5).permutation(np.repeat(np.arange(256, dtype=np.uint8), 2))
_LAST = len(_BYTES) - AT_ONCE


@entry()
def _mask(data, place, first, count):
    return in_range(data, place, first, count)


@entry()
def _count(mask):
    return count_bits(mask), first_bit(mask)


@entry()
def _copy(data, place, others, to):
    copy(data, place, others, to)


@pytest.mark.parametrize(("first", "count"), [(10, 1), (0, 32), (0xE1, 3), (250, 10), (0, 0)])
@pytest.mark.parametrize("place", [0, 1, 100, _LAST])
def test_a_mask_has_a_bit_for_each_byte_in_range(place, first, count):
    wanted = {(first + i) % 256 for i in range(count)}  # ranges wrap around
    mask = _mask(_BYTES, place, np.uint8(first), np.uint8(count))
    bits = [i for i in range(AT_ONCE) if mask >> i & 1]
    assert bits == [i for i in range(AT_ONCE) if int(_BYTES[place + i]) in wanted]
    assert _count(mask) == (len(bits), min(bits, default=AT_ONCE))


def test_a_copy_changes_64_bytes():
    others = np.zeros(len(_BYTES), np.uint8)
    _copy(_BYTES, _LAST, others, 3)
    assert others.tolist() == [0] * 3 + _BYTES[_LAST:].tolist() + [0] * (_LAST - 3)
