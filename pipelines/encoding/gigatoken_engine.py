"""gigatoken: encodes pieces of text that one of `SCHEMES` cuts into words.

It is two to four times as fast as the word table, of the same plan, which takes the pieces that
contain a character that gigatoken and `tokenizers` treat differently: `GUARDED`. The plan handles
added tokens, normalizers and prefixes, so gigatoken sees none of them.
"""

import json
import os
import resource
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property, partial
from importlib.metadata import version
from typing import Any

import numpy as np
import pyarrow as pa

from textmill.pipelines.encoding.character_sets import CODE_POINTS
from textmill.pipelines.encoding.patterns import (
    GPT2,
    PATTERNS,
    byte_characters,
    pattern_of,
    spelt_bytes,
)
from textmill.pipelines.encoding.reference import GIGATOKEN, failures_as_data_errors
from textmill.pipelines.encoding.word_table import EncodingPlan, PieceBackend, WordTable
from textmill.pipelines.rows.ragged import Ragged
from textmill.pipelines.rows.text_bytes import find_characters

_CACHE_BYTES = 512 << 20
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
COMPARED = {"gigatoken": "0.10.0", "tokenizers": "0.23.3"}
_QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DEEPSEEK = (
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?"
    "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
)
# By name the patterns, as gigatoken recognizes them.
SCHEMES = {
    GPT2: (r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",),
    "llama3": (PATTERNS["llama3"],),
    "qwen2": (PATTERNS["qwen2"],),
    "qwen35": (_QWEN35,),
    "o200k": (PATTERNS["o200k"],),
    "deepseek": _DEEPSEEK,
}
# Patterns that cut alike.
_ALIKE = {
    (PATTERNS[GPT2],): GPT2,
    (PATTERNS["cl100k"],): "llama3",
    (pattern_of("digits:1"),): "qwen2",
}
# gigatoken has a newer Unicode than `tokenizers`: some scheme splits text with one of these code
# points otherwise. `python -m tests.tools.guards` derives them.
GUARDED = (
    "88F C5C CDC 1ACF-1ADD 1AE0-1AEB 20C1 2B96 A7CE-A7CF A7D2 A7D4 A7F1 FBC3-FBD2 FD90-FD91 "
    "FDC8-FDCE 10940-10959 10EC5-10EC7 10ED0-10ED8 10EFA-10EFB 11B60-11B67 11DB0-11DDB "
    "11DE0-11DE9 16EA0-16EB8 16EBB-16ED3 16FF2-16FF6 187F8-187FF 18D09-18D1E 18D80-18DF2 "
    "1CCFA-1CCFC 1CEBA-1CED0 1CEE0-1CEF0 1E6C0-1E6DE 1E6E0-1E6F5 1E6FE-1E6FF 1F6D8 "
    "1F777-1F77A 1F8D0-1F8D8 1FA54-1FA57 1FA8A 1FA8E 1FAC8 1FACD 1FAEA 1FAEF 1FBFA "
    "2B73A-2B73F 2CEA2-2CEAD 323B0-33479"
)


def with_gigatoken(backend: PieceBackend, tokenizer_json: bytes) -> PieceBackend:
    """Encodes by gigatoken, which it loads when there is text, and by word tables.

    Args:
      backend: encodes by word tables; `why_not_gigatoken` has no reason against its plan.
      tokenizer_json: the tokenizer.json as `tokenizers` writes it.
    """
    _, model = tokenizer_json.split(b',"model":', 1)  # quotes within strings are \"
    steps = json.dumps(pre_tokenizer_of(scheme_of(backend.plan.patterns)))
    data = f'{{"version":"1.0","pre_tokenizer":{steps},"model":'.encode() + model
    return PieceBackend(
        GIGATOKEN, backend.plan, lambda plan: Gigatoken(data, partial(WordTable, plan))
    )


class Gigatoken:
    """gigatoken, and a word table for pieces with guarded characters.

    gigatoken caches every word it has met, 80 bytes for a random one, and never shrinks the cache.
    When the process has grown by 512 MiB, gigatoken is loaded again.
    """

    batch_bytes = 32 << 20  # its memory is checked after each batch

    def __init__(self, data: bytes, make_table: Callable[[], WordTable]):
        """Loads gigatoken and awkward, whose arrays it takes and returns (0.2 s).

        Args:
          data: a tokenizer.json of byte-level BPE without added tokens.
          make_table: called for the first guarded character.
        """
        # Imported here: `tokenizers` replaces missing ones; inspecting a tokenizer needs none.
        import awkward
        import gigatoken

        self._awkward, self._load = awkward, gigatoken.Tokenizer.from_json
        self._data, self._make_table = data, make_table
        self._renew()

    def encode(self, data: np.ndarray, offsets: np.ndarray) -> Ragged:
        """See `PieceEncoder`."""
        buffers = pa.py_buffer(offsets), pa.py_buffer(data)
        text = pa.LargeStringArray.from_buffers(len(offsets) - 1, *buffers)
        guarded = find_characters(text, guarded_characters())
        ids = self.encode_unguarded(data, offsets)
        if not guarded.any():
            return ids
        exact = self._table.encode(*Ragged(data, offsets).take(np.flatnonzero(guarded)))
        order = np.arange(len(guarded))
        order[guarded] = len(guarded) + np.arange(guarded.sum())
        return Ragged.joined([ids, exact]).take(order)

    @cached_property
    def _table(self) -> WordTable:
        return self._make_table()

    def encode_unguarded(self, data: np.ndarray, offsets: np.ndarray) -> Ragged:
        """Encodes with gigatoken alone, right or wrong, without copying the text."""
        if len(offsets) == 1:
            return Ragged(np.zeros(0, np.uint32), np.zeros(1, np.int64))
        contents, index = self._awkward.contents, self._awkward.index
        characters = contents.NumpyArray(data, parameters={"__array__": "char"})
        strings = contents.ListOffsetArray(
            index.Index64(offsets), characters, parameters={"__array__": "string"}
        )
        array = self._awkward.Array(strings)
        with failures_as_data_errors("gigatoken failed", "please report it, with the tokenizer"):
            layout: Any = self._backend.encode_batch(array, parallel=False).layout
        if _resident_bytes() - self._resident_at_start > _CACHE_BYTES:
            self._renew()
        return Ragged(np.asarray(layout.content.data), np.asarray(layout.offsets.data))

    def _renew(self) -> None:
        self._backend = self._load(self._data)
        self._resident_at_start = _resident_bytes()


@cache
def guarded_characters() -> np.ndarray:
    """The guarded characters: bool[code points]."""
    guarded = np.zeros(CODE_POINTS, bool)
    for part in GUARDED.split():
        first, _, last = part.partition("-")
        guarded[int(first, 16) : int(last or first, 16) + 1] = True
    return guarded


def scheme_of(patterns: Sequence[str]) -> str:
    """The name of the scheme that cuts as some patterns do; "" if there is none."""
    return _names().get(_spelt(patterns), "")


@cache
def _names() -> dict[tuple[str, ...], str]:
    return {_spelt(patterns): name for name, patterns in SCHEMES.items()} | _ALIKE


def _spelt(patterns: Sequence[str]) -> tuple[str, ...]:
    r"""The patterns with line ends and quotes spelt in one way: `\r`, `"`."""
    ends = (p.replace("\r", r"\r").replace("\n", r"\n").replace(r"\"", '"') for p in patterns)
    return tuple(ends)


def pre_tokenizer_of(scheme: str) -> Mapping[str, Any]:
    """A scheme as the pre-tokenizer of a tokenizer.json."""
    splits = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in SCHEMES[scheme]
    ]
    last = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {"type": "Sequence", "pretokenizers": [*splits, last | {"use_regex": False}]}


def why_not_gigatoken(config: Mapping[str, Any], plan: EncodingPlan) -> str | None:
    """Why gigatoken may not be used for a tokenizer.json, or None if it may.

    Args:
      config: as `tokenizers` writes it: merges are distinct.
      plan: the tokenizer's.
    """
    if not scheme_of(plan.patterns):
        return "it does not split text in a way that gigatoken has"
    if any(version(name) != compared for name, compared in COMPARED.items()):
        return "other versions of gigatoken and tokenizers are installed than were compared"
    model = config["model"]
    if not {*"".join(model["vocab"])} <= {*byte_characters()}:
        # A token with characters outside the byte alphabet stands for itself, and must not equal
        # the bytes of another token or of a word.
        distinct = {*spelt_bytes(model["vocab"])}
        if len(distinct) < len(model["vocab"]) or model.get("ignore_merges"):
            return "its vocabulary holds tokens that are not written as bytes"
    return None


def _resident_bytes() -> int:
    """The memory of this process; its peak where the system does not provide the current value."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
