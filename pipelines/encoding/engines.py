"""Two engines that turn documents into token ids, and what keeps the fast one exact.

`tokenizers` owns the truth and takes every tokenizer. gigatoken is some thirty times as fast and
takes byte-level BPE; it is used for tokenizers of the shapes that were proven equal
(`why_not_fast`), on documents without a code point that the two class differently
(`unicode_guard`), after both gave the same ids for hard strings at load. Pure: numpy and pyarrow.
"""

import os
import resource
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from pipelines.encoding.byte_alphabet import byte_characters, spelt_bytes
from pipelines.encoding.tokenizer_files import failures_as_data_errors
from pipelines.encoding.unicode_guard import holds_disputed, utf8_buffers

if TYPE_CHECKING:
    import tokenizers

_REFERENCE_BATCH_BYTES = 2 << 20  # an Encoding takes about 15 bytes a byte of text
_FAST_BATCH_BYTES = 16 << 20  # how often the fast engine's memory is looked at
_FAST_CACHE_BYTES = 512 << 20
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Ragged:
    """Token ids of documents, one after another.

    Attributes:
      ids: uint32 [tokens].
      offsets: int64 [documents + 1]; document i is ids[offsets[i]:offsets[i + 1]].
    """

    ids: np.ndarray
    offsets: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each document: int64 [documents]."""
        return np.diff(self.offsets)

    @classmethod
    def of(cls, ids: np.ndarray, lengths: np.ndarray | Sequence[int]) -> "Ragged":
        """From lengths: `of([7, 8, 9], [1, 0, 2])` has offsets [0, 1, 1, 3]."""
        return cls(ids, np.append(0, np.cumsum(lengths)).astype(np.int64))

    @classmethod
    def joined(cls, parts: "Sequence[Ragged]") -> "Ragged":
        """The documents of all parts, in order."""
        if len(parts) == 1:
            return parts[0]
        ids = [part.ids for part in parts] or [np.zeros(0, np.uint32)]
        lengths = [part.lengths for part in parts] or [np.zeros(0, np.int64)]
        return cls.of(np.concatenate(ids), np.concatenate(lengths))

    def take(self, order: np.ndarray) -> "Ragged":
        """The documents whose numbers `order` lists, in that order."""
        lengths = self.lengths[order]
        taken = np.append(0, np.cumsum(lengths))
        shift = np.repeat(self.offsets[:-1][order] - taken[:-1], lengths)
        return Ragged(self.ids[shift + np.arange(taken[-1])], taken)


class Engine(Protocol):
    """Turns text into ids as `tokenizers.Tokenizer.encode(text, add_special_tokens=False)`."""

    name: str

    def encode(self, text: pa.LargeStringArray) -> tuple[Ragged, int]:
        """Ids, and how many documents went to the reference engine because of the guard."""
        ...


class ReferenceEngine:
    """`tokenizers` itself, on all cores, in batches that bound its memory.

    A document is never cut: one of 3.5 MB without a separator takes 1 to 3 s with BPE or WordPiece.
    """

    name = "tokenizers"

    def __init__(self, tokenizer: "tokenizers.Tokenizer"):
        """Encodes with `tokenizer` as it is, one document at a time."""
        self._tokenizer = tokenizer

    def encode(self, text: pa.LargeStringArray) -> tuple[Ragged, int]:
        """See `Engine`.

        Raises:
          DataError: the tokenizer failed on a document.
        """
        parts = []
        for batch in _batches(text, _REFERENCE_BATCH_BYTES):
            ids = encode_each(self._tokenizer, batch.to_pylist())
            lengths = [len(document) for document in ids]
            flat = np.fromiter((i for document in ids for i in document), np.uint32, sum(lengths))
            parts.append(Ragged.of(flat, lengths))
        return Ragged.joined(parts), 0


class FastEngine:
    """gigatoken, guarded.

    Its speed comes from a cache of every word met, which never shrinks (random words: 80 bytes
    each, gigabytes in the end). When the process has grown by 512 MiB the engine is made anew,
    which takes 0.1 s.
    """

    name = "gigatoken"

    def __init__(self, json: bytes, reference: ReferenceEngine, *, parallel: bool = False):
        """Loads gigatoken and awkward, the form in which it takes and gives arrays (0.7 s)."""
        import awkward
        import gigatoken

        self._awkward = awkward
        self._load = gigatoken.Tokenizer.from_json
        self._json = json
        self._reference = reference
        self._parallel = parallel
        self._renew()

    def encode(self, text: pa.LargeStringArray) -> tuple[Ragged, int]:
        """Encodes documents, as every `Engine` does."""
        parts, guarded = [], 0
        for batch in _batches(text, _FAST_BATCH_BYTES):
            disputed = holds_disputed(batch)
            if disputed.any():
                guarded += int(disputed.sum())
                parts.append(self._encode_both(batch, disputed))
            else:
                parts.append(self.encode_unguarded(batch))
            if _resident_bytes() - self._resident_at_start > _FAST_CACHE_BYTES:
                self._renew()
        return Ragged.joined(parts), guarded

    def encode_unguarded(self, text: pa.LargeStringArray) -> Ragged:
        """What gigatoken says, right or wrong. Arrow's memory is handed over, not copied."""
        contents, index = self._awkward.contents, self._awkward.index
        offsets, data = utf8_buffers(text)
        characters = contents.NumpyArray(data, parameters={"__array__": "char"})
        strings = contents.ListOffsetArray(
            index.Index64(offsets), characters, parameters={"__array__": "string"}
        )
        array = self._awkward.Array(strings)
        with failures_as_data_errors("gigatoken failed", "please report it, with the tokenizer"):
            layout: Any = self._engine.encode_batch(array, parallel=self._parallel).layout
        return Ragged(np.asarray(layout.content.data), np.asarray(layout.offsets.data))

    def _encode_both(self, text: pa.LargeStringArray, disputed: np.ndarray) -> Ragged:
        plain = self.encode_unguarded(text.filter(pa.array(~disputed)))
        exact, _ = self._reference.encode(text.filter(pa.array(disputed)))
        order = np.empty(len(text), np.int64)
        order[~disputed] = np.arange(len(plain.lengths))
        order[disputed] = len(plain.lengths) + np.arange(len(exact.lengths))
        return Ragged.joined([plain, exact]).take(order)

    def _renew(self) -> None:
        self._engine = self._load(self._json)
        self._resident_at_start = _resident_bytes()


def encode_each(tokenizer: "tokenizers.Tokenizer", texts: list[str]) -> list[list[int]]:
    """Ids by `tokenizers`, without the special tokens that its post-processor adds.

    Raises:
      DataError: it failed. A runaway pattern in a tokenizer.json ends here: the regular expression
        engine gives up after ten million steps, with a Rust panic.
    """
    with failures_as_data_errors(
        f"the tokenizer failed on one of {len(texts)} documents, from {texts[:1]!r:.60} on",
        "its tokenizer.json holds a pattern or a vocabulary that cannot encode this text: use "
        "another tokenizer, or leave the text out",
    ):
        encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    return [encoding.ids for encoding in encodings]


def why_not_fast(config: Mapping[str, Any]) -> str | None:
    """Why the fast engine may not be used for a tokenizer.json, or None if it may.

    `config` must be as `tokenizers` writes it (ids of added tokens resolved, merges distinct). Each
    condition was found by fuzzing or by reading, and most of them with a counterexample: see
    tests/pipelines/encoding/test_engines.py.
    """
    model, splitter = config["model"], config["pre_tokenizer"] or {}
    if model["type"] != "BPE":
        return f"its model is {model['type']}, not BPE"
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        if model.get(option):
            return f"its model sets {option}"
    if config["normalizer"] is not None:
        return "it has a normalizer"
    if splitter.get("type") != "ByteLevel" or not splitter.get("use_regex", True):
        return "it does not split text as GPT-2 does"
    return _odd_added_tokens(config["added_tokens"]) or _odd_vocabulary(model["vocab"])


def _odd_added_tokens(added_tokens: Sequence[Mapping[str, Any]]) -> str | None:
    for token in added_tokens:
        if token["single_word"]:
            return f"added token {token['content']!r} is a single word"
        if any(character.isspace() for character in token["content"]):
            return f"added token {token['content']!r} holds white space"
    if len({token["normalized"] for token in added_tokens}) > 1:
        return "some of its added tokens are normalized and some are not"
    return None


def _odd_vocabulary(vocab: Mapping[str, int]) -> str | None:
    # A token with other characters stands for itself; it must not meet one that is written in them.
    spelt = set(spelt_bytes(vocab))
    if not vocab.keys() >= set(byte_characters()):
        return "its vocabulary lacks single bytes"
    if len(spelt) < len(vocab) or len(set(vocab.values())) < len(vocab):
        return "its vocabulary holds a token twice"
    return None


def _batches(text: pa.LargeStringArray, limit: int) -> Iterator[pa.LargeStringArray]:
    """Slices of about `limit` bytes, of at least one document each."""
    offsets, _ = utf8_buffers(text)
    start = 0
    while start < len(text):
        stop = int(np.searchsorted(offsets, offsets[start] + limit, side="right")) - 1
        stop = max(stop, start + 1)
        yield text.slice(start, stop - start)
        start = stop


def _resident_bytes() -> int:
    """Memory of this process now; where that cannot be had cheaply, the most it ever was."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
