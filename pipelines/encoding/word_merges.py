"""Encodes words by the merges of a BPE, in compiled loops.

A word takes 0.3 to 1 microsecond, with `tokenizers` 3 to 5.

Legend: N bytes of text.
"""

import sys
from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
from numba import types

from textmill.pipelines.encoding.patterns import byte_characters, spelt_bytes
from textmill.pipelines.encoding.word_slots import BYTES, INTS, ODD
from textmill.pipelines.host.compiled import entry, inner
from textmill.pipelines.rows.text_bytes import code_point

_ROWS = types.Array(types.int64, 2, "C", readonly=True)
MERGE_TABLES = types.Tuple((INTS, INTS, _ROWS, BYTES))
_NONE = np.zeros(0, np.int64)
NO_MERGES = _NONE, _NONE, _NONE.reshape(0, 2), np.zeros(0, np.uint8)
_NO_MERGE = np.int64(2**62)


def merges_of_bytes(model: Mapping[str, Any]) -> tuple[np.ndarray, ...]:
    """Takes the model of a tokenizer.json with merges as pairs and all 256 bytes as tokens."""
    byte_ids = np.array([model["vocab"][character] for character in byte_characters()])
    merges, known = _table_of_merges(model)
    of_bytes = np.empty(1 << 16, np.int64)
    enter_byte_pairs(byte_ids, merges, known, of_bytes)
    return byte_ids, of_bytes, merges, known


def merges_of_characters(model: Mapping[str, Any], space: str) -> tuple[np.ndarray, ...] | None:
    """Takes a model that falls back to byte tokens, <0x00> to <0xFF>.

    Args:
      model: the model of a tokenizer.json.
      space: the character that a space becomes; the result is None if it is no token.
    """
    vocab = model["vocab"]
    if space not in vocab:
        return None
    character_ids = np.full(sys.maxunicode + 1, -1, np.int64)
    for token, number in vocab.items():
        if len(token) == 1:
            character_ids[ord(token)] = number
    character_ids[ord(" ")] = vocab[space]
    byte_ids = np.array([vocab[f"<0x{byte:02X}>"] for byte in range(256)])
    return character_ids, byte_ids, *_table_of_merges(model)


def _table_of_merges(model: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    vocab, pairs = model["vocab"], model["merges"]
    halves = np.array([*map(vocab.__getitem__, chain.from_iterable(pairs))], np.int64)
    merged = np.array([*map(vocab.__getitem__, map("".join, pairs))], np.int64)
    table = np.full((2 << len(pairs).bit_length(), 2), -1, np.int64)
    known = np.zeros(len(table), np.uint8)  # eight bits for each row
    ranks = np.arange(len(pairs))
    enter_merges(table, known, halves[::2] << 32 | halves[1::2], ranks << 32 | merged)
    return table, known


def whole_words(vocab: Mapping[str, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The tokens that are words with `ignore_merges`: their bytes, offsets and ids."""
    alphabet = set(byte_characters())
    tokens = [token for token in vocab if token and alphabet.issuperset(token)]
    ids = np.array([*map(vocab.__getitem__, tokens)], np.uint32)
    offsets = np.append(0, np.cumsum([*map(len, tokens)])).astype(np.int64)  # 1 character = 1 byte
    return np.frombuffer(spelt_bytes(["".join(tokens)])[0], np.uint8), offsets, ids


# ---- loops ----


@inner
def _hash(pair):
    mixed = pair * ODD
    return mixed ^ mixed >> 32


@entry(types.void(types.int64[:, ::1], types.uint8[::1], INTS, INTS))
def enter_merges(merges, known, pairs, results):
    """Fills the hash table of merges: a row is a pair of ids and its result, -1 if it is free.

    If a merge occurs twice, the last one counts, as with `tokenizers`.

    Args:
      merges: int64[a power of two, 2], all -1.
      known: uint8, a power of two, all zeros: a filter. A bit that is not set means that no pair
        with its hash has a merge, which most pairs have not; it fits a nearer cache than `merges`.
      pairs: int64, left id << 32 | right id.
      results: int64, rank << 32 | id of the merged token.
    """
    last, last_bit = merges.shape[0] - 1, 8 * known.size - 1
    for k in range(pairs.size):
        bit = _hash(pairs[k])
        slot = bit & last
        while merges[slot, 1] >= 0 and merges[slot, 0] != pairs[k]:
            slot = (slot + 1) & last
        merges[slot, 0], merges[slot, 1] = pairs[k], results[k]
        bit &= last_bit
        known[bit >> 3] |= 1 << (bit & 7)


@inner
def _result(merges, known, left, right):
    """The result of merging two symbols; _NO_MERGE if there is none."""
    pair = left << 32 | right
    slot = _hash(pair)
    bit = slot & (8 * known.size - 1)
    if known[bit >> 3] >> (bit & 7) & 1 == 0:
        return _NO_MERGE
    last = merges.shape[0] - 1
    slot &= last
    while merges[slot, 1] >= 0 and merges[slot, 0] != pair:
        slot = (slot + 1) & last
    return merges[slot, 1] if merges[slot, 1] >= 0 else _NO_MERGE


@inner
def _merge_all(merges, known, symbols, results, number, ids, place):
    """Merges the pair of the lowest rank, the leftmost if there are several, until none is left.

    Args:
      merges: the table of `enter_merges`.
      known: its filter.
      symbols: int64 ids; overwritten.
      results: int64, the result of merging each symbol with the next; overwritten.
      number: the number of symbols.
      ids: uint32, receives the ids of the word.
      place: where they begin.

    Returns:
      The number of ids of the word.
    """
    while number > 1:
        where = 0
        for j in range(1, number - 1):
            where = j if results[j] < results[where] else where
        if results[where] == _NO_MERGE:
            break
        symbols[where] = results[where] & 0xFFFF_FFFF
        number -= 1
        for j in range(where + 1, number):
            symbols[j], results[j - 1] = symbols[j + 1], results[j]
        if where > 0:
            results[where - 1] = _result(merges, known, symbols[where - 1], symbols[where])
        if where < number - 1:
            results[where] = _result(merges, known, symbols[where], symbols[where + 1])
    for j in range(number):
        ids[place + j] = symbols[j]
    return number


@entry(types.void(INTS, _ROWS, BYTES, types.int64[::1]))
def enter_byte_pairs(byte_ids, merges, known, of_pairs):
    """Writes the result of each pair of bytes to int64[65536]; _NO_MERGE if they do not merge."""
    for pair in range(of_pairs.size):
        of_pairs[pair] = _result(merges, known, byte_ids[pair >> 8], byte_ids[pair & 255])


@inner
def merge_bytes(data, start, stop, tables, scratch, ids, place):
    """Encodes a word by byte-level BPE; see `_encode_word` of the loop.

    Args:
      data: uint8[N].
      start: where the word begins.
      stop: where it ends.
      tables: ids of bytes, int64[256]; the table of `enter_byte_pairs`; those of `enter_merges`.
      scratch: int64[2 or more, KEPT or more].
      ids: uint32, receives the ids.
      place: where they begin.

    Returns:
      The number of ids.
    """
    byte_ids, of_pairs, merges, known = tables
    symbols, results = scratch[0], scratch[1]
    number = stop - start
    for j in range(number):
        symbols[j] = byte_ids[data[start + j]]
    for j in range(number - 1):
        results[j] = of_pairs[np.int64(data[start + j]) << 8 | data[start + j + 1]]
    return _merge_all(merges, known, symbols, results, number, ids, place)


@inner
def merge_characters(data, start, stop, tables, scratch, ids, place):
    """Encodes a word by SentencePiece's BPE: a character that is no token is split into its bytes.

    Args and returns: see `merge_bytes`, except for
      tables: ids of characters, int64[code points], -1 for those that are no tokens; ids of bytes,
        int64[256]; the tables of `enter_merges`.
    """
    character_ids, byte_ids, merges, known = tables
    symbols, results = scratch[0], scratch[1]
    number = 0
    while start < stop:
        point, size = code_point(data, start)
        if character_ids[point] >= 0:
            symbols[number] = character_ids[point]
            number += 1
        else:
            for j in range(size):
                symbols[number + j] = byte_ids[data[start + j]]
            number += size
        start += size
    for j in range(number - 1):
        results[j] = _result(merges, known, symbols[j], symbols[j + 1])
    return _merge_all(merges, known, symbols, results, number, ids, place)
