"""The choice of a backend for a tokenizer, and gigatoken, a fast one.

`tokenizers` is the reference and takes every tokenizer. gigatoken is about thirty times as fast and
takes tokenizers like GPT-2's; the word table is nearly as fast and takes those of
`tokenizer_types.py`. A fast backend is used only if it gives the ids of `tokenizers` for hard
strings when it loads.
"""

import logging
import os
import resource
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
import pyarrow as pa

from textmill.pipelines.encoding.character_sets import CODE_POINTS
from textmill.pipelines.encoding.patterns import byte_characters, spelt_bytes
from textmill.pipelines.encoding.reference import (
    Backend,
    ReferenceBackend,
    Tokenizer,
    encode_each,
    failures_as_data_errors,
)
from textmill.pipelines.rows.ragged import Ragged
from textmill.pipelines.rows.text_bytes import find_characters, slices, utf8_bytes
from textmill.schemas.commands.entry import import_later
from textmill.schemas.errors import DataError

# It imports numba, which a process that only inspects a tokenizer does not need.
_make_backend = import_later("textmill.pipelines.encoding.tokenizer_types:make_backend")

_log = logging.getLogger(__name__)
_log.setLevel(logging.WARNING)  # the root level is above warnings while Beam runs
# These never change: every dataset records their ids, and `verify` rejects one with other texts.
GOLDEN_TEXTS = (
    "Hello, world! It's 2024, isn't it?",
    "  two  spaces,\n\na tab\tand 3.14",
    "Blåbærsyltetøy på Ærø koster 17½ kr.",
    "Привет, мир: 中文字符 और हिन्दी 🙂",
)
_HARD_TEXTS = (
    "",
    " ",
    "   trailing   ",
    "\r\n\t\u00a0\u3000\u2028x\u0085\u200b\ufeff",
    "they'LL we'll 'tis ''s 'Ve I'm'd",
    "e\u0301\u0302 ǅ ʰ ² ½ Ⅷ ١٢٣ ก้ 한국어 \U0001f469\u200d\U0001f469 \ud7ff\ue000\uffff\U0010ffff",
    "a\0b _x__ --...!? 1a2b3c " + "x" * 300 + " " * 70 + "'s" * 40,
    "<s> <mask></s><unk>  <pad>\n<mask> [MASK] <|endoftext|>",
)
_FAST_BATCH_BYTES = 16 << 20  # gigatoken's memory is checked after each batch
_FAST_CACHE_BYTES = 512 << 20
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# GPT-2's pattern splits text by letters, numbers, white space and the rest. gigatoken has a newer
# Unicode than `tokenizers` and classifies these 4,657 code points differently.
COMPARED = {"gigatoken": "0.10.0", "tokenizers": "0.23.3"}
DISPUTED_RANGES = (
    (0x88F, 0x88F),
    (0xC5C, 0xC5C),
    (0xCDC, 0xCDC),
    (0xA7CE, 0xA7CF),
    (0xA7D2, 0xA7D2),
    (0xA7D4, 0xA7D4),
    (0xA7F1, 0xA7F1),
    (0x10940, 0x10959),
    (0x10EC5, 0x10EC7),
    (0x11DB0, 0x11DDB),
    (0x11DE0, 0x11DE9),
    (0x16EA0, 0x16EB8),
    (0x16EBB, 0x16ED3),
    (0x16FF2, 0x16FF6),
    (0x187F8, 0x187FF),
    (0x18D09, 0x18D1E),
    (0x18D80, 0x18DF2),
    (0x1E6C0, 0x1E6DE),
    (0x1E6E0, 0x1E6E2),
    (0x1E6E4, 0x1E6E5),
    (0x1E6E7, 0x1E6ED),
    (0x1E6F0, 0x1E6F4),
    (0x1E6FE, 0x1E6FF),
    (0x2B73A, 0x2B73F),
    (0x2CEA2, 0x2CEAD),
    (0x323B0, 0x33479),
)


class FastBackend:
    """gigatoken, and `tokenizers` for documents with a character that the two classify differently.

    gigatoken caches every word it has met, 80 bytes for a random one, and never shrinks the cache.
    When the process has grown by 512 MiB, gigatoken is loaded again, which takes 0.1 s.
    """

    name = "gigatoken"

    def __init__(self, json: bytes, reference: ReferenceBackend):
        """Loads gigatoken and awkward, whose arrays it takes and returns (0.2 s).

        Args:
          json: the bytes of tokenizer.json.
          reference: encodes the documents with disputed characters.
        """
        # Imported here: `tokenizers` replaces missing ones; inspecting a tokenizer needs none.
        import awkward
        import gigatoken

        self._awkward, self._load = awkward, gigatoken.Tokenizer.from_json
        self._json = json
        self._reference = reference
        self._renew()

    def encode(self, text: pa.LargeStringArray) -> Ragged:
        """Encodes documents, as every `Backend` does."""
        parts = []
        for batch in slices(text, _FAST_BATCH_BYTES):
            disputed = find_characters(batch, disputed_characters())
            parts.append(
                self._encode_both(batch, disputed)
                if disputed.any()
                else self.encode_unguarded(batch)
            )
            if _resident_bytes() - self._resident_at_start > _FAST_CACHE_BYTES:
                self._renew()
        return Ragged.joined(parts)

    def encode_unguarded(self, text: pa.LargeStringArray) -> Ragged:
        """Encodes with gigatoken alone, right or wrong, without copying Arrow's memory."""
        contents, index = self._awkward.contents, self._awkward.index
        data, offsets = utf8_bytes(text)
        characters = contents.NumpyArray(data, parameters={"__array__": "char"})
        strings = contents.ListOffsetArray(
            index.Index64(offsets), characters, parameters={"__array__": "string"}
        )
        array = self._awkward.Array(strings)
        with failures_as_data_errors("gigatoken failed", "please report it, with the tokenizer"):
            layout: Any = self._backend.encode_batch(array, parallel=False).layout
        return Ragged(np.asarray(layout.content.data), np.asarray(layout.offsets.data))

    def _encode_both(self, text: pa.LargeStringArray, disputed: np.ndarray) -> Ragged:
        plain = self.encode_unguarded(text.filter(pa.array(~disputed)))
        exact = self._reference.encode(text.filter(pa.array(disputed)))
        order = np.empty(len(text), np.int64)
        order[~disputed] = np.arange(len(plain.lengths))
        order[disputed] = len(plain.lengths) + np.arange(len(exact.lengths))
        return Ragged.joined([plain, exact]).take(order)

    def _renew(self) -> None:
        self._backend = self._load(self._json)
        self._resident_at_start = _resident_bytes()


@cache
def disputed_characters() -> np.ndarray:
    """The characters that gigatoken and `tokenizers` classify differently: bool[code points]."""
    disputed = np.zeros(CODE_POINTS, bool)
    for first, last in DISPUTED_RANGES:
        disputed[first : last + 1] = True
    return disputed


def why_not_gigatoken(config: Mapping[str, Any]) -> str | None:
    """Why gigatoken may not be used for a tokenizer.json, or None if it may.

    `config` must be as `tokenizers` writes it (ids of added tokens resolved, merges distinct). Most
    conditions have a counterexample in tests/pipelines/encoding/test_backends.py.
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
    if any(version(name) != compared for name, compared in COMPARED.items()):
        return "other versions of gigatoken and tokenizers are installed than were compared"
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
    # A token with characters outside the byte alphabet stands for itself, and must not equal the
    # bytes of another token.
    spelt = set(spelt_bytes(vocab))
    if not vocab.keys() >= set(byte_characters()):
        return "its vocabulary lacks single bytes"
    if len(spelt) < len(vocab) or len(set(vocab.values())) < len(vocab):
        return "its vocabulary holds a token twice"
    return None


def choose_backend(
    tokenizer: Tokenizer, config: Mapping[str, Any], place: str, *, is_kept: bool = False
) -> tuple[Backend, str]:
    """Chooses a fast backend if one takes the tokenizer and gives the ids of `tokenizers` at load.

    Args:
      tokenizer: a tokenizer without truncation and padding.
      config: its tokenizer.json, as `tokenizers` writes it.
      place: the name of the tokenizer in the warning that ids differ.
      is_kept: whether to choose among the backends that can be kept on disk.

    Returns:
      The backend, and why it is `tokenizers` ("" for a fast backend).
    """
    reference = ReferenceBackend(tokenizer)
    try:
        with failures_as_data_errors("it cannot be loaded", "`tokenizers` needs none of it"):
            if not is_kept and why_not_gigatoken(config) is None:
                backend: Any = FastBackend(tokenizer.to_str().encode(), reference)
            else:
                backend = _make_backend(config, tokenizer)
            if isinstance(backend, str):
                return reference, backend
            wrong = _find_difference(backend, tokenizer)
        if wrong is None:
            return backend, ""
    except DataError as error:
        wrong = str(error)
    _log.warning(
        "The fast backend is not used for %s: %s. `tokenizers` encodes instead: ids are exact, at "
        "about a thirtieth of the speed. Please report it.",
        place,
        wrong,
    )
    return reference, wrong


def _find_difference(fast: Backend, tokenizer: Tokenizer) -> str | None:
    """The first hard string for which the backends differ; some contain the added tokens."""
    texts = [*GOLDEN_TEXTS, *_HARD_TEXTS, *_texts_with_added_tokens(tokenizer)]
    actual = fast.encode(pa.array(texts, pa.large_string()))
    for text, ids, expected in zip(
        texts,
        np.split(actual.values, actual.offsets[1:-1]),
        encode_each(tokenizer, texts),
        strict=True,
    ):
        if ids.tolist() != expected:
            return f"it encodes {text!r} as {ids.tolist()}, `tokenizers` as {expected}"
    return None


def _texts_with_added_tokens(tokenizer: Tokenizer) -> Iterator[str]:
    added = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
    for token in added[:64]:
        yield f"{token}a{token} {token}\n {token}{token[:-1]}x{token[1:]}  {token} "
    yield "".join(added[:64])
    yield " ".join(added[:64])


def _resident_bytes() -> int:
    """The memory of this process; its peak where the system does not provide the current value."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
