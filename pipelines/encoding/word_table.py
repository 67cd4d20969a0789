"""A backend that cuts text into words and looks up the ids of each in a table.

It is exact by construction: a plan cuts words where no token can reach across, and the ids of a new
word come from `tokenizers` or from a compiled loop that gives the same ids.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from textmill.pipelines.encoding import word_loop
from textmill.pipelines.encoding.added_tokens import AddedTokens
from textmill.pipelines.encoding.normal_text import normalize_pieces
from textmill.pipelines.encoding.reference import (
    WORD_TABLE,
    AddedToken,
    Tokenizer,
    encode_each,
)
from textmill.pipelines.encoding.splitter import ROOM, Splitter, begin
from textmill.pipelines.encoding.word_loop import (
    ASK,
    ASKED,
    CHUNK,
    DOCUMENT,
    FULL,
    PLACE,
    POOL,
    TAKEN,
    WORD,
    WRITE,
    WordModel,
    encode_words,
    enter_words,
    give_ids,
    new_block,
)
from textmill.pipelines.encoding.word_slots import KEPT, LONG, MOST, SHORT, USED, move_slots
from textmill.pipelines.host.compiled import overlapping_eights
from textmill.pipelines.rows.ragged import Ragged, grow
from textmill.pipelines.rows.text_bytes import slices, utf8_bytes

_BATCH_BYTES = 512 << 10  # small enough that intermediate arrays stay in a processor's cache
_MOST_BYTES = 256 << 20  # a larger table is cleared
_END = "\U0010fffd\U0010fffe"  # ends each of several joined words; text hardly ever contains it
_JOINED = 50  # words that are joined to a text
_NONE = np.zeros(0, np.int64)
_BYTES_A_TOKEN = 3  # a first estimate of the ids' size; the array grows if there are more


@dataclass(frozen=True)
class Prefix:
    """Text that is put before pieces that are not empty.

    Attributes:
      text: the prefix.
      unless: beginnings of pieces that get no prefix.
      first: whether only pieces that begin a document get it.
    """

    text: bytes
    unless: tuple[bytes, ...] = ()
    first: bool = False

    def spelt(self) -> tuple[str, list[str], bool]:
        """The attributes, as values that JSON can hold."""
        return self.text.decode(), [begin.decode() for begin in self.unless], self.first

    @classmethod
    def of_spelt(cls, text: str, unless: Sequence[str], first: bool) -> "Prefix":
        """The prefix with the attributes that `spelt` returns."""
        return cls(text.encode(), tuple(begin.encode() for begin in unless), first)

    def put(
        self, data: np.ndarray, offsets: np.ndarray, firsts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The pieces with their prefixes.

        Args:
          data: UTF-8, uint8[bytes].
          offsets: int64[pieces + 1].
          firsts: the pieces that begin documents, ascending.
        """
        chosen = np.diff(offsets) > 0
        if self.first:
            begins = np.zeros(len(chosen), bool)
            begins[firsts] = True
            chosen &= begins
        for text in self.unless:
            chosen &= ~_begin_with(data, offsets[:-1], text)
        size = len(self.text)
        before = np.repeat(offsets[:-1][chosen], size)
        put = np.tile(np.frombuffer(self.text, np.uint8), int(chosen.sum()))
        return np.insert(data, before, put), offsets + np.append(0, np.cumsum(chosen * size))


def _begin_with(data: np.ndarray, starts: np.ndarray, text: bytes) -> np.ndarray:
    """Whether `text` begins at these offsets; whole characters cannot cross into the next piece."""
    same = starts + len(text) <= len(data)
    for step, byte in enumerate(text):
        same[same] = data[starts[same] + step] == byte
    return same


@dataclass(frozen=True)
class EncodingPlan:
    """How a tokenizer's text is cut into words, and how words are encoded.

    Attributes:
      splitter: cuts the text between added tokens into words.
      words: makes what encodes a word alone as the tokenizer does within a text.
      added: added tokens that are matched in the raw text.
      model: encodes words in the compiled loop, or leaves them to `words`.
      whole: the table of words that are known at the start, since `model` would give them other
        ids: see `table_of`.
      normalizers: those of `normal_text.NORMALIZERS` that are applied before words are cut.
      normalized: added tokens that are matched in normalized text.
      prefix: text before the remaining pieces.
    """

    splitter: Splitter
    words: "Callable[[], WordEncoder]"
    added: AddedTokens
    model: WordModel = WordModel()
    whole: tuple[np.ndarray, ...] | None = None
    normalizers: tuple[str, ...] = ()
    normalized: AddedTokens | None = None
    prefix: Prefix | None = None

    def parts(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """All but `words`, as values that JSON can hold, and as arrays."""
        groups = {
            f"pattern {i}": [*t, shifts] for i, (t, shifts) in enumerate(self.splitter.tables)
        }
        kind, *tables = self.model
        groups |= {"merges": tables[0], "pieces": tables[1], "whole": self.whole or ()}
        values = {
            "arrays": {name: len(arrays) for name, arrays in groups.items()},
            "model": kind,
            "added": self.added.tokens,
            "normalized": self.normalized and self.normalized.tokens,
            "normalizers": self.normalizers,
            "prefix": self.prefix and self.prefix.spelt(),
        }
        numbered = ((f"{n} {i}", a) for n, arrays in groups.items() for i, a in enumerate(arrays))
        return values, dict(numbered)

    @classmethod
    def of_parts(
        cls,
        values: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray],
        words: "Callable[[], WordEncoder]",
    ) -> "EncodingPlan":
        """The plan that `parts` took apart."""
        groups = {
            name: tuple(arrays[f"{name} {i}"] for i in range(number))
            for name, number in values["arrays"].items()
        }
        merges, pieces, whole = map(groups.pop, ("merges", "pieces", "whole"))
        return cls(
            Splitter([(tables[:-1], tables[-1]) for tables in groups.values()]),
            cache(words),
            AddedTokens(values["added"]),
            model=WordModel(values["model"], merges, pieces),
            whole=whole or None,
            normalizers=tuple(values["normalizers"]),
            normalized=values["normalized"] and AddedTokens(values["normalized"]),
            prefix=values["prefix"] and Prefix.of_spelt(*values["prefix"]),
        )


class WordEncoder:
    """Encodes words by `tokenizers`: many in one text, with an added token after each.

    That takes two thirds of the time of one text per word.
    """

    def __init__(self, tokenizer: Tokenizer):
        """Takes a tokenizer without added tokens that encodes single words correctly."""
        self._alone = tokenizer
        self._joined = Tokenizer(tokenizer.model)
        if tokenizer.normalizer is not None:
            self._joined.normalizer = tokenizer.normalizer
        if tokenizer.pre_tokenizer is not None:
            self._joined.pre_tokenizer = tokenizer.pre_tokenizer
        self._joined.add_special_tokens([AddedToken(_END, normalized=False)])
        self._end: Any = self._joined.token_to_id(_END)
        # The new token's id is the number of tokens, which another has if ids have gaps.
        self._joins = tokenizer.id_to_token(self._end) is None

    def encode(self, words: list[str]) -> Ragged:
        """The ids of each word."""
        if not self._joins or any(_END in word for word in words):
            return Ragged.of_lists(encode_each(self._alone, words))
        starts = range(0, len(words), _JOINED)
        texts = [_END.join([*words[start : start + _JOINED], ""]) for start in starts]
        ids = Ragged.of_lists(encode_each(self._joined, texts)).values
        ends = np.flatnonzero(ids == self._end)
        return Ragged(np.delete(ids, ends), np.append(0, ends - np.arange(len(ends))))


class WordTableBackend:
    """Encodes by a plan. Thread-safe: each call takes a free table, or creates one."""

    name = WORD_TABLE

    def __init__(self, plan: EncodingPlan):
        """Starts without tables; `plan` is an attribute, too."""
        self.plan = plan
        self._tables: list[WordTable] = []

    def encode(self, text: pa.LargeStringArray) -> Ragged:
        """Encodes documents, as every `Backend` does."""
        try:
            table = self._tables.pop()
        except IndexError:
            table = WordTable(self.plan)
        parts = [self._encode_batch(table, batch) for batch in slices(text, _BATCH_BYTES)]
        self._tables.append(table)  # not after an error, which may leave words without ids
        return Ragged.joined(parts)

    def _encode_batch(self, table: "WordTable", text: pa.LargeStringArray) -> Ragged:
        plan = self.plan

        def encode_raw(data: np.ndarray, offsets: np.ndarray, firsts: np.ndarray) -> Ragged:
            if plan.normalizers:
                data, offsets = normalize_pieces(data, offsets, plan.normalizers)
            if plan.normalized is None:
                return encode_normal(data, offsets, firsts)
            return plan.normalized.encode_around(data, offsets, firsts, encode_normal)

        def encode_normal(data: np.ndarray, offsets: np.ndarray, firsts: np.ndarray) -> Ragged:
            if plan.prefix is not None:
                data, offsets = plan.prefix.put(data, offsets, firsts)
            return table.encode(data, offsets)

        data, offsets = utf8_bytes(text)
        return plan.added.encode_around(data, offsets, np.arange(len(text)), encode_raw)


class WordTable:
    """Known words and their ids: slots of 32 bytes, at most half of them used, and long words."""

    def __init__(self, plan: EncodingPlan):
        """Starts with an empty table, or with the words of `plan.whole`."""
        self._plan = plan
        self._starts, self._asked = np.empty(ROOM, np.int64), np.empty((3, ROOM), np.int64)
        self._block = new_block()
        self._clear()

    def encode(self, data: np.ndarray, offsets: np.ndarray) -> Ragged:
        """The ids of pieces of text, data[offsets[i] : offsets[i + 1]]."""
        ids = np.empty(len(data) // _BYTES_A_TOKEN + 64, np.uint32)
        id_offsets, written = np.zeros(len(offsets), np.int64), np.zeros(5, np.int64)
        text, splitter = (data, overlapping_eights(data)), self._plan.splitter
        model = tuple(self._plan.model)
        unkept = _NONE
        for pieces in splitter.cut_before(data, offsets):
            if len(pieces) < 2:
                continue
            cutting = pieces, *splitter.last, self._starts, begin(pieces, self._starts)
            written[[WORD, CHUNK]] = 0
            reason = None
            while reason != word_loop.DONE:
                table = (self._slots, self._numbers), self._long(), self._pool, self._at
                out = offsets, ids, id_offsets, written
                reason = encode_words(
                    text, cutting, table, model, (self._asked, unkept), self._block, out
                )
                if reason == FULL:
                    self._make_room()
                    unkept, written[TAKEN] = _NONE, 0  # the pool may be empty now
                elif reason == ASK:
                    unkept = self._ask(data)
                elif reason == WRITE:
                    ids = np.append(ids, np.empty(max(len(ids), 1 << 16), np.uint32))
        place = written[PLACE]
        id_offsets[written[DOCUMENT] + 1 :] = place
        return Ragged(ids[:place], id_offsets)

    def _clear(self) -> None:
        whole = self._plan.whole or _tables_of(20_000, 1 << 10, 1 << 14)
        self._slots, self._long_starts, self._long_words, self._at = map(np.copy, whole)
        self._numbers = self._slots.view(np.uint32)
        self._pool = np.zeros(1 << 14, np.uint32)

    def _long(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self._long_starts, self._long_words, overlapping_eights(self._long_words)

    def _bytes(self) -> int:
        arrays = self._slots, self._long_starts, self._long_words, self._pool
        return sum(array.nbytes for array in arrays)

    def _make_room(self) -> None:
        """Makes room for more words."""
        if self._bytes() > _MOST_BYTES:
            self._clear()
        used, long = int(self._at[USED]), int(self._at[LONG])
        if 2 * (used + 1) >= len(self._slots):
            larger = np.zeros((2 * len(self._slots), 4), np.int64)
            move_slots(self._slots, larger)
            self._slots, self._numbers = larger, larger.view(np.uint32)
        self._long_starts = grow(self._long_starts, long + 1, 2)
        self._long_words = grow(self._long_words, int(self._long_starts[long]), KEPT)
        self._pool = grow(self._pool, int(self._at[POOL]), MOST * KEPT)

    def _ask(self, data: np.ndarray) -> np.ndarray:
        """Gives words the ids of `tokenizers`; returns where those of words without a slot are."""
        starts, stops, slots = self._asked[:, : self._at[ASKED]]
        spans = zip(starts.tolist(), stops.tolist(), strict=True)
        texts = [data[start:stop].tobytes().decode() for start, stop in spans]
        ids, offsets = self._plan.words().encode(texts)
        pool = int(self._at[POOL])
        self._pool = grow(self._pool, pool, len(ids))
        self._pool[pool : pool + len(ids)] = ids
        self._at[POOL] += len(ids)
        offsets = offsets + pool
        give_ids(slots, offsets, (self._slots, self._numbers), self._pool)
        return np.stack([offsets[:-1], offsets[1:]], axis=1)[slots < 0].ravel()


def _tables_of(words: int, long: int, size: int) -> tuple[np.ndarray, ...]:
    """Empty slots, starts and bytes of long words, and at.

    Args:
      words: how many to make room for.
      long: how many of them may be long.
      size: of the long ones, in bytes.
    """
    slots = np.zeros((2 << words.bit_length(), 4), np.int64)
    return (
        slots,
        np.zeros(long + 3, np.int64),
        np.zeros(size + KEPT, np.uint8),
        np.zeros(4, np.int64),
    )


def table_of(data: np.ndarray, starts: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, ...]:
    """A table of words of one id each, for `EncodingPlan.whole`.

    Args:
      data: the words joined, uint8.
      starts: where they begin, int64[words + 1].
      ids: uint32[words].
    """
    sizes = np.diff(starts)
    is_long = sizes > SHORT
    tables = _tables_of(len(ids), int(is_long.sum()), int(sizes[is_long].sum()))
    slots, long_starts, long_words, at = tables
    views, long = (slots, slots.view(np.uint32)), (long_starts, long_words)
    enter_words(
        data,
        overlapping_eights(data),
        starts,
        ids,
        views,
        (*long, overlapping_eights(long_words)),
        at,
    )
    return tables
