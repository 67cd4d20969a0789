"""Small models in the form of fastText, with random numbers, for tests."""

import struct
from typing import Any

import numpy as np

WORDS = ("</s>", "the", "a", "film", "er", "på", "日本", "good", "bad", "</s", "__lab", "!")
LABELS = ("__label__good", "__label__other", "__label__ø", "__label__d", "__label__e")
VOCABULARY = [*WORDS, "filmen", "ikke", "é", "x"]


def dense(rng: np.random.Generator, rows: int, columns: int, scale: float = 1.0) -> bytes:
    """A matrix that is not quantized."""
    values = (rng.normal(size=(rows, columns)) * scale).astype("<f4")
    return struct.pack("<2q", rows, columns) + values.tobytes()


def quantized(
    rng: np.random.Generator, rows: int, columns: int, group: int, *, norms: bool
) -> bytes:
    """A quantized matrix, whose last group may be smaller."""
    groups = -(-columns // group)
    codes = rng.integers(0, 256, rows * groups).astype(np.uint8)
    last = columns - (groups - 1) * group
    content = struct.pack("<?2qi", norms, rows, columns, len(codes)) + codes.tobytes()
    content += struct.pack("<4i", columns, groups, group, last)
    content += rng.normal(size=columns * 256).astype("<f4").tobytes()
    if norms:
        content += rng.integers(0, 256, rows).astype(np.uint8).tobytes()
        content += struct.pack("<4i", 1, 1, 1, 1)
        content += rng.uniform(0.5, 2, 256).astype("<f4").tobytes()
    return content


def model_bytes(
    seed: int = 1,
    *,
    dim: int = 7,
    ngrams: int = 2,
    loss: int = 3,
    buckets: int = 50,
    minn: int = 0,
    maxn: int = 0,
    labels: int = 2,
    eos: bool = True,
    group: int = 0,
    norms: bool = False,
    quantized_output: bool = False,
    pruned: int = -1,
    version: int = 12,
    kind: int = 3,
    scale: float = 1.0,
) -> bytes:
    """A model with random numbers; `group` above 0 quantizes it."""
    rng = np.random.default_rng(seed)
    words = VOCABULARY if eos else VOCABULARY[1:]
    content = struct.pack("<2i", 793712314, version)
    settings = (dim, 5, 1, 1, 5, ngrams, loss, kind, buckets, minn, maxn, 100)
    content += struct.pack("<12id", *settings, 1e-4)
    entries = [(word, 0) for word in words] + [(label, 1) for label in LABELS[:labels]]
    content += struct.pack("<3i2q", len(entries), len(words), labels, 100, pruned)
    for number, (entry, of) in enumerate(entries):
        content += entry.encode() + b"\0" + struct.pack("<qb", 90 - number * number // 4, of)
    if pruned >= 0:
        chosen = rng.choice(buckets, pruned, replace=False).tolist()
        pairs: list[Any] = [part for row, bucket in enumerate(chosen) for part in (bucket, row)]
        content += struct.pack(f"<{len(pairs)}i", *pairs)
    hashed = pruned if pruned >= 0 else buckets
    rows = len(words) + hashed
    content += bytes([group > 0])
    content += (
        quantized(rng, rows, dim, group, norms=norms) if group else dense(rng, rows, dim, scale)
    )
    content += bytes([quantized_output])
    if quantized_output:
        return content + quantized(rng, labels, dim, group, norms=norms)
    return content + dense(rng, labels, dim)
