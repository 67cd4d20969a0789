"""Finds added tokens in text as `tokenizers` does, so that the text between them can be encoded.

The leftmost match wins, the longest if several begin there; the search continues after its end. A
token with `lstrip` or `rstrip` includes the white space on that side.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numba import types

from textmill.pipelines.rows.ragged import Ragged, insert, join_slices
from textmill.pipelines.rows.text_bytes import utf8_bytes
from textmill.pipelines.runtime.compiled import entry, inner

Encode = Callable[[np.ndarray, np.ndarray, np.ndarray], Ragged]
_START, _STOP, _TOKEN = range(3)  # found[3, _ROOM]
_ID, _LSTRIP, _RSTRIP = range(3)  # flags[T, 3]
_DOCUMENT, _PLACE, _LEAST = range(3)  # at[3]: the progress of the loop
_ROOM = 1 << 12  # tokens found in one call
_FEW, _BLOCK = 6, 128  # bytes, and pairs of them, that are compared with a block of bytes


class AddedTokens:
    """Added tokens of a tokenizer; none may be a `single_word`."""

    def __init__(self, tokens: Sequence[Mapping[str, Any]]):
        """Takes entries of `added_tokens` in a tokenizer.json."""
        by_pair = sorted(((t["content"].encode(), t) for t in tokens), key=_by_pair_and_length)
        contents = [content for content, _ in by_pair]
        rows = [[t["id"], t["lstrip"], t["rstrip"]] for _, t in by_pair]
        self._flags = np.array(rows, np.int64).reshape(len(rows), 3)
        self._letters, self._starts = utf8_bytes(pa.array(contents, pa.large_binary()))
        self._of_pair = np.zeros((1 << 16) + 1, np.int64)
        self._of_byte = np.full(256, -1, np.int64)
        for token, content in enumerate(contents):
            if len(content) > 1:
                self._of_pair[(content[0] << 8 | content[1]) + 1] += 1
            else:
                self._of_byte[content[0]] = token
        self._of_pair = np.cumsum(self._of_pair)
        self._begins = (np.diff(self._of_pair) > 0) | np.repeat(self._of_byte >= 0, 256)
        pairs = np.stack(np.divmod(np.flatnonzero(self._begins), 256)).astype(np.uint8)
        firsts = np.unique(pairs[0])
        self._few = tuple(x if x.shape[-1] <= _FEW else x[..., :0].copy() for x in (firsts, pairs))

    def encode_around(
        self, data: np.ndarray, offsets: np.ndarray, firsts: np.ndarray, encode: Encode
    ) -> Ragged:
        """Encodes the text between added tokens and inserts the ids of the tokens.

        Args:
          data: UTF-8, uint8[bytes].
          offsets: int64[n + 1]; a text is data[offsets[i] : offsets[i + 1]].
          firsts: int64, the texts that begin documents.
          encode: takes the same three arguments for the text between, and returns its ids.
        """
        found = self._find(data, offsets)
        if not found.shape[1]:
            return encode(data, offsets, firsts)
        starts, stops, tokens = found
        bounds = np.concatenate(([0], np.stack([starts, stops], axis=1).ravel(), [len(data)]))
        kept = join_slices(data, bounds[::2, None], np.diff(bounds)[::2, None]).values
        # The rest of the text is in pieces: the first of each text, the one after each token. A
        # token that begins where a text begins belongs to that text.
        gone = np.append(0, np.cumsum(stops - starts))
        before = np.searchsorted(starts, offsets, side="left")
        of_texts = np.arange(len(offsets)) + before
        after_tokens = np.searchsorted(offsets, starts, side="right") + np.arange(len(starts))
        pieces = np.empty(len(offsets) + len(starts), np.int64)
        pieces[after_tokens], pieces[of_texts] = starts - gone[:-1], offsets - gone[before]
        ids = encode(kept, pieces, of_texts[firsts])
        values = insert(ids.values, ids.offsets[after_tokens], self._flags[tokens, _ID])
        return Ragged(values, ids.offsets[of_texts] + before)

    def _find(self, data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Start, end and number of each added token in the text: int64[3, tokens found]."""
        parts = [np.empty((3, 0), np.int64)]
        at = np.zeros(3, np.int64)
        tokens = self._begins, self._letters, self._starts, self._of_pair, self._of_byte
        while len(self._flags) and at[_PLACE] < len(data):
            found = np.empty((3, _ROOM), np.int64)
            count = _match_tokens(data, offsets, tokens, self._few, self._flags, at, found)
            parts.append(found[:, :count])
        return np.concatenate(parts, axis=1)


def _by_pair_and_length(item: tuple[bytes, Any]) -> tuple[bool, bytes, int]:
    content = item[0]
    return len(content) == 1, content[:2], -len(content)


# ---- the loop ----


@inner
def _space_size(data, i, stop):
    """The size in bytes of the white space (as Rust defines it) at byte i; 0 if there is none."""
    first = data[i]
    if first == 32 or 9 <= first <= 13:
        return 1
    if first == 0xC2 and i + 1 < stop:
        return 2 if data[i + 1] == 0x85 or data[i + 1] == 0xA0 else 0
    if i + 2 >= stop:
        return 0
    second, third = data[i + 1], data[i + 2]
    if first == 0xE2 and second == 0x80:
        is_space = third <= 0x8A or third == 0xA8 or third == 0xA9 or third == 0xAF
        return 3 if is_space else 0
    rest = np.int64(first) << 16 | np.int64(second) << 8 | np.int64(third)
    return 3 if rest == 0xE19A80 or rest == 0xE2819F or rest == 0xE38080 else 0


@inner
def _strip_left(data, start, least):
    """Where the white space before byte `start` begins, at `least` or later."""
    while start > least:
        size = 0
        for back in range(1, 4):
            if start - back >= least and _space_size(data, start - back, start) == back:
                size = back
                break
        if size == 0:
            break
        start -= size
    return start


@inner
def _longest(data, i, stop, tokens):
    """The longest token that begins at byte i; -1 if none does."""
    _, letters, starts, of_pair, of_byte = tokens
    if i + 1 < stop:
        pair = np.int64(data[i]) << 8 | np.int64(data[i + 1])
        for token in range(of_pair[pair], of_pair[pair + 1]):
            first, size = starts[token], starts[token + 1] - starts[token]
            same = 2
            while i + size <= stop and same < size and data[i + same] == letters[first + same]:
                same += 1
            if i + size <= stop and same == size:
                return token
    return of_byte[data[i]]


@inner
def _has_byte(block, bytes_):
    """Whether a block has one of a few bytes."""
    least = np.uint8(255)
    for byte in bytes_:
        for i in range(_BLOCK):  # LLVM compares 32 bytes at once
            least = min(least, np.uint8(block[np.uint64(i)] ^ byte))
    return least == 0


@inner
def _has_pair(block, pairs):
    """Whether two bytes in a row of a block are one of the pairs, if these are few."""
    least = np.uint8(255 * (pairs.size > 0))
    for pair in range(pairs.shape[1]):
        first, second = pairs[0, pair], pairs[1, pair]
        for i in range(_BLOCK):
            one, two = block[np.uint64(i)] ^ first, block[np.uint64(i + 1)] ^ second
            least = min(least, np.uint8(one | two))
    return least == 0


_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_INTS = types.Array(types.int64, 1, "C", readonly=True)
_FLAGS = types.Array(types.boolean, 1, "C", readonly=True)


@entry(
    types.int64(
        _BYTES,
        _INTS,
        types.Tuple((_FLAGS, _BYTES, _INTS, _INTS, _INTS)),
        types.Tuple((types.uint8[::1], types.uint8[:, ::1])),
        types.int64[:, ::1],
        types.int64[::1],
        types.int64[:, ::1],
    )
)
def _match_tokens(data, offsets, tokens, few, flags, at, found):
    """Writes tokens to `found`, from `at` on, until `found` is full; returns how many."""
    begins, _, starts, _, _ = tokens
    firsts, pairs = few
    document, place, least = at[_DOCUMENT], at[_PLACE], at[_LEAST]
    number, last = 0, data.size - 1
    tried = place  # the block before may have a token
    while number < found.shape[1]:
        while firsts.size and place >= tried and place + _BLOCK <= last:
            has = _has_byte(data[place : place + _BLOCK], firsts)
            if has and _has_pair(data[place : place + _BLOCK + 1], pairs):
                tried = place + _BLOCK
            else:
                place += _BLOCK
        limit, some = tried if place < tried else last, False
        while not some and place + 8 <= limit:  # 4.4 GB/s; the loop below: 1.3
            for k in range(8):
                i = np.uint64(place + k)
                some |= begins[
                    np.uint64(data[i]) << np.uint64(8) | np.uint64(data[i + np.uint64(1)])
                ]
            place += 0 if some else 8
        while place < limit and not begins[np.int64(data[place]) << 8 | data[place + 1]]:
            place += 1
        if place == limit < last:
            continue
        if place > last:
            break
        while offsets[document + 1] <= place:
            document += 1
            least = offsets[document]
        stop = offsets[document + 1]
        token = _longest(data, place, stop, tokens)
        if token < 0:
            place += 1
            continue
        start, end = place, place + starts[token + 1] - starts[token]
        place = end
        if flags[token, _LSTRIP]:
            start = _strip_left(data, start, least)
        while flags[token, _RSTRIP] and end < stop:
            size = _space_size(data, end, stop)
            if size == 0:
                break
            end += size
        found[_START, number], found[_STOP, number], found[_TOKEN, number] = start, end, token
        number += 1
        least = end
    at[_DOCUMENT], at[_PLACE], at[_LEAST] = document, place, least
    return number
