"""Derives the characters that gigatoken and `tokenizers` split differently, scheme by scheme.

    python -m tests.tools.guards        # prints each scheme's ranges, and all of them

A small byte-level tokenizer merges the last byte of a neighbour with the first of a character, and
the other way round. So the ids show between which characters a scheme splits, and a probe of one
character among neighbours of each kind shows how the scheme classifies it.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer

from textmill.pipelines.encoding.gigatoken_engine import SCHEMES, Gigatoken, pre_tokenizer_of
from textmill.pipelines.encoding.patterns import byte_characters
from textmill.pipelines.encoding.reference import encode_each
from textmill.pipelines.rows.text_bytes import utf8_bytes

# The character among neighbours of each kind; it joins those of its own. Then the contractions,
# whose letters match regardless of case.
_PROBES = (
    *("a?A?1?!?\n?\t? ? a?\n", "A?a", "??1", "!??\n", "/?/", " ??", "1?1?11", " ?1", "A??aA"),
    *("a'?x", "a'?lx", "a'?ex", "a'l?x", "a'r?x", "a'v?x"),
)
_ASSIGNED = 0x33500  # code points from here on are unassigned or private, but for these
_LATER = (range(0xE0000, 0xE0200), (0x3FFFF, 0x40000, 0xEFFFF, 0xF0000, 0x10FFFF))
_POINTS = 4096  # tried at once


def probing_config(pre_tokenizer: Mapping[str, Any]) -> dict:
    """A tokenizer.json whose merges join the characters of the probes with each other."""
    characters = byte_characters()
    vocabulary = {character: byte for byte, character in enumerate(characters)}
    outer = sorted({byte for probe in _PROBES for byte in probe.encode()})
    merges = [
        [characters[left], characters[right]]
        for left in range(256)
        for right in range(256)
        if (left in outer and (right in outer or right > 0xC1)) or (right in outer and left > 0x7F)
    ]
    vocabulary |= {left + right: 256 + i for i, (left, right) in enumerate(merges)}
    model = {"type": "BPE", "vocab": vocabulary, "merges": merges}
    return {"version": "1.0", "pre_tokenizer": pre_tokenizer, "model": model, "added_tokens": []}


def different_points(scheme: str, points: Iterable[int] | None = None) -> list[int]:
    """The code points that gigatoken splits otherwise than `tokenizers` in some probe."""
    if points is None:
        points = [*range(0x80, 0xD800), *range(0xE000, _ASSIGNED), *_LATER[0], *_LATER[1]]
    points = np.fromiter(points, np.int64)
    data = json.dumps(probing_config(pre_tokenizer_of(scheme))).encode()
    reference, fast = Tokenizer.from_buffer(data), Gigatoken(data, pytest.fail)
    found: list[int] = []
    for start in range(0, len(points), _POINTS):
        part = points[start : start + _POINTS].tolist()
        texts = ["\x00".join(_PROBES).replace("?", chr(point)) for point in part]
        ids = fast.encode_unguarded(*utf8_bytes(pa.array(texts, pa.large_string())))
        ours = np.split(ids.values, ids.offsets[1:-1])
        theirs = encode_each(reference, texts)
        found += [p for p, a, b in zip(part, ours, theirs, strict=True) if a.tolist() != b]
    return found


def ranges_of(points: Iterable[int]) -> str:
    """Code points as `GUARDED` has them: "88F A7CE-A7CF"."""
    found: list[list[int]] = []
    for point in sorted(points):
        if found and found[-1][1] == point - 1:
            found[-1][1] = point
        else:
            found.append([point, point])
    return " ".join(f"{a:X}" if a == b else f"{a:X}-{b:X}" for a, b in found)


def main() -> None:
    """Prints the code points of each scheme, and of all."""
    everything: set[int] = set()
    for scheme in SCHEMES:
        points = different_points(scheme)
        everything |= {*points}
        print(f"{scheme}, {len(points):,}: {ranges_of(points)}", flush=True)
    print(f"all, {len(everything):,}: {ranges_of(everything)}")


if __name__ == "__main__":
    main()
