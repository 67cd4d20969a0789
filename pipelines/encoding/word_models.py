"""Models that tell the ids of words by loops of ours, as `tokenizers` does, or leave a word to it.

That takes 3 to 5 microseconds for a word, and these 0.5 to 1.5. Pure: numpy.
"""

import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Protocol

import numpy as np
import tokenizers

from pipelines.encoding import piece_loop, word_loop
from pipelines.encoding.byte_alphabet import byte_characters, spelt_bytes
from pipelines.encoding.piece_loop import ALONE, FORMS, ROOM, WHITE, WITHIN
from pipelines.rows.ragged import Ragged

_KNOWN = (*range(0x530), *range(0x2010, 0x2028))  # Latin, Greek, Cyrillic, and quotation marks
_KINDS = "LNPSZ"  # of characters that join with none beside them, where `_KNOWN`
_FORM_BYTES = 7
_MOST_BYTES = 1 << 22  # of all tokens: a node and a byte of the trie are one number of 31 bits
_UNKNOWN_PENALTY = 10.0  # below the lowest score
_OPTIONS = {
    "WordPiece": {"unk_token", "continuing_subword_prefix", "max_input_chars_per_word"},
    "Unigram": {"unk_id", "byte_fallback"},
}


class WordModel(Protocol):
    """Tells the ids of words."""

    def encode(
        self, data: np.ndarray, starts: np.ndarray, words: np.ndarray
    ) -> tuple[Ragged, np.ndarray]:
        """Encodes words of a chunk of text.

        Args:
          data: UTF-8, uint8[bytes].
          starts: int64[W + 1], where words start in it, and where the last ends.
          words: int64, which of these, each of at most KEPT bytes.

        Returns:
          The ids of each; and, as numbers among `words`, those left to `tokenizers`, without ids.
        """
        ...


class Merges:
    """The merges of a BPE: they leave no word."""

    def __init__(self, loop: Callable, tables: tuple[np.ndarray, ...]):
        """From a loop of `word_loop` and the tables that it takes."""
        self._loop, self._tables = loop, tables

    def encode(
        self, data: np.ndarray, starts: np.ndarray, words: np.ndarray
    ) -> tuple[Ragged, np.ndarray]:
        """See `WordModel`."""
        ids = np.empty(int((starts[words + 1] - starts[words]).sum()), np.uint32)
        offsets = np.empty(len(words) + 1, np.int64)
        total = self._loop(data, starts, words, self._tables, ids, offsets)
        return Ragged(ids[:total], offsets), np.zeros(0, np.int64)


def merges_of_bytes(model: Mapping[str, Any]) -> Merges:
    """From the model of a tokenizer.json: merges as pairs, all 256 bytes in its vocabulary."""
    byte_ids = np.array([model["vocab"][character] for character in byte_characters()])
    merges = _table_of_merges(model)
    of_bytes = np.empty(1 << 16, np.int64)
    word_loop.enter_byte_pairs(byte_ids, merges, of_bytes)
    return Merges(word_loop.merge_bytes, (byte_ids, of_bytes, merges))


def merges_of_characters(model: Mapping[str, Any], space: str) -> Merges | None:
    """The same for a model that falls back to tokens of bytes, <0x00> to <0xFF>.

    Args:
      model: of a tokenizer.json.
      space: the character that a space becomes. Where it is no token, there are no merges.
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
    tables = character_ids, byte_ids, _table_of_merges(model)
    return Merges(word_loop.merge_characters, tables)


def _table_of_merges(model: Mapping[str, Any]) -> np.ndarray:
    vocab, pairs = model["vocab"], model["merges"]
    halves = np.array([*map(vocab.__getitem__, chain.from_iterable(pairs))], np.int64)
    merged = np.array([*map(vocab.__getitem__, map("".join, pairs))], np.int64)
    table = np.full((2 << len(pairs).bit_length(), 2), -1, np.int64)
    ranks = np.arange(len(pairs))
    word_loop.enter_merges(table, halves[::2] << 32 | halves[1::2], ranks << 32 | merged)
    return table


def whole_words(vocab: Mapping[str, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The tokens that are words if `ignore_merges` is set: their bytes, offsets, ids."""
    alphabet = set(byte_characters())
    tokens = [token for token in vocab if token and alphabet.issuperset(token)]
    words = spelt_bytes(tokens)
    ids = np.array([vocab[token] for token in tokens], np.uint32)
    return *_joined(words), ids


class Pieces:
    """The vocabulary of WordPiece or Unigram, for words of common characters."""

    def __init__(self, model: Mapping[str, Any], forms: np.ndarray, mark: int):
        """From the model of a tokenizer.json, and what characters become: int64[FORMS]."""
        if model["type"] == "WordPiece":
            tokens, scores = model["vocab"], []
            prefix = model["continuing_subword_prefix"]
            unknown, longest = tokens.get(model["unk_token"], -1), model["max_input_chars_per_word"]
            later = {t[len(prefix) :]: i for t, i in tokens.items() if t.startswith(prefix)}
        else:
            tokens = {token: i for i, (token, _) in enumerate(model["vocab"])}
            scores = [score for _, score in model["vocab"]]
            # What is unknown in a row could be a token only where tokens have such scores.
            asked = model["byte_fallback"] or min(scores) >= _UNKNOWN_PENALTY
            unknown, longest, later = -1 if asked else model["unk_id"], 0, {}
            scores.append(min(scores) - _UNKNOWN_PENALTY)
        self._forms, self._scores = forms, np.array(scores, np.float64)
        self._rules = np.array([unknown, min(longest, 1 << 62), mark])
        roots = np.repeat([0, 1], [len(tokens), len(later)])
        ids = np.array([*tokens.values(), *later.values()], np.int64)
        letters, offsets = _joined([token.encode() for token in (*tokens, *later)])
        most = len(letters) + 2
        while True:  # at first for as many nodes as letters, then for those that there are
            edges = np.full((2 << most.bit_length(), 2), -1, np.int32)
            self._trie = edges, np.full(most, -1, np.int64)
            nodes = piece_loop.enter_pieces(letters, offsets, roots, ids, self._trie)
            if nodes == most:
                break
            most = nodes

    def encode(
        self, data: np.ndarray, starts: np.ndarray, words: np.ndarray
    ) -> tuple[Ragged, np.ndarray]:
        """See `WordModel`."""
        ids = np.empty(ROOM * int((starts[words + 1] - starts[words]).sum()), np.uint32)
        offsets, left = np.empty(len(words) + 1, np.int64), np.empty(len(words), bool)
        chunk, trie = (data, starts, words), self._trie
        total = piece_loop.encode_words(
            chunk, self._forms, trie, self._scores, self._rules, ids, offsets, left
        )
        return Ragged(ids[:total], offsets), np.flatnonzero(left)


def pieces_of(
    model: Mapping[str, Any], words: tokenizers.Tokenizer, touching: str = ""
) -> Pieces | None:
    """The pieces of a model, if they tell the ids of words as it does.

    Args:
      model: of a tokenizer.json.
      words: normalizes and splits words character by character, accents and `touching` apart.
      touching: characters that it changes by those beside them.
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
        forms[point] = _form(chr(point), mark, split, touching)
    return Pieces(model, forms, _packed(WITHIN, mark))


def _form(character: str, mark: str, split: Callable[[str], list[str]], touching: str) -> int:
    """What a character becomes, as `piece_loop` has it: 0 where that depends on others."""
    if unicodedata.category(character)[0] not in _KINDS or character in touching:
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


def _joined(words: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Words one after another, and where each begins: int64[words + 1]."""
    offsets = np.append(0, np.cumsum([len(word) for word in words])).astype(np.int64)
    return np.frombuffer(b"".join(words), np.uint8), offsets
