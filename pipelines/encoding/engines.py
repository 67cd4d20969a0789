"""Two engines that turn documents into token ids, and what keeps the fast one exact.

`tokenizers` owns the truth and takes every tokenizer. gigatoken is some thirty times as fast and
takes byte-level BPE; `engine_choice.py` says which tokenizers it is used for, and which documents
are left to the reference even so. Pure: numpy and pyarrow.
"""

import os
import resource
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from pipelines.encoding.tokenizer_files import failures_as_data_errors
from pipelines.encoding.unicode_guard import holds_disputed
from pipelines.rows.ragged import Ragged
from pipelines.rows.text_bytes import slices, utf8_bytes

if TYPE_CHECKING:
    import tokenizers

_REFERENCE_BATCH_BYTES = 2 << 20  # an Encoding takes about 15 bytes a byte of text
_FAST_BATCH_BYTES = 16 << 20  # how often the fast engine's memory is looked at
_FAST_CACHE_BYTES = 512 << 20
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
Guard = Callable[[pa.LargeStringArray], np.ndarray]  # documents -> bool, which to hold back


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
        for batch in slices(text, _REFERENCE_BATCH_BYTES):
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

    def __init__(
        self,
        json: bytes,
        reference: ReferenceEngine,
        guard: Guard = holds_disputed,
        *,
        parallel: bool = False,
    ):
        """Loads gigatoken and awkward, the form in which it takes and gives arrays (0.7 s).

        Args:
          json: of the tokenizer.
          reference: encodes the documents that the guard holds back.
          guard: says which these are.
          parallel: whether to use all cores.
        """
        # Where one is missing, `tokenizers` serves; and awkward takes 0.3 s.
        import awkward
        import gigatoken

        self._awkward = awkward
        self._load = gigatoken.Tokenizer.from_json
        self._json = json
        self._reference = reference
        self._guard = guard
        self._parallel = parallel
        self._renew()

    def encode(self, text: pa.LargeStringArray) -> tuple[Ragged, int]:
        """Encodes documents, as every `Engine` does."""
        parts, guarded = [], 0
        for batch in slices(text, _FAST_BATCH_BYTES):
            disputed = self._guard(batch)
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
        data, offsets = utf8_bytes(text)
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


def _resident_bytes() -> int:
    """Memory of this process now; where that cannot be had cheaply, the most it ever was."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
