"""A backend that cuts text into words and looks up the ids of each in a table.

It is exact by construction: a plan cuts words where no token can reach across, and the ids of a new
word come from `tokenizers` or from a compiled loop that gives the same ids.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from textmill.pipelines.encoding import word_loop, word_slots
from textmill.pipelines.encoding.added_tokens import AddedTokens
from textmill.pipelines.encoding.normal_text import normalize_pieces
from textmill.pipelines.encoding.reference import Tokenizer, encode_each
from textmill.pipelines.encoding.splitter import ROOM, Splitter, begin, split_by
from textmill.pipelines.encoding.word_loop import NEW, POOL
from textmill.pipelines.encoding.word_slots import LONG, USED
from textmill.pipelines.rows.ragged import Ragged, grow
from textmill.pipelines.rows.text_bytes import slices, utf8_bytes
from textmill.pipelines.runtime.compiled import overlapping_eights

_MOST_BYTES = 256 << 20  # a larger table is cleared
_BYTES_PER_TOKEN = 3  # a first estimate of the ids' size; the array grows if there are more


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


class WordModel(Protocol):
    """Encodes words in a compiled loop."""

    def encode(
        self, data: np.ndarray, starts: np.ndarray, words: np.ndarray
    ) -> tuple[Ragged, np.ndarray]:
        """Encodes words of a chunk of text.

        Args:
          data: UTF-8, uint8[bytes].
          starts: int64[W + 1], where words start in `data`, and where the last ends.
          words: int64, the words to encode.

        Returns:
          The ids of each; and which of them are left to `tokenizers`, bool[words]: their ids here
          do not count.
        """
        ...


@dataclass(frozen=True)
class EncodingPlan:
    """How a tokenizer's text is cut into pieces, these into words, and what encodes words.

    Attributes:
      patterns: regular expressions that cut pieces into words.
      tokenizer: the tokenizer.
      of_words: makes a tokenizer of it that encodes a word alone as within a text.
      make_model: makes what encodes words in a compiled loop; it returns None if no loop can.
      added: added tokens that are matched in the raw text.
      normalized: added tokens that are matched in normalized text.
      normalizers: those of `normal_text.NORMALIZERS` that are applied to the text between `added`.
      prefix: text before the remaining pieces.
    """

    patterns: tuple[str, ...]
    tokenizer: Tokenizer
    of_words: Callable[[Tokenizer], Tokenizer]
    make_model: Callable[[], WordModel | None]
    added: AddedTokens
    normalized: AddedTokens | None = None
    normalizers: tuple[str, ...] = ()
    prefix: Prefix | None = None

    @cached_property
    def splitter(self) -> Splitter:
        """Cuts pieces into words.

        Raises:
          UnsupportedPattern: Textmill does not compile one of the patterns.
        """
        return split_by(*self.patterns)

    @cached_property
    def model(self) -> WordModel | None:
        """Encodes words in a compiled loop, if there is one."""
        return self.make_model()

    @cached_property
    def _alone(self) -> Tokenizer:
        return self.of_words(self.tokenizer)

    def encode_words(self, words: list[str]) -> Ragged:
        """The ids of each word by `tokenizers`."""
        return Ragged.of_lists(encode_each(self._alone, words))

    def __getstate__(self) -> dict[str, Any]:
        """The attributes, with the splitter and the model instead of what makes it."""
        made = {"splitter": self.splitter, "model": self.model, "make_model": None}
        return {name: getattr(self, name) for name in self.__dataclass_fields__} | made


class PieceEncoder(Protocol):
    """Encodes pieces of text in one thread."""

    batch_bytes: int  # of text that it takes at once

    def encode(self, data: np.ndarray, offsets: np.ndarray) -> Ragged:
        """The ids of pieces of UTF-8 text, data[offsets[i] : offsets[i + 1]]."""
        ...


class PieceBackend:
    """Encodes by a plan. Thread-safe: each call takes a free encoder of pieces, or makes one."""

    def __init__(
        self, name: str, plan: EncodingPlan, make_encoder: Callable[[EncodingPlan], PieceEncoder]
    ):
        """Starts without encoders."""
        self.name, self.plan = name, plan
        self._make_encoder, self._encoders = make_encoder, []

    def __getstate__(self) -> dict[str, Any]:
        """The attributes, without encoders."""
        return {**vars(self), "_encoders": []}

    def encode(self, text: pa.LargeStringArray) -> Ragged:
        """Encodes documents, as every `Backend` does."""
        try:
            encoder = self._encoders.pop()
        except IndexError:
            encoder = self._make_encoder(self.plan)
        parts = [self._encode_batch(encoder, batch) for batch in slices(text, encoder.batch_bytes)]
        self._encoders.append(encoder)  # not after an error, which may leave words without ids
        return Ragged.joined(parts)

    def _encode_batch(self, encoder: PieceEncoder, text: pa.LargeStringArray) -> Ragged:
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
            return encoder.encode(data, offsets)

        data, offsets = utf8_bytes(text)
        return plan.added.encode_around(data, offsets, np.arange(len(text)), encode_raw)


class WordTable:
    """Known words and their ids: slots of 32 bytes, at most half of them used, and long words."""

    batch_bytes = 512 << 10  # small enough that intermediate arrays stay in a processor's cache

    def __init__(self, plan: EncodingPlan):
        """Starts with an empty table."""
        self._plan = plan
        self._starts, self._scratch = np.empty(ROOM, np.int64), np.empty((3, ROOM), np.int64)
        answers = np.empty((ROOM, 2), np.int64)
        self._chunk = self._scratch, np.empty(ROOM, np.int64), answers, answers.view(np.uint32)
        self._clear()

    def encode(self, data: np.ndarray, offsets: np.ndarray) -> Ragged:
        """The ids of pieces of text, data[offsets[i] : offsets[i + 1]]."""
        ids = np.empty(len(data) // _BYTES_PER_TOKEN + 64, np.uint32)
        id_offsets, written = np.zeros(len(offsets), np.int64), np.zeros(4, np.int64)
        text, splitter = (data, overlapping_eights(data)), self._plan.splitter
        starts = self._starts
        for pieces in splitter.cut_before(data, offsets):
            if len(pieces) < 2:
                continue
            cutting = pieces, *splitter.last, starts, begin(pieces, starts)
            stage = word_loop.CUT
            while True:
                table = self._slots, self._long(), self._pool, self._at
                out = offsets, ids, id_offsets, written
                stage = word_loop.encode_words(stage, text, cutting, table, self._chunk, out)
                if stage == word_loop.DONE:
                    break
                own = starts[: written[word_loop.CHUNK] + 1]
                if stage == word_loop.FIND:
                    self._make_room(len(own) - 1, int(own[-1] - own[0]))
                elif stage == word_loop.FILL:
                    self._fill(data, own)
                else:
                    ids = np.append(ids, np.empty(max(len(ids), 1 << 16), np.uint32))
        place = written[word_loop.PLACE]
        id_offsets[written[word_loop.DOCUMENT] + 1 :] = place
        return Ragged(ids[:place], id_offsets)

    def _clear(self) -> None:
        self._slots = np.zeros((1 << 16, 4), np.int64)
        self._numbers = self._slots.view(np.uint32)
        self._long_starts = np.zeros(1 << 10, np.int64)
        self._long_words = np.zeros(1 << 14, np.uint8)
        self._pool = np.zeros(1 << 14, np.uint32)
        self._at = np.zeros(5, np.int64)

    def _long(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self._long_starts, self._long_words, overlapping_eights(self._long_words)

    def _bytes(self) -> int:
        arrays = self._slots, self._long_starts, self._long_words, self._pool
        return sum(array.nbytes for array in arrays)

    def _make_room(self, words: int, size: int) -> None:
        """Makes room for a number of words, all new, with `size` bytes together."""
        if self._bytes() > _MOST_BYTES:
            self._clear()
        used, long = int(self._at[USED]), int(self._at[LONG])
        number = len(self._slots)
        while 2 * (used + words + 1) > number:
            number *= 2
        if number > len(self._slots):
            larger = np.zeros((number, 4), np.int64)
            word_slots.move_slots(self._slots, larger)
            self._slots, self._numbers = larger, larger.view(np.uint32)
        start = int(self._long_starts[long])
        self._long_starts = grow(self._long_starts, long + 1, size // word_slots.SHORT + 1)
        self._long_words = grow(self._long_words, start, size)

    def _fill(self, data: np.ndarray, starts: np.ndarray) -> None:
        """Enters the ids of new words."""
        new = self._at[NEW]
        words = self._scratch[word_loop.NEW_WORDS, :new]
        slots = self._scratch[word_loop.NEW_SLOTS, :new]
        left = np.ones(new, bool)
        if self._plan.model is not None:
            ids, left = self._plan.model.encode(data, starts, words)
            self._give_ids(slots, *ids)
        if left.any():
            self._give_ids(slots[left], *self._ask(data, starts, words[left]))

    def _ask(self, data: np.ndarray, starts: np.ndarray, words: np.ndarray) -> Ragged:
        """The ids of words by `tokenizers`."""
        begins, ends = starts[words].tolist(), starts[words + 1].tolist()
        texts = [
            data[begin:end].tobytes().decode() for begin, end in zip(begins, ends, strict=True)
        ]
        return self._plan.encode_words(texts)

    def _give_ids(self, slots: np.ndarray, ids: np.ndarray, offsets: np.ndarray) -> None:
        self._pool = grow(self._pool, int(self._at[POOL]), len(ids))
        word_loop.fill_slots(
            slots, ids, offsets, (self._slots, self._numbers), self._pool, self._at
        )
