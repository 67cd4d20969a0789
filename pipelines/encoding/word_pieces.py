"""Encodes words by WordPiece and by Unigram, in compiled loops.

A loop normalizes a word character by character and splits it into pieces of the vocabulary. The
vocabulary is a trie: a hash table of edges, each `node << 8 | byte` and the node that it leads to.
Node 0 is the root of pieces that begin a word, node 1 that of pieces that continue one.

The normal form of a character is an int64: up to seven bytes, the first the lowest, and above them
`kind << 4 | their number`. A word with a character of kind ASKED is left to `tokenizers`.

Legend: N bytes of text, W words of a chunk, V tokens of the vocabulary, S edges (a power of two).
"""

import unicodedata
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
from numba import types

from textmill.pipelines.encoding.reference import Tokenizer
from textmill.pipelines.encoding.word_slots import LONGEST_WORD, number_slot
from textmill.pipelines.rows.ragged import Ragged
from textmill.pipelines.rows.text_bytes import utf8_bytes
from textmill.pipelines.runtime.compiled import entry, inner

FORMS = 0x2028  # code points that may have a normal form
ASKED, WITHIN, ALONE, WHITE = range(4)  # kinds of characters; WHITE only before a word
# rules[4]: id (~id: left), most characters of a word, its prefix, whether white space may repeat
UNKNOWN, LONGEST, MARK, RUNS = range(4)
LEFT = -1  # instead of a number of ids: `tokenizers` must encode the word
ROOM = 16  # most bytes of a normal form, with the mark before it

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_INTS = types.Array(types.int64, 1, "C", readonly=True)
_EDGES = types.int32[:, ::1]
_TRIE = types.Tuple((_EDGES, types.int64[::1]))
_KNOWN = (*range(0x530), *range(0x2010, 0x2028))  # Latin, Greek, Cyrillic, and quotation marks
_KINDS = "LNPSZ"  # categories whose characters in `_KNOWN` never join with their neighbours
_ENDS = "\t\n\r"  # of a different category; they join at most with each other, before a word
_FORM_BYTES = 7
_MOST_BYTES = 1 << 22  # of all tokens: node << 8 | byte of the trie must fit in 31 bits
_UNKNOWN_PENALTY = 10.0  # below the lowest score
_OPTIONS = {
    "WordPiece": {"unk_token", "continuing_subword_prefix", "max_input_chars_per_word"},
    "Unigram": {"unk_id", "byte_fallback"},
}


class Pieces:
    """A WordPiece or Unigram model as a `WordModel`, for words of common characters."""

    def __init__(self, model: Mapping[str, Any], forms: np.ndarray, mark: int, runs: bool):
        """Takes the model of a tokenizer.json and the rules of its words.

        Args:
          model: the model.
          forms: the normal forms of characters, int64[FORMS].
          mark: the form of the mark before a word.
          runs: whether any number of WHITE characters may begin a word.
        """
        if model["type"] == "WordPiece":
            tokens, scores = model["vocab"], []
            prefix = model["continuing_subword_prefix"]
            unknown, longest = tokens.get(model["unk_token"], -1), model["max_input_chars_per_word"]
            later = {t[len(prefix) :]: i for t, i in tokens.items() if t.startswith(prefix)}
        else:
            tokens = {token: i for i, (token, _) in enumerate(model["vocab"])}
            scores = [score for _, score in model["vocab"]]
            # Only with such scores could several unknown characters together be a token.
            is_left = model["byte_fallback"] or min(scores) >= _UNKNOWN_PENALTY
            unknown, longest, later = model["unk_id"], 0, {}
            unknown = ~unknown if is_left else unknown
            scores.append(min(scores) - _UNKNOWN_PENALTY)
        self._forms, self._scores = forms, np.array(scores, np.float64)
        self._rules = np.array([unknown, min(longest, 1 << 62), mark, runs])
        roots = np.repeat([0, 1], [len(tokens), len(later)])
        ids = np.array([*tokens.values(), *later.values()], np.int64)
        letters, offsets = utf8_bytes(pa.array([*tokens, *later], pa.large_string()))
        most = len(letters) + 2
        while True:  # the first trie has a node per letter, the second only those in use
            edges = np.full((2 << most.bit_length(), 2), -1, np.int32)
            self._trie = edges, np.full(most, -1, np.int64)
            nodes = enter_pieces(letters, offsets, roots, ids, self._trie)
            if nodes == most:
                break
            most = nodes

    def encode(
        self, data: np.ndarray, starts: np.ndarray, words: np.ndarray
    ) -> tuple[Ragged, np.ndarray]:
        """See `WordModel`."""
        sizes = np.minimum(starts[words + 1] - starts[words], LONGEST_WORD)
        ids = np.empty(ROOM * int(sizes.sum()), np.uint32)
        offsets, left = np.empty(len(words) + 1, np.int64), np.empty(len(words), bool)
        chunk, trie = (data, starts, words), self._trie
        total = encode_pieces(
            chunk, self._forms, trie, self._scores, self._rules, ids, offsets, left
        )
        return Ragged(ids[:total], offsets), left


def pieces_of(model: Mapping[str, Any], words: Tokenizer, touching: str = "") -> Pieces | None:
    """The pieces of a model; None if they could not encode words as the model does.

    Args:
      model: the model of a tokenizer.json.
      words: normalizes and splits words character by character, except accents and `touching`.
      touching: characters whose normal form depends on their neighbours.
    """
    if model.keys() != {"type", "vocab", *_OPTIONS[model["type"]]}:
        return None
    if model["type"] == "Unigram" and model["unk_id"] is None:
        return None
    if sum(len(token.encode()) for token in words.get_vocab()) > _MOST_BYTES:
        return None
    normalizer, splitter = words.normalizer, words.pre_tokenizer

    def split(text: str) -> list[str]:
        normal = normalizer.normalize_str(text) if normalizer is not None else text
        return [piece for piece, _ in splitter.pre_tokenize_str(normal)]

    both = "".join(split("aa"))
    mark = both[:-2]
    if not both.endswith("aa") or len(mark.encode()) > _FORM_BYTES:
        return None
    forms = np.zeros(FORMS, np.int64)
    for point in _KNOWN:
        forms[point] = _form_of(chr(point), mark, split, touching)
    white = [chr(point) for point in np.flatnonzero(forms >> 60 == WHITE).tolist()]
    runs = ("".join(run) for size in (2, 3) for run in product(white, repeat=size))
    is_one = all(split(f"{run}a") == [f"{mark}a"] for run in runs)
    return Pieces(model, forms, _packed(WITHIN, mark), is_one)


def _form_of(character: str, mark: str, split: Callable[[str], list[str]], touching: str) -> int:
    """The normal form of a character, see above; 0 if it depends on other characters."""
    is_known = unicodedata.category(character)[0] in _KINDS or character in _ENDS
    if not is_known or character in touching:
        return 0
    alone, between = split(character), split(f"a{character}a")
    if not alone:
        white = between == [f"{mark}a"] * 2 and split(f"{character}a") == [f"{mark}a"]
        return _packed(WHITE, "") if white else 0
    form = alone[0].removeprefix(mark)
    if len(form.encode()) > _FORM_BYTES or unicodedata.combining(form[:1] or "\u0301"):
        return 0
    twice = split(f"{character}a{character}")
    if between == [f"{mark}a{form}a"] and twice == [f"{mark}{form}a{form}"]:
        return _packed(WITHIN, form)
    apart, a = mark + form, f"{mark}a"
    return _packed(ALONE, form) if [between, twice] == [[a, apart, a], [apart, a, apart]] else 0


def _packed(kind: int, form: str) -> int:
    letters = form.encode()
    return kind << 60 | len(letters) << 56 | int.from_bytes(letters, "little")


# ---- loops ----


@entry(types.int64(_BYTES, _INTS, _INTS, _INTS, _TRIE))
def enter_pieces(letters, offsets, roots, ids, trie):
    """Fills the trie; if a piece occurs twice, the last one counts.

    Args:
      letters: uint8, the bytes of all pieces.
      offsets: int64[pieces + 1], where each piece begins in `letters`.
      roots: int64[pieces], 0 or 1.
      ids: int64[pieces].
      trie: edges int32[S, 2], and the id of the piece that ends at a node, int64[nodes]; all -1.

    Returns:
      The number of nodes.
    """
    edges, ends = trie
    nodes = 2
    for piece in range(ids.size):
        node = roots[piece]
        for j in range(offsets[piece], offsets[piece + 1]):
            byte = np.int64(letters[j])
            slot = number_slot(edges, node << 8 | byte)
            if edges[slot, 0] < 0:
                edges[slot, 0], edges[slot, 1] = node << 8 | byte, nodes
                nodes += 1
            node = np.int64(edges[slot, 1])
        ends[node] = ids[piece]
    return nodes


@inner
def _longest_pieces(text, trie, rules, ids, total):
    """WordPiece: takes the longest piece at the beginning, then again after it, to the end."""
    edges, ends = trie
    characters, number, place, size = 0, 0, 0, text.size
    for j in range(size):
        characters += text[j] & 0xC0 != 0x80
    while place < size and characters <= rules[LONGEST]:
        node, j, found, stop = np.int64(place > 0), place, np.int64(-1), place
        while j < size:
            slot = number_slot(edges, node << 8 | np.int64(text[j]))
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
    """Records a path to `stop` if its score is higher than the best so far."""
    best, begins, found = path
    if begins[stop] < 0 or best[place] + score > best[stop]:
        best[stop], begins[stop], found[stop] = best[place] + score, place, piece


@inner
def _best_pieces(text, trie, scores, unknown, path, ids, total):
    """Unigram: the pieces with the highest sum of scores, the first found if several are equal.

    The order and the floating-point type are those of `tokenizers`, since they decide ties. Several
    unknown characters in a row become one id.
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
            slot = number_slot(edges, node << 8 | np.int64(text[j]))
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
        if piece == LEFT and unknown < 0 or piece == max(unknown, ~unknown):
            return LEFT
        if piece != LEFT or last != LEFT:
            number += 1
            ids[total + number - 1] = unknown if piece == LEFT else piece
        place, last = begins[place], piece
    for j in range(number // 2):
        other = total + number - 1 - j
        ids[total + j], ids[other] = ids[other], ids[total + j]
    return number


# ---- normalized words ----


@inner
def _form(data, i, forms):
    """The normal form of the character at byte i, and its size in bytes."""
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
def _write(data, place, stop, forms, rules, text, bounds):
    """Writes the normalized parts of a word; returns their number, LEFT if a form is unknown."""
    parts, size, fresh, is_first = 0, 0, True, True
    while place < stop:
        form, length = _form(data, place, forms)
        kind = form >> 60
        if kind == ASKED or kind == WHITE and not (is_first or rules[RUNS] and parts == 0):
            return LEFT
        place, is_first = place + length, False
        if kind == WHITE:
            continue
        if fresh or kind == ALONE:
            bounds[parts] = size
            parts, size = parts + 1, _put(text, size, rules[MARK])
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
def encode_pieces(chunk, forms, trie, scores, rules, ids, offsets, left):
    """Encodes words of known characters that are not too long; leaves others to `tokenizers`.

    Args:
      chunk: text uint8[N]; where words start in it, int64[W + 1]; the words to encode,
        int64[words].
      forms: int64[FORMS], the normal forms of characters.
      trie: the trie of `enter_pieces`.
      scores: float64[V + 1], the scores of tokens, the last that of an unknown character; of size 0
        for WordPiece.
      rules: int64[4].
      ids: uint32 of at least ROOM elements per byte, receives the ids of all words.
      offsets: int64[words + 1], receives where the ids of each word begin.
      left: bool[words], receives which words are left to `tokenizers`; they get no ids here.

    Returns:
      The number of ids.
    """
    data, starts, words = chunk
    text, bounds = np.empty(ROOM * LONGEST_WORD, np.uint8), np.empty(LONGEST_WORD + 1, np.int64)
    size = ROOM * LONGEST_WORD
    path = np.empty(size), np.empty(size, np.int64), np.empty(size, np.int64)
    path[0][0] = 0.0
    total = 0
    for k in range(words.size):
        offsets[k], end = total, total
        first, stop = starts[words[k]], starts[words[k] + 1]
        number = LEFT
        if stop - first <= LONGEST_WORD:
            number = _write(data, first, stop, forms, rules, text, bounds)
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
