"""The ids of words by WordPiece and by Unigram, compiled by numba. Called by `word_models.py`.

A word is written as the normalizer would, character by character, and then parted into pieces of
the vocabulary, which is a trie: a hash table of edges, each `node << 8 | byte` and the node that it
leads to. Nodes 0 and 1 are the roots, of pieces that begin a word and of those that go on with it.

What a character becomes is an int64: up to seven bytes, the first the lowest, and on top of them
`kind << 4 | their number`. A word with a character of kind ASKED is left to `tokenizers`.

Legend: N bytes of text, W words of a chunk, V tokens of the vocabulary, S edges (a power of two).
"""

import numpy as np
from numba import types

from pipelines.encoding.word_loop import KEPT
from pipelines.host.compiled import entry, inner

FORMS = 0x2028  # code points that may be known
ASKED, WITHIN, ALONE, WHITE = range(4)  # kinds: the last one goes before a word
UNKNOWN, LONGEST, MARK = range(3)  # rules[3]: an id or LEFT, characters of a word, its beginning
LEFT = -1  # instead of a number of ids: the word is one to ask for
ROOM = 16  # bytes at most that one becomes, with the mark before it
_ODD = np.int64(-7046029254386353131)  # 2**64 / golden ratio, as a signed number

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_INTS = types.Array(types.int64, 1, "C", readonly=True)
_EDGES = types.int32[:, ::1]
_TRIE = types.Tuple((_EDGES, types.int64[::1]))


@inner
def _slot(edges, node, byte):
    """The slot of an edge, or the free one where it would be."""
    key = node << 8 | byte
    last = edges.shape[0] - 1
    slot = key * _ODD
    slot = (slot ^ slot >> 32) & last
    while edges[slot, 0] != key and edges[slot, 0] >= 0:
        slot = (slot + 1) & last
    return slot


@entry(types.int64(_BYTES, _INTS, _INTS, _INTS, _TRIE))
def enter_pieces(letters, offsets, roots, ids, trie):
    """Makes the trie; of pieces that are there twice, the last one counts.

    Args:
      letters: uint8, of all pieces.
      offsets: int64[pieces + 1], where each begins in them.
      roots: int64[pieces], 0 or 1.
      ids: int64[pieces].
      trie: edges int32[S, 2] and the id of the piece that ends at a node, int64[nodes]; all -1.

    Returns:
      How many nodes there are.
    """
    edges, ends = trie
    nodes = 2
    for piece in range(ids.size):
        node = roots[piece]
        for j in range(offsets[piece], offsets[piece + 1]):
            byte = np.int64(letters[j])
            slot = _slot(edges, node, byte)
            if edges[slot, 0] < 0:
                edges[slot, 0], edges[slot, 1] = node << 8 | byte, nodes
                nodes += 1
            node = np.int64(edges[slot, 1])
        ends[node] = ids[piece]
    return nodes


@inner
def _longest_pieces(text, trie, rules, ids, total):
    """WordPiece: the longest piece that begins the word, then of what is left, to the end."""
    edges, ends = trie
    characters, number, place, size = 0, 0, 0, text.size
    for j in range(size):
        characters += text[j] & 0xC0 != 0x80
    while place < size and characters <= rules[LONGEST]:
        node, j, found, stop = np.int64(place > 0), place, np.int64(-1), place
        while j < size:
            slot = _slot(edges, node, np.int64(text[j]))
            if edges[slot, 0] < 0:
                break
            node = np.int64(edges[slot, 1])
            j += 1
            if ends[node] >= 0:
                found, stop = ends[node], j
        if found < 0:
            break
        ids[total + number] = found
        number, place = number + 1, stop
    if place == size:
        return number
    ids[total] = rules[UNKNOWN]
    return 1 if rules[UNKNOWN] >= 0 else LEFT


@inner
def _offer(path, place, stop, score, piece):
    """Notes a way to `stop`, unless one that is as good is known."""
    best, begins, found = path
    if begins[stop] < 0 or best[place] + score > best[stop]:
        best[stop], begins[stop], found[stop] = best[place] + score, place, piece


@inner
def _best_pieces(text, trie, scores, unknown, path, ids, total):
    """Unigram: the pieces whose scores add up to most; of ways that are as good, the first found.

    So does `tokenizers`, in this order and in these numbers, which decide about ties. What is
    unknown in a row is one id.
    """
    edges, ends = trie
    _, begins, found = path
    place, size = 0, text.size
    for j in range(1, size + 1):
        begins[j] = -1
    while place < size:
        after, node, known = place + 1, np.int64(0), False
        while after < size and text[after] & 0xC0 == 0x80:
            after += 1
        for j in range(place, size):
            slot = _slot(edges, node, np.int64(text[j]))
            if edges[slot, 0] < 0:
                break
            node = np.int64(edges[slot, 1])
            if ends[node] >= 0:
                _offer(path, place, j + 1, scores[ends[node]], ends[node])
                known |= j + 1 == after
        if not known:
            _offer(path, place, after, scores[-1], np.int64(LEFT))
        place = after
    number, last = 0, np.int64(0)
    while place > 0:
        piece = found[place]
        if piece == LEFT and unknown < 0 or piece == unknown:
            return LEFT
        if piece != LEFT or last != LEFT:
            number += 1
            ids[total + number - 1] = unknown if piece == LEFT else piece
        place, last = begins[place], piece
    for j in range(number // 2):
        other = total + number - 1 - j
        ids[total + j], ids[other] = ids[other], ids[total + j]
    return number


# ---- words as the normalizer writes them ----


@inner
def _form(data, i, forms):
    """What the character at byte i becomes, and how many bytes it takes."""
    lead = np.int64(data[i])
    if lead < 0x80:
        return forms[lead], 1
    if lead < 0xE0:
        return forms[(lead & 0x1F) << 6 | (data[i + 1] & 0x3F)], 2
    point = (lead & 0x0F) << 12 | np.int64(data[i + 1] & 0x3F) << 6 | (data[i + 2] & 0x3F)
    if lead < 0xF0 and point < FORMS:
        return forms[point], 3
    return np.int64(ASKED), 3


@inner
def _put(text, size, form):
    for j in range(form >> 56 & 7):
        text[size] = form >> 8 * j & 0xFF
        size += 1
    return size


@inner
def _write(data, place, stop, forms, mark, text, bounds):
    """Writes a word, in parts that the splitter makes of it; returns how many, LEFT for unknown."""
    parts, size, fresh, is_first = 0, 0, True, True
    while place < stop:
        form, length = _form(data, place, forms)
        kind = form >> 60
        if kind == ASKED or kind == WHITE and not is_first:
            return LEFT
        place, is_first = place + length, False
        if kind == WHITE:
            continue
        if fresh or kind == ALONE:
            bounds[parts] = size
            parts, size = parts + 1, _put(text, size, mark)
        size = _put(text, size, form)
        fresh = kind == ALONE
    bounds[parts] = size
    return parts if parts > 0 else LEFT


@entry(
    types.int64(
        types.Tuple((_BYTES, _INTS, _INTS)),
        _INTS,
        _TRIE,
        types.float64[::1],
        _INTS,
        types.uint32[::1],
        types.int64[::1],
        types.boolean[::1],
    )
)
def encode_words(chunk, forms, trie, scores, rules, ids, offsets, left):
    """The ids of some words, as far as these can be told.

    Args:
      chunk: text uint8[N], where words start in it int64[W + 1], and which of these, int64[words],
        each of at most KEPT bytes.
      forms: int64[FORMS], what characters become.
      trie: as `enter_pieces` makes it.
      scores: float64[V + 1], of tokens, and at last of what is unknown; of size 0 for WordPiece.
      rules: int64[3].
      ids: uint32, with room for ROOM a byte; becomes the ids of all of them.
      offsets: int64[words + 1], becomes where those of each begin.
      left: bool[words], becomes which are to be asked for: no ids are given for them.

    Returns:
      How many ids there are.
    """
    data, starts, words = chunk
    text, bounds = np.empty(ROOM * KEPT, np.uint8), np.empty(KEPT + 1, np.int64)
    path = np.empty(ROOM * KEPT), np.empty(ROOM * KEPT, np.int64), np.empty(ROOM * KEPT, np.int64)
    path[0][0] = 0.0
    total = 0
    for k in range(words.size):
        offsets[k], end = total, total
        first, stop = starts[words[k]], starts[words[k] + 1]
        number = _write(data, first, stop, forms, rules[MARK], text, bounds)
        left[k] = number < 0
        for part in range(number):
            word = text[bounds[part] : bounds[part + 1]]
            if scores.size == 0:
                found = _longest_pieces(word, trie, rules, ids, end)
            else:
                found = _best_pieces(word, trie, scores, rules[UNKNOWN], path, ids, end)
            left[k] |= found < 0
            end += max(found, 0)
        total = total if left[k] else end
    offsets[words.size] = total
    return total
