"""Indexes the n-grams of evaluation texts (targets) for the search in documents. Pure.

A text of at least --decontaminate_ngram words has an n-gram at each word that enough words follow.
A shorter text of at least --decontaminate_min_words is one n-gram; still shorter texts have none.
docs/decontamination.md has the weights of characters and of long words.

Legend: T texts, G different n-grams, P their different prefixes, W words of the texts.
"""

from dataclasses import dataclass, fields, replace

import numpy as np
import pyarrow as pa

from textmill.pipelines.corpus.near_duplicates.rows import differs
from textmill.pipelines.rows.text_bytes import utf8_bytes
from textmill.pipelines.rows.word_hashes import WORD, HashedWords, hash_words, weigh_words
from textmill.schemas.typed_json import parse_json, to_json

BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, so that every word of a run counts modulo 2**64
SPREAD = np.uint64(0xD6E8FEB86659FD93)
_OTHERS = "others"  # key of metadata in a packed index
_LETTERS = 5  # average letters of an English word
_PHRASE_LETTERS = 4  # for each required word: fewer are a turn of phrase, of short, common words
_SPARSE = 64  # bits of the bitmap for each prefix
_BITMAP_BITS = range(16, 28)  # log2 of the bitmap's bits: 8 KB to 16 MB


@dataclass(frozen=True)
class Targets:
    """Texts of evaluation sets.

    Attributes:
      files: path and sha256 of each file, sorted by content.
      fields: names of the fields with text.
      text: large_string [T], the different texts.
      file_T: int64, index into `files`.
      field_T: int64, index into `fields`.
      record_T: int64, number of the record among those of the file with text in the field.
    """

    files: tuple[tuple[str, str], ...]
    fields: tuple[str, ...]
    text: pa.LargeStringArray
    file_T: np.ndarray
    field_T: np.ndarray
    record_T: np.ndarray


@dataclass(frozen=True)
class NgramIndex:
    """The n-grams of targets.

    Attributes:
      targets: the texts.
      least: number of words of a prefix, which is that of the shortest n-gram.
      starts_W: int64, where each word begins in the bytes of the texts.
      stops_W: int64, where each word ends in the bytes of the texts.
      short_T: bool, whether a text has too few words.
      prefix_G: uint64, hash of the first `least` words; n-grams are sorted by it, then by length_G,
        then by hash_G.
      length_G: int64, number of words.
      hash_G: uint64, hash of all words.
      place_G: int64, index of a word of the texts at which the n-gram begins.
      bounds_G: int64 [G + 1], where the texts of each n-gram begin in `text_G`.
      text_G: int64, the texts that contain each n-gram, ascending.
      share: minimum share of a text's n-grams that a document must contain.
      whole_T: bool, whether a document must contain all n-grams of a text.
    """

    targets: Targets
    least: int
    starts_W: np.ndarray
    stops_W: np.ndarray
    short_T: np.ndarray
    prefix_G: np.ndarray
    length_G: np.ndarray
    hash_G: np.ndarray
    place_G: np.ndarray
    bounds_G: np.ndarray
    text_G: np.ndarray
    share: float
    whole_T: np.ndarray

    @property
    def total_T(self) -> np.ndarray:
        """int64: number of different n-grams of each text."""
        return np.bincount(self.text_G, minlength=len(self.targets.text))

    @property
    def need_T(self) -> np.ndarray:
        """int64: number of n-grams of each text that make a document contaminated; at least 1."""
        need_T = np.ceil(self.total_T * self.share - 1e-9).astype(np.int64)
        return np.maximum(np.where(self.whole_T, self.total_T, need_T), 1)

    def prefixes(self) -> tuple[np.ndarray, np.ndarray]:
        """uint64 [P], prefixes, ascending; int64 [P + 1], where the n-grams of each begin."""
        prefix_P, first_P = np.unique(self.prefix_G, return_index=True)
        return prefix_P, np.append(first_P, len(self.prefix_G))

    def bitmap(self) -> tuple[np.ndarray, np.uint64]:
        """A bitmap, uint64, with a bit set at `prefix * SPREAD >> shift`; and the shift."""
        wanted = (max(len(self.prefix_G), 1) * _SPARSE - 1).bit_length()
        bits = min(max(wanted, _BITMAP_BITS.start), _BITMAP_BITS.stop - 1)
        shift = np.uint64(64 - bits)
        is_set = np.zeros(1 << bits, np.uint8)
        is_set[(self.prefix_G * SPREAD) >> shift] = 1
        return np.packbits(is_set, bitorder="little").view("<u8").astype(np.uint64), shift

    def text_of(self, gram: int) -> str:
        """The words of an n-gram as they occur in a text, with the characters between them."""
        data, _ = utf8_bytes(self.targets.text)
        first = self.place_G[gram]
        last = first + self.length_G[gram] - 1
        return data[self.starts_W[first] : self.stops_W[last]].tobytes().decode()

    def without(self, gone: np.ndarray, whole_T: np.ndarray) -> "NgramIndex":
        """The index without some n-grams, except in texts that are searched for as a whole.

        Args:
          gone: int64, numbers of the n-grams to remove.
          whole_T: bool, texts that keep all their n-grams, which a document must all contain.
        """
        is_gone_G = np.zeros(len(self.hash_G), bool)
        is_gone_G[gone] = True
        number_G = np.diff(self.bounds_G)
        is_kept = ~np.repeat(is_gone_G, number_G) | whole_T[self.text_G]
        number_G = np.diff(np.concatenate([[0], np.cumsum(is_kept)])[self.bounds_G])
        kept_G = number_G > 0
        of_gram = {
            name: getattr(self, name)[kept_G]
            for name in ("prefix_G", "length_G", "hash_G", "place_G")
        }
        bounds = np.concatenate([[0], np.cumsum(number_G[kept_G])])
        text = self.text_G[is_kept]
        return replace(self, bounds_G=bounds, text_G=text, whole_T=whole_T, **of_gram)


def pack_index(index: NgramIndex) -> bytes:
    """An Arrow file: arrays are columns of one row; other fields are JSON in the metadata."""
    values = {**vars(index), **vars(index.targets)}
    columns = {n: pa.array(v) for n, v in values.items() if isinstance(v, np.ndarray | pa.Array)}
    others = {n: v for n, v in values.items() if n not in ("targets", *columns)}
    row = [pa.LargeListArray.from_arrays([0, len(column)], column) for column in columns.values()]
    batch = pa.record_batch(row, [*columns]).replace_schema_metadata({_OTHERS: to_json(others)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as file:
        file.write(batch)
    return sink.getvalue().to_pybytes()


def unpack_index(content: bytes) -> NgramIndex:
    """The index that `pack_index` wrote."""
    batch = pa.ipc.open_file(content).get_batch(0)
    values = parse_json(batch.schema.metadata[_OTHERS.encode()], "the index of n-grams")
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        array = column.values
        values[name] = array if name == "text" else array.to_numpy(zero_copy_only=False)
    values["files"] = tuple(map(tuple, values["files"]))
    values["fields"] = tuple(values["fields"])
    targets = {field.name: values.pop(field.name) for field in fields(Targets)}
    return NgramIndex(targets=Targets(**targets), **values)


def index_targets(targets: Targets, *, ngram: int, least: int, share: float) -> NgramIndex:
    """Indexes the n-grams of texts.

    Args:
      targets: the texts.
      ngram: number of words of an n-gram.
      least: minimum number of words of a text.
      share: minimum share of a text's n-grams that a document must contain.
    """
    words = hash_words(targets.text)
    word_W, offsets, starts_W, stops_W = words
    worth_W = weigh_words(targets.text, starts_W)
    short_T = _are_short(worth_W, _count_letters(targets.text, words), offsets, least)
    text, place, length = _runs(worth_W, offsets, WORD * ngram)
    text, place, length = (column[~short_T[text]] for column in (text, place, length))
    least = int(length.min(initial=ngram))
    prefix, whole = _hash_runs(word_W, place, length, least)
    order = np.lexsort((place, whole, length, prefix))
    text, place, length, prefix, whole = (
        column[order] for column in (text, place, length, prefix, whole)
    )
    fresh = differs(prefix, length, whole)
    pair = np.unique(np.stack([np.cumsum(fresh) - 1, text], axis=1), axis=0)
    return NgramIndex(
        targets=targets,
        least=least,
        starts_W=starts_W,
        stops_W=stops_W,
        short_T=short_T,
        prefix_G=prefix[fresh],
        length_G=length[fresh],
        hash_G=whole[fresh],
        place_G=place[fresh],
        bounds_G=np.searchsorted(pair[:, 0], np.arange(np.count_nonzero(fresh) + 1)),
        text_G=np.ascontiguousarray(pair[:, 1]),
        share=share,
        whole_T=np.zeros(len(short_T), bool),
    )


def find_phrases(text: pa.LargeStringArray, least: int) -> np.ndarray:
    """Bool [T]: texts whose words, each counted once, are too few or have too few letters.

    With a `least` of 5, "at the end of the day" has 5 words of 13 letters, too few; "What is the
    capital of France?" has 6 words of 24 letters.
    """
    words = hash_words(text)
    text_W = np.repeat(np.arange(len(text)), np.diff(words.offsets))
    order = np.lexsort((words.hashes, text_W))
    is_new_W = np.zeros(len(order), bool)
    is_new_W[order] = differs(text_W[order], words.hashes[order])
    worth_W = weigh_words(text, words.starts) * is_new_W
    letters_W = _count_letters(text, words)
    # A character that counts as a part of a word has that part of a word's letters.
    in_words_W = np.where(worth_W == WORD, letters_W, worth_W * _LETTERS / WORD)
    [letters_T] = _sum_by_text(words.offsets, in_words_W)
    is_short = _are_short(worth_W, letters_W, words.offsets, least)
    return is_short | (letters_T < _PHRASE_LETTERS * least)


def _count_letters(text: pa.LargeStringArray, words: HashedWords) -> np.ndarray:
    """int64 [W]: characters of each word."""
    characters = np.cumsum((np.append(utf8_bytes(text)[0], 0) & 0xC0) != 0x80)
    return characters[words.stops] - characters[words.starts]


def _sum_by_text(offsets: np.ndarray, *columns_W: np.ndarray) -> list[np.ndarray]:
    return [np.diff(np.concatenate([[0], np.cumsum(column)])[offsets]) for column in columns_W]


def _are_short(
    worth_W: np.ndarray, letters_W: np.ndarray, offsets: np.ndarray, least: int
) -> np.ndarray:
    """Bool [T]: texts with too few words, and too few letters if one word is missing."""
    worth_T, letters_T = _sum_by_text(offsets, worth_W, letters_W * (worth_W == WORD))
    is_short = worth_T < WORD * least
    return is_short & ((worth_T < WORD * max(least - 1, 1)) | (letters_T < _LETTERS * least))


def _runs(
    worth_W: np.ndarray, offsets: np.ndarray, wanted: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Finds the shortest runs of words with enough weight; a text with less is one run.

    Args:
      worth_W: int64, weight of each word.
      offsets: int64 [T + 1], where texts begin.
      wanted: minimum weight of a run.

    Returns:
      int64 [n] each: the text, the first word, and the number of words of each run.
    """
    words_T = np.diff(offsets)
    text = np.repeat(np.arange(len(words_T)), words_T)
    place = np.arange(len(text))
    before = np.concatenate([[0], np.cumsum(worth_W)])
    end, stop = np.searchsorted(before, before[:-1] + wanted), offsets[1:][text]
    is_run = (end <= stop) | (place == offsets[text])
    return text[is_run], place[is_run], (np.minimum(end, stop) - place)[is_run]


def _hash_runs(
    word_W: np.ndarray, place: np.ndarray, length: np.ndarray, least: int
) -> tuple[np.ndarray, np.ndarray]:
    """Hashes the first `least` words of runs, and all their words, as `find_hits` does.

    Args:
      word_W: uint64, hash of each word.
      place: int64 [n], first word of each run.
      length: int64 [n], number of words of each run.
      least: number of words of the shortest run.
    """
    whole = np.zeros(len(place), np.uint64)
    prefix = whole
    for step in range(length.max(initial=0)):
        more = step < length
        whole = np.where(more, whole * BASE + word_W[np.where(more, place + step, 0)], whole)
        if step == least - 1:
            prefix = whole
    return prefix, whole
