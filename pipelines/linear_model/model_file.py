"""Reads and writes the files of fastText's supervised models, .bin and .ftz. Pure but for the file.

All numbers are little-endian. A file holds

    magic, version                      int32 each: 793712314, 12 (11 is the same without n-grams of
                                        characters)
    settings                            12 int32 and a float64, see `Settings`
    entries, words, labels              int32 each
    tokens, pruned                      int64 each; pruned is -1 if no bucket was removed
    entry                               its bytes, 0, an int64 count, an int8 kind: word or label
    bucket, row                         int32 each, for each bucket that is left of a pruned model
    is_quantized                        bool
    the input matrix                    a row for each word, and for each bucket
    is_output_quantized                 bool
    the output matrix                   a row for each label

A matrix is rows and columns, int64 each, and float32 values; or, quantized (Jegou et al., "Product
quantization for nearest neighbor search", 2011), a byte for each group of columns of a row, which
names one of 256 centroids, and if norms are apart a byte for each row that names its norm.
"""

import os
import struct
from dataclasses import dataclass

import numpy as np

from textmill.pipelines.runtime.compiled import entry
from textmill.schemas.errors import DataError, UsageError
from textmill.schemas.files import store

LABEL = "__label__"  # what the entries of labels begin with
HIERARCHICAL, SAMPLED, SOFTMAX, ONE_VS_ALL = 1, 2, 3, 4  # losses
_MAGIC, _VERSIONS, _SUPERVISED = 793712314, (11, 12), 3
_HEAD, _SETTINGS, _COUNTS = struct.Struct("<2i"), struct.Struct("<12id"), struct.Struct("<3i2q")
_MATRIX, _QUANTIZED, _GROUPS = struct.Struct("<2q"), struct.Struct("<2qi"), struct.Struct("<4i")
_WORD, _LABEL = 0, 1
_CENTROIDS = 256
_MOST_DIM, _MOST_GRAM, _MOST_BUCKETS = 1 << 16, 100, 1 << 28
_MOST_LABELS, _MOST_ROWS = 1 << 20, 1 << 31
_TAIL = 9  # bytes of an entry after its 0
_NONE = -1


@dataclass(frozen=True)
class Settings:
    """The settings of a model that decide the features of a text, and the form of its scores.

    Attributes:
      dim: columns of both matrices.
      word_ngrams: maximum number of words of an n-gram.
      loss: HIERARCHICAL to ONE_VS_ALL.
      buckets: number of buckets of n-grams.
      minn, maxn: characters of an n-gram; maxn 0 for none.
    """

    dim: int
    word_ngrams: int
    loss: int
    buckets: int
    minn: int = 0
    maxn: int = 0

    @property
    def hashes(self) -> bool:
        """Whether features besides words are used."""
        return self.maxn > 0 or self.word_ngrams > 1


@dataclass(frozen=True)
class Matrix:
    """A matrix as it is stored; `rows_of` decodes it.

    Attributes:
      shape: rows and columns.
      values: float32 [rows, columns] in the file, may be unaligned; codes uint8 [rows, groups] of a
        quantized one.
      centroids: float32 [256 * columns]; empty if the matrix is not quantized.
      group: columns of a group.
      norms: float32 [rows], by which the centroids of a row are multiplied; None for 1.
    """

    shape: tuple[int, int]
    values: np.ndarray
    centroids: np.ndarray
    group: int = 0
    norms: np.ndarray | None = None

    def unscaled(self, start: int, stop: int) -> np.ndarray:
        """Rows before they are multiplied by their norms: float32 [stop - start, columns]."""
        if not self.centroids.size:
            return np.array(self.values[start:stop], np.float32, order="C")
        columns, parts = self.shape[1], []
        for number in range(self.values.shape[1]):
            first = number * self.group
            size = min(self.group, columns - first)
            begin = first * _CENTROIDS
            own = self.centroids[begin : begin + _CENTROIDS * size].reshape(_CENTROIDS, size)
            parts.append(own[self.values[start:stop, number]])
        return np.ascontiguousarray(np.concatenate(parts, axis=1))

    def rows_of(self, start: int, stop: int) -> np.ndarray:
        """Rows: float32 [stop - start, columns]."""
        rows = self.unscaled(start, stop)
        return rows if self.norms is None else rows * self.norms[start:stop, None]


@dataclass(frozen=True)
class ModelFile:
    """A model as it is stored.

    Attributes:
      settings: see `Settings`.
      entries: bytes of all entries, words first: uint8.
      bounds: int64 [entries + 1], where each begins.
      words: number of words.
      counts: int64 [entries].
      pruned: int32 [buckets], the row of each bucket after those of words, -1 without one; None if
        each has its own.
      inputs: the input matrix.
      outputs: the output matrix.
    """

    settings: Settings
    entries: np.ndarray
    bounds: np.ndarray
    words: int
    counts: np.ndarray
    pruned: np.ndarray | None
    inputs: Matrix
    outputs: Matrix

    @property
    def labels(self) -> list[str]:
        """The labels, without __label__."""
        return [
            self.entries[start:stop].tobytes().decode("utf-8", "replace").removeprefix(LABEL)
            for start, stop in zip(
                self.bounds[self.words : -1].tolist(),
                self.bounds[self.words + 1 :].tolist(),
                strict=True,
            )
        ]


def read_model(path: str) -> ModelFile:
    """Reads a model.

    Raises:
      UsageError: there is no such file.
      DataError: it is not a supervised model, or damaged.
    """
    try:
        if store.is_url(path) or not os.path.getsize(path):  # an empty file cannot be mapped
            content = np.frombuffer(store.read(path), np.uint8)
        else:
            content = np.memmap(path, np.uint8, "r")
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"{path}: the model cannot be read ({reason}): give its file") from error
    return _Reader(path, content).read()


class _Reader:
    """The content of a file, and the place up to which it was read."""

    def __init__(self, path: str, content: np.ndarray):
        self._path, self._content, self._place = path, content, 0

    def read(self) -> ModelFile:
        settings = self._settings()
        entries, words, labels, _, pruned_size = self._unpack(_COUNTS)
        if not (0 <= words and 0 < labels <= _MOST_LABELS and entries == words + labels):
            self._fail(f"{entries} entries, {words} words and {labels} labels do not fit")
        bounds, counts, data = self._entries(entries, words)
        pruned = self._pruned(settings, pruned_size)
        is_quantized = self._flag()
        if pruned is not None and not is_quantized:
            self._fail("the buckets are pruned, but the matrix is not quantized")
        inputs = self._matrix(is_quantized)
        outputs = self._matrix(self._flag() and is_quantized)
        hashed = pruned_size if pruned is not None else settings.buckets * settings.hashes
        for name, matrix, least in (
            ("input", inputs, words + hashed),
            ("output", outputs, labels),
        ):
            if matrix.shape[1] != settings.dim or matrix.shape[0] < least:
                self._fail(
                    f"the {name} matrix is {matrix.shape[0]:,} x {matrix.shape[1]:,}, but at least "
                    f"{least:,} x {settings.dim:,} are needed"
                )
        if self._place != len(self._content):
            self._fail(f"{len(self._content) - self._place:,} bytes follow its end")
        return ModelFile(settings, data, bounds, words, counts, pruned, inputs, outputs)

    def _settings(self) -> Settings:
        if len(self._content) < _HEAD.size or self._unpack(_HEAD)[0] != _MAGIC:
            self._fail("it does not begin as a model of fastText does")
        _, version = _HEAD.unpack(self._content[: _HEAD.size].tobytes())
        if version not in _VERSIONS:
            self._fail(f"version {version} is unknown")
        dim, _, _, _, _, ngrams, loss, kind, buckets, minn, maxn, _, _ = self._unpack(_SETTINGS)
        if kind != _SUPERVISED:
            raise DataError(
                f"{self._path}: the model has vectors of words, but no labels: give one of "
                "`fasttext supervised`"
            )
        if version == _VERSIONS[0]:
            maxn = 0
        settings = Settings(dim, ngrams, loss, buckets, minn, max(maxn, 0))
        limits = {
            "dim": (1, _MOST_DIM),
            "word_ngrams": (-_MOST_GRAM, _MOST_GRAM),
            "loss": (HIERARCHICAL, ONE_VS_ALL),
            "minn": (-_MOST_GRAM, _MOST_GRAM),
            "maxn": (0, _MOST_GRAM),
            "buckets": (1 if settings.hashes else 0, _MOST_BUCKETS),
        }
        for name, (least, most) in limits.items():
            if not least <= getattr(settings, name) <= most:
                self._fail(f"{name} is {getattr(settings, name)}, not {least} to {most:,}")
        return settings

    def _entries(self, number: int, words: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where entries begin, their counts, and the bytes of all of them."""
        if number * (_TAIL + 1) > len(self._content) - self._place:
            self._fail("it is cut off")
        stops = np.empty(number, np.int64)
        place = int(find_entries(self._content, self._place, stops))
        if place < 0:
            self._fail("it is cut off")
        starts = np.concatenate([[self._place], stops[:-1] + 1 + _TAIL])
        tails = self._content[stops[:, None] + np.arange(1, 1 + _TAIL)]
        kinds = np.array([_WORD] * words + [_LABEL] * (number - words), np.uint8)
        if (tails[:, -1] != kinds).any():
            self._fail("words and labels are mixed")
        bounds = np.concatenate([[0], np.cumsum(stops - starts)])
        data = np.empty(bounds[-1], np.uint8)
        copy_entries(self._content, starts, bounds, data)
        self._place = place
        counts = np.ascontiguousarray(tails[:, :8]).view("<i8").reshape(-1).astype(np.int64)
        return bounds, counts, data

    def _pruned(self, settings: Settings, size: int) -> np.ndarray | None:
        if size < 0:
            return None
        pairs = self._array("<i4", 2 * size).reshape(size, 2)
        rows = np.full(settings.buckets, _NONE, np.int32)
        if size and not (
            0 <= pairs.min() and pairs[:, 0].max() < len(rows) and pairs[:, 1].max() < size
        ):
            self._fail("a bucket is outside of its matrix")
        rows[pairs[:, 0]] = pairs[:, 1]
        return rows

    def _matrix(self, is_quantized: bool) -> Matrix:
        none = np.zeros(0, np.float32)
        if not is_quantized:
            rows, columns = self._unpack(_MATRIX)
            if not 0 <= rows < _MOST_ROWS or columns < 0:
                self._fail(f"a matrix is {rows} x {columns}")
            values = self._array("<f4", rows * columns).reshape(rows, columns)
            return Matrix((rows, columns), values, none)
        has_norms = self._flag()
        rows, columns, size = self._unpack(_QUANTIZED)
        groups = size // rows if rows > 0 else 0
        if min(rows, columns, groups) < 1 or groups * rows != size or rows >= _MOST_ROWS:
            self._fail(f"a matrix is {rows} x {columns}, with {size} codes")
        codes = self._array("u1", size).reshape(rows, groups)
        centroids, group = self._centroids(columns, groups)
        norms = None
        if has_norms:
            numbers = self._array("u1", rows)
            norms = self._centroids(1, 1)[0][numbers]
        return Matrix((rows, columns), codes, centroids, group, norms)

    def _centroids(self, columns: int, groups: int) -> tuple[np.ndarray, int]:
        dim, number, size, last = self._unpack(_GROUPS)
        if (dim, number) != (columns, groups) or min(size, last) < 1:
            self._fail("its centroids do not fit the matrix")
        if (groups - 1) * size + last != columns or last > size:
            self._fail("its centroids do not fit the matrix")
        return self._array("<f4", dim * _CENTROIDS).astype(np.float32), size

    def _flag(self) -> bool:
        value = int(self._array("u1", 1)[0])
        if value > 1:
            self._fail(f"{value} stands where 0 or 1 should")
        return bool(value)

    def _array(self, dtype: str, number: int) -> np.ndarray:
        stop = self._place + number * np.dtype(dtype).itemsize
        if stop > len(self._content):
            self._fail("it is cut off")
        taken = self._content[self._place : stop].view(dtype)
        self._place = stop
        return taken

    def _unpack(self, form: struct.Struct) -> tuple:
        return form.unpack(self._array("u1", form.size).tobytes())

    def _fail(self, reason: str) -> None:
        raise DataError(
            f"{self._path}: not a complete model of fastText ({reason}): give a .bin or .ftz file "
            "of `fasttext supervised` or train_quality_model"
        )


def write_model(model: ModelFile) -> bytes:
    """The file of a model whose matrices are not quantized."""
    own, kinds = model.settings, [_WORD] * model.words
    kinds += [_LABEL] * (len(model.counts) - model.words)
    parts = [
        _HEAD.pack(_MAGIC, _VERSIONS[-1]),
        _SETTINGS.pack(
            own.dim,
            5,  # a window, which supervised models do not have
            1,
            1,
            5,
            own.word_ngrams,
            own.loss,
            _SUPERVISED,
            own.buckets,
            own.minn,
            own.maxn,
            100,
            0.0,
        ),
        _COUNTS.pack(
            len(kinds),
            model.words,
            len(kinds) - model.words,
            int(model.counts[: model.words].sum()),
            _NONE,
        ),
    ]
    data, bounds = model.entries.tobytes(), model.bounds.tolist()
    for kind, count, start, stop in zip(
        kinds, model.counts.tolist(), bounds[:-1], bounds[1:], strict=True
    ):
        parts.append(data[start:stop] + b"\0" + struct.pack("<qb", count, kind))
    for matrix in (model.inputs, model.outputs):
        values = np.ascontiguousarray(matrix.values, "<f4")
        parts += [b"\0", _MATRIX.pack(*values.shape), values.tobytes()]
    return b"".join(parts)


@entry()
def find_entries(data, place, stops):
    """Finds the 0 that ends the bytes of each entry; returns the place after all, or -1."""
    size = len(data)
    for number in range(len(stops)):
        while place < size and data[place] != 0:
            place += 1
        if place + 10 > size:
            return -1
        stops[number] = place
        place += 10
    return place


@entry()
def copy_entries(data, starts, bounds, out):
    """Copies the bytes of entries, without what follows each."""
    for number in range(len(starts)):
        start, first = starts[number], bounds[number]
        for i in range(bounds[number + 1] - first):
            out[first + i] = data[start + i]
