"""Scores of texts by a linear model, equal to fastText's own. Pure.

The mean of the rows of a text's features, times the output matrix, gives the score of each label
(Joulin et al., "Bag of tricks for efficient text classification", 2016).

If there are fewer labels than columns, rows are multiplied by the output matrix when the model is
loaded: scores then need as many numbers a feature as there are labels. Sums are in float64 there,
and in fastText's order and float32 elsewhere. All is computed in a fixed order by operations that
IEEE 754 rounds exactly, so scores have the same bits on every machine.

Legend: D documents, K labels, W columns of rows.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from textmill.pipelines.linear_model.features import (
    Vocabulary,
    find_end,
    list_features,
    most_features,
)
from textmill.pipelines.linear_model.model_file import (
    HIERARCHICAL,
    SOFTMAX,
    ModelFile,
    read_model,
)
from textmill.pipelines.rows.text_bytes import utf8_bytes
from textmill.pipelines.runtime.compiled import entry, inner
from textmill.schemas.errors import DataError
from textmill.schemas.files import store

COLUMN = "quality"  # of a corpus; also the section of `observed` that counts scores by tenths
_AT_ONCE = 1 << 14  # rows that are decoded at once
_MOST_BYTES = 16 << 30  # of rows in memory
_MAX_SIGMOID, _SIGMOIDS = 8, 512  # of fastText's table


@dataclass(frozen=True)
class LinearModel:
    """A model that scores texts.

    Attributes:
      labels: its labels, without __label__.
      sha256: of its file.
      vocabulary: see `Vocabulary`.
      rows: float32 [rows, W].
      outputs: float32 [K, W]; None if rows are multiplied by it.
      scales: float32 [K], by which outputs are multiplied.
      loss: of `model_file`.
      tree: int32 [2K - 1, 3], left, right and parent of each node of a HIERARCHICAL model.
    """

    labels: tuple[str, ...]
    sha256: str
    vocabulary: Vocabulary
    rows: np.ndarray
    outputs: np.ndarray | None
    scales: np.ndarray
    loss: int
    tree: np.ndarray

    @classmethod
    def of(cls, model: ModelFile, sha256: str = "", path: str = "the model") -> "LinearModel":
        """A stored model, decoded.

        Raises:
          DataError: a number is not finite, or rows need too much memory.
        """
        number = len(model.labels)
        loss = model.settings.loss
        outputs, scales = model.outputs.unscaled(0, number), np.ones(number, np.float32)
        if model.outputs.norms is not None:
            scales = model.outputs.norms[:number].astype(np.float32)
        is_joined = number < model.settings.dim
        used = model.inputs.shape[0]
        width = number if is_joined else model.settings.dim
        if used * width * 4 > _MOST_BYTES:
            raise DataError(f"{path}: {used:,} rows of {width:,} numbers need too much memory")
        rows = np.empty((used, width), np.float32)
        for start in range(0, used, _AT_ONCE):
            some = model.inputs.rows_of(start, min(used, start + _AT_ONCE))
            if is_joined:
                multiply(some, outputs, scales, rows[start : start + len(some)])
            else:
                rows[start : start + len(some)] = some
        if not all(np.isfinite(numbers).all() for numbers in (rows, outputs, scales)):
            raise DataError(f"{path}: a number of the model is not finite: it is damaged")
        counts = model.counts[model.words :]
        tree = make_tree(counts) if loss == HIERARCHICAL else np.zeros((0, 3), np.int32)
        return cls(
            tuple(model.labels),
            sha256,
            Vocabulary.of(model),
            rows,
            None if is_joined else outputs,
            scales,
            loss,
            tree,
        )

    def scores(self, text: pa.LargeStringArray, label: int) -> np.ndarray:
        """float32 [n]: the probability of a label, as fastText gives it, at most 1.

        It is 0 for a text without features. fastText adds 0.00001 to each probability.

        Raises:
          DataError: sums of the model's numbers are too large, where fastText fails, too.
        """
        means, counts = self._means(text)
        if self.loss == HIERARCHICAL:
            scores = np.empty(len(counts), np.float32)
            score_path(means, self.tree, label, scores)
        else:
            scores = self._all(means)[:, label]
            scores = as_probabilities(np.ascontiguousarray(scores))
        scores[counts == 0] = 0
        if np.isnan(scores).any():
            raise DataError(
                "a score of the model is not a number, because sums of its numbers are too large: "
                "train it again"
            )
        return np.minimum(scores, np.float32(1))

    def best(self, text: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
        """The most probable label of each text: int64 [n], -1 without features; float32 [n]."""
        means, counts = self._means(text)
        if self.loss == HIERARCHICAL:
            labels, scores = np.empty(len(counts), np.int64), np.empty(len(counts), np.float32)
            find_best(means, self.tree, labels, scores)
        else:
            every = self._all(means)
            labels = every.argmax(axis=1)
            scores = as_probabilities(every[np.arange(len(every)), labels])
        labels[counts == 0], scores[counts == 0] = -1, 0
        return labels, np.minimum(scores, np.float32(1))

    def _means(self, text: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
        """The scores of outputs: float32 [D, K], and the number of features of each text."""
        data, bounds = utf8_bytes(text)
        kind = np.float32 if self.outputs is not None else np.float64
        sums = np.zeros((len(text), self.rows.shape[1]), kind)
        counts = np.zeros(len(text), np.int64)
        sum_rows(data, bounds, self.vocabulary.tables, self.rows, sums, counts)
        sums *= (1.0 / np.maximum(counts, 1)).astype(kind)[:, None]
        if self.outputs is None:
            return sums.astype(np.float32), counts
        means = np.empty((len(text), len(self.labels)), np.float32)
        apply_outputs(sums, self.outputs, self.scales, means)
        return means, counts

    def _all(self, means: np.ndarray) -> np.ndarray:
        """Probabilities of all labels: float32 [D, K]; `means` are overwritten."""
        if self.loss == SOFTMAX:
            softmax(means)
        else:
            look_up(means, _sigmoids())
        return means


@functools.lru_cache(4)
def load_model(path: str) -> LinearModel:
    """Loads a model, once a process.

    Raises:
      UsageError: there is no such file.
      DataError: it is not a supervised model of fastText, or damaged.
    """
    return LinearModel.of(read_model(path), store.sha256(path), path)


def tenths_of(scores: np.ndarray) -> np.ndarray:
    """The tenth from 0 to 1 in which each score is, [n]: int64 [n], 0 to 9."""
    return np.minimum((scores * 10).astype(int), 9)


def name_tenth(tenth: int) -> str:
    """The name of a tenth: 3 -> "0.3 to 0.4"."""
    return f"{tenth / 10:.1f} to {(tenth + 1) / 10:.1f}"


def count_tenths(scores: np.ndarray) -> dict[str, int]:
    """How many scores are in each tenth, ascending, by its name."""
    tenths, numbers = np.unique(tenths_of(scores), return_counts=True)
    return dict(zip(map(name_tenth, tenths.tolist()), numbers.tolist(), strict=True))


def make_tree(counts: np.ndarray) -> np.ndarray:
    """Left, right and parent of each node: a Huffman tree of labels by falling counts, int32."""
    size = len(counts)
    weights = np.full(2 * size - 1, 10**15, np.int64).tolist()
    weights[:size] = counts.tolist()
    tree = np.full((2 * size - 1, 3), -1, np.int32)
    leaf, node = size - 1, size
    for parent in range(size, 2 * size - 1):
        for side in (0, 1):
            if leaf >= 0 and weights[leaf] < weights[node]:
                child, leaf = leaf, leaf - 1
            else:
                child, node = node, node + 1
            tree[parent, side], tree[child, 2] = child, parent
        weights[parent] = sum(weights[child] for child in tree[parent, :2].tolist())
    return tree


@functools.cache
def _sigmoids() -> np.ndarray:
    """FastText's table of the logistic function from -8 to 8: float32 [513]."""
    places = np.arange(_SIGMOIDS + 1, dtype=np.float32) * np.float32(2 * _MAX_SIGMOID)
    places = places / np.float32(_SIGMOIDS) - np.float32(_MAX_SIGMOID)
    table = np.empty(len(places), np.float32)
    logistic(places.astype(np.float32), table)
    return table


# ---- compiled ----

_F = np.float32
_LOG2E, _LN2_HIGH, _LN2_LOW = 1.4426950408889634, 0.6931471803691238, 1.9082149292705877e-10
_ROOT_HALF = 0.7071067811865476
_ADDED = 1e-5  # fastText adds it before it takes a logarithm


@entry()
def sum_rows(data, texts, tables, rows, sums, counts):
    """Adds up the rows of the features of each text.

    Args:
      data: uint8, bytes of all texts.
      texts: int64 [D + 1], where each begins.
      tables: those of the `Vocabulary`.
      rows: float32 [rows, W].
      sums: [D, W], zeros; out.
      counts: int64 [D], out: number of features.
    """
    most, words = most_features(texts, tables[4])
    features, codes = np.empty(most, np.int32), np.empty(words, np.int32)
    end = find_end(tables)
    for text in range(len(counts)):
        used = list_features(data, texts[text], texts[text + 1], tables, end, features, codes)
        for i in range(used):
            row = features[i]
            for column in range(rows.shape[1]):
                sums[text, column] += rows[row, column]
        counts[text] = used


@entry()
def multiply(rows, outputs, scales, out):
    """Rows times outputs, in float64: float32 [n, W], [K, W] -> [n, K]."""
    for row in range(len(rows)):
        for label in range(len(outputs)):
            total = 0.0
            for column in range(rows.shape[1]):
                total += np.float64(rows[row, column]) * np.float64(outputs[label, column])
            out[row, label] = _F(total * np.float64(scales[label]))


@entry()
def apply_outputs(hidden, outputs, scales, out):
    """Hidden times outputs in fastText's order and float32: [D, W], [K, W] -> [D, K]."""
    for text in range(len(hidden)):
        for label in range(len(outputs)):
            total = _F(0)
            for column in range(outputs.shape[1]):
                total = _F(total + _F(hidden[text, column] * outputs[label, column]))
            out[text, label] = _F(total * scales[label])


@inner
def exp_of(x):
    """e**x in float64 by operations that are rounded exactly."""
    if x < -700.0:
        return 0.0
    if x > 700.0:
        return math.inf
    power = math.floor(x * _LOG2E + 0.5)
    r = (x - power * _LN2_HIGH) - power * _LN2_LOW
    total = 1.0
    for i in range(13, 0, -1):
        total = 1.0 + total * r / i
    return math.ldexp(total, int(power))


@inner
def _log_of(x):
    """The natural logarithm of a positive number in float64, likewise."""
    part, power = math.frexp(x)
    if part < _ROOT_HALF:
        part, power = part * 2.0, power - 1
    s = (part - 1.0) / (part + 1.0)
    square, total = s * s, 0.0
    for i in range(25, 0, -2):
        total = total * square + 1.0 / i
    return power * _LN2_HIGH + (2.0 * s * total + power * _LN2_LOW)


@inner
def _fast_log(x):
    """FastText's logarithm of a probability: float32."""
    return _F(_log_of(np.float64(x) + _ADDED))


@inner
def _right(score):
    """The probability of the right child."""
    return _F(1.0 / np.float64(_F(_F(1) + _F(exp_of(-np.float64(score))))))


@entry()
def softmax(scores):
    """Turns scores into probabilities in place: float32 [D, K]."""
    for text in range(len(scores)):
        most = scores[text, 0]
        for label in range(scores.shape[1]):
            most = max(most, scores[text, label])
        total = _F(0)
        for label in range(scores.shape[1]):
            scores[text, label] = _F(exp_of(np.float64(_F(scores[text, label] - most))))
            total = _F(total + scores[text, label])
        for label in range(scores.shape[1]):
            scores[text, label] = _F(scores[text, label] / total)


@entry()
def logistic(places, table):
    """The logistic function: float32 [n] -> [n]."""
    for i in range(len(places)):
        table[i] = _F(1.0 / (1.0 + np.float64(_F(exp_of(-np.float64(places[i]))))))


@entry()
def look_up(scores, table):
    """FastText's logistic function by a table, in place: float32 [D, K]."""
    for text in range(len(scores)):
        for label in range(scores.shape[1]):
            score = scores[text, label]
            if score < _F(-8):
                scores[text, label] = _F(0)
            elif score > _F(8):
                scores[text, label] = _F(1)
            else:
                place = np.int64(_F(_F(_F(score + _F(8)) * _F(512)) / _F(8)) / _F(2))
                scores[text, label] = table[place]


@entry()
def as_probabilities(values):
    """The probabilities that fastText shows, a little larger: float32 [n] -> [n]."""
    shown = np.empty(len(values), np.float32)
    for i in range(len(values)):
        shown[i] = _F(exp_of(np.float64(_fast_log(values[i]))))
    return shown


@entry()
def score_path(scores, tree, label, out):
    """The probability of a label of a HIERARCHICAL model, along its path from the root.

    Args:
      scores: float32 [D, K], of each inner node.
      tree: see `make_tree`.
      label: number of the label.
      out: float32 [D], out.
    """
    size = (len(tree) + 1) // 2
    path, length, node = np.empty(len(tree), np.int64), 0, np.int64(label)
    while node >= 0:
        path[length] = node
        length, node = length + 1, np.int64(tree[node, 2])
    for text in range(len(out)):
        total = _F(0)
        for i in range(length - 1, 0, -1):
            parent, right = path[i], _right(scores[text, path[i] - size])
            is_right = tree[parent, 1] == path[i - 1]
            share = right if is_right else _F(1.0 - np.float64(right))
            total = _F(total + _fast_log(share))
        out[text] = _F(exp_of(np.float64(total)))


@entry()
def find_best(scores, tree, labels, out):
    """The most probable label of a HIERARCHICAL model; subtrees that are less probable are skipped.

    Args:
      scores: float32 [D, K], of each inner node.
      tree: see `make_tree`.
      labels: int64 [D], out.
      out: float32 [D], out.
    """
    size = (len(tree) + 1) // 2
    nodes, totals = np.empty(len(tree), np.int64), np.empty(len(tree), np.float32)
    for text in range(len(out)):
        best, found, depth = _F(-np.inf), np.int64(0), 1
        nodes[0], totals[0] = len(tree) - 1, _F(0)
        while depth > 0:
            depth -= 1
            node, total = nodes[depth], totals[depth]
            if total < best:
                continue
            if node < size:
                best, found = total, node
                continue
            right = _right(scores[text, node - size])
            left = _fast_log(_F(1.0 - np.float64(right)))
            nodes[depth], totals[depth] = tree[node, 1], _F(total + _fast_log(right))
            nodes[depth + 1], totals[depth + 1] = tree[node, 0], _F(total + left)
            depth += 2
        labels[text], out[text] = found, _F(exp_of(np.float64(best)))
