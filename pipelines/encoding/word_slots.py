"""Hash tables, compiled by numba: of words, as far as tables of ids and of counts share it.

The first two numbers of a slot are the key, so comparing two numbers finds most words:

    low    bytes 0 to 7 of the word             for a word of 16 bytes or more: its hash
    high   bytes 8 to 14 and, on top, its size  2**63 + its number in the table of long words

`high` is 0 in a free slot. The numbers after them belong to the particular table.

The table of `number_slot` has a number from 0 on and its value in each slot, -1 in a free one.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from textmill.pipelines.runtime.compiled import entry, inner


def _prefetch(context: Any, rows: Any, row: Any) -> Any:
    """Prefetches a row of a two-dimensional array into the nearest cache.

    It has no effect on results. Source: `llvm.prefetch` in the LLVM language reference.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        step = builder.mul(arguments[1], builder.extract_value(array.strides, 0))
        place = builder.gep(builder.bitcast(array.data, pointer), [step])
        form = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        load = cgutils.get_or_insert_function(builder.module, form, "llvm.prefetch.p0")
        builder.call(load, [place, number(0), number(3), number(1)])  # to read, keep, data
        return context.get_dummy_value()

    return types.void(rows, row), generate


prefetch: Any = intrinsic(_prefetch)


LOW, HIGH = range(2)  # slots[S, 2 and more]
USED, LONG = range(2)  # at[2 and more]: slots in use, long words
SHORT = 15  # bytes of the longest word that fits into the key
LONGEST_WORD = 256  # bytes of the longest word that a `WordModel` encodes
LOW_MASK = np.array([(1 << 8 * n) - 1 for n in range(8)] + [-1] * 8, np.int64)  # by size
HIGH_MASK = np.array([0] * 8 + [(1 << 8 * n) - 1 for n in range(8)], np.int64)
NUMBERED = np.int64(-(2**63))  # on top of the number of a long word
_ODD = np.int64(-7046029254386353131)  # 2**64 / golden ratio, as a signed number
_MIX = np.int64(-4417276706812531889)  # another odd number


@inner
def short_hash(low, high):
    """A hash whose low bits depend on every bit of the word: many differ in only one letter."""
    mixed = (low ^ high * _MIX) * _ODD
    mixed = (mixed ^ mixed >> 32) * _MIX
    return mixed ^ mixed >> 32


@inner
def number_slot(table, number):
    """The slot of a number in a table[S, 2], or the free one where it would be."""
    last = table.shape[0] - 1
    slot = number * _ODD
    slot = (slot ^ slot >> 32) & last
    while table[slot, 0] != number and table[slot, 0] >= 0:
        slot = (slot + 1) & last
    return slot


@inner
def _key(data, eights, i, size):
    """The key and the hash of a word; `high` is -1 for a long word, which has no number yet."""
    if size > SHORT:
        low = size * _ODD
        for j in range(0, size - 8, 8):
            low = (low ^ eights[i + j]) * _MIX
            low ^= low >> 29
        low = (low ^ eights[i + size - 8]) * _MIX
        low ^= low >> 32
        return low, np.int64(-1), low
    if i + 16 <= data.size:
        low, high = eights[i] & LOW_MASK[size], eights[i + 8] & HIGH_MASK[size] | size << 56
        return low, high, short_hash(low, high)
    low, high = np.int64(0), size << 56
    for j in range(min(size, 8)):
        low |= np.int64(data[i + j]) << (8 * j)
    for j in range(8, size):
        high |= np.int64(data[i + j]) << (8 * (j - 8))
    return low, high, short_hash(low, high)


@inner
def _same(eights, i, others, start, size):
    for j in range(0, size - 8, 8):
        if eights[i + j] != others[start + j]:
            return False
    return eights[i + size - 8] == others[start + size - 8]


@inner
def find_slot(data, eights, i, size, slots, long_words, at):
    """The slot of the word at byte i; -1 - slot if the word is new and was entered there.

    The caller makes sure that the table has room.
    """
    starts, letters, letter_eights = long_words
    low, high, slot = _key(data, eights, i, size)
    last = slots.shape[0] - 1
    slot &= last
    while slots[slot, HIGH] != 0:
        if slots[slot, LOW] == low:
            if slots[slot, HIGH] == high:
                return slot
            if high < 0 and slots[slot, HIGH] < 0:
                which = slots[slot, HIGH] ^ NUMBERED
                start = starts[which]
                same_size = starts[which + 1] - start == size
                if same_size and _same(eights, i, letter_eights, start, size):
                    return slot
        slot = (slot + 1) & last
    at[USED] += 1
    slots[slot, LOW] = low
    slots[slot, HIGH] = high
    if high < 0:
        slots[slot, HIGH] = NUMBERED | at[LONG]
        start = starts[at[LONG]]
        for j in range(size):
            letters[start + j] = data[i + j]
        at[LONG] += 1
        starts[at[LONG]] = start + size
    return -1 - slot


@entry(types.void(types.int64[:, ::1], types.int64[:, ::1]))
def move_slots(slots, larger):
    """Moves all words to a larger table of zeros."""
    last = larger.shape[0] - 1
    for old in range(slots.shape[0]):
        low, high = slots[old, LOW], slots[old, HIGH]
        if high != 0:
            slot = (low if high < 0 else short_hash(low, high)) & last
            while larger[slot, HIGH] != 0:
                slot = (slot + 1) & last
            for column in range(slots.shape[1]):
                larger[slot, column] = slots[old, column]
