"""Trains a linear model with two labels by stochastic gradient descent, as fastText does. Pure.

Documents are sorted by hash. In each epoch a different permutation of them, by hash and seed, is
gone through one by one, so the numbers of the model depend on the set of documents, the settings
and the seed only: not on the order of inputs, on processes or on the machine. All sums are in
float32, in a fixed order, and the logistic function is computed by operations that IEEE 754 rounds
exactly.

Legend: D documents, F features of all of them, W columns of rows.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from textmill.pipelines.linear_model.features import (
    EOS,
    Vocabulary,
    count_entries,
    find_end,
    list_features,
    most_features,
)
from textmill.pipelines.linear_model.model_file import (
    LABEL,
    Matrix,
    ModelFile,
    Settings,
)
from textmill.pipelines.linear_model.scores import exp_of
from textmill.pipelines.rows.masking import GAMMA, mix
from textmill.pipelines.rows.text_bytes import utf8_bytes
from textmill.pipelines.runtime.compiled import entry, inner

GOOD, OTHER = "good", "other"  # the labels


@dataclass(frozen=True)
class Training:
    """How a model is trained.

    Attributes:
      settings: of the model.
      min_count: minimum number of a word in all documents; rarer ones have no row.
      epochs: how often each document is gone through.
      learning_rate: at the start; it falls to 0 in a line.
      seed: of the first numbers and of the order.
    """

    settings: Settings
    min_count: int
    epochs: int
    learning_rate: float
    seed: int


def train(
    text: pa.LargeStringArray, digests: np.ndarray, good: np.ndarray, how: Training
) -> ModelFile:
    """Trains a model.

    Args:
      text: large_string [D].
      digests: uint8 [D, 16], the hash of each, ascending.
      good: bool [D].
      how: see `Training`.
    """
    settings = how.settings
    words, counts = count_words(text, how.min_count)
    entries = [*words, (LABEL + GOOD).encode(), (LABEL + OTHER).encode()]
    bounds = np.concatenate([[0], np.cumsum([len(entry) for entry in entries])]).astype(np.int64)
    number = int(np.count_nonzero(good))
    rows = len(words) + settings.buckets * settings.hashes
    inputs = first_numbers(rows, settings.dim, how.seed)
    outputs = np.zeros((2, settings.dim), np.float32)
    no_centroids = np.zeros(0, np.float32)
    model = ModelFile(
        settings,
        np.frombuffer(b"".join(entries), np.uint8),
        bounds,
        len(words),
        np.array([*counts, number, len(good) - number], np.int64),
        None,
        Matrix(inputs.shape, inputs, no_centroids),
        Matrix(outputs.shape, outputs, no_centroids),
    )
    features, offsets = _features(text, Vocabulary.of(model))
    steps = np.int64(how.epochs * len(good))
    grads, hidden = np.empty(settings.dim, np.float32), np.empty(settings.dim, np.float32)
    for epoch in range(how.epochs):
        order = order_of(digests, how.seed, epoch)
        descend(
            order,
            features,
            offsets,
            good,
            inputs,
            outputs,
            how.learning_rate,
            epoch * len(good),
            steps,
            hidden,
            grads,
        )
    return model


def count_words(text: pa.LargeStringArray, least: int) -> tuple[list[bytes], list[int]]:
    """Words that occur at least so often, most frequent first, then by bytes; and their numbers.

    `</s>`, which ends each document, is one of them.
    """
    data, bounds = utf8_bytes(text)
    starts, stops, numbers = count_entries(data, bounds)
    label = LABEL.encode()
    found = [(EOS, len(text))]
    for place in np.flatnonzero(numbers >= least).tolist():
        word = data[starts[place] : stops[place]].tobytes()
        if word != EOS and not word.startswith(label):
            found.append((word, int(numbers[place])))
    found.sort(key=lambda item: (-item[1], item[0]))
    return [word for word, _ in found], [number for _, number in found]


def first_numbers(rows: int, columns: int, seed: int) -> np.ndarray:
    """Numbers from -1 / columns to 1 / columns, by place and seed: float32 [rows, columns]."""
    numbers = np.empty((rows, columns), np.float32)
    for start in range(0, rows, 1 << 16):
        some = numbers[start : start + (1 << 16)]
        places = np.arange(start * columns, start * columns + some.size, dtype=np.uint64)
        bits = _mix(places + _mix(np.array([seed], np.uint64))) >> np.uint64(40)
        shares = bits.astype(np.float32) * np.float32(2.0**-23) - np.float32(1)
        some[:] = (shares / np.float32(columns)).reshape(some.shape)
    return numbers


def order_of(digests: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """The order of documents in an epoch: int64 [D], by hashes uint8 [D, 16] and seed."""
    first = np.ascontiguousarray(digests[:, :8]).view("<u8").reshape(-1)
    salt = _mix(_mix(np.array([seed], np.uint64)) + np.uint64(epoch))
    return np.argsort(_mix(first ^ salt), kind="stable")


def _mix(values: np.ndarray) -> np.ndarray:
    """The next numbers of SplitMix64: uint64 [n]."""
    return mix(values + GAMMA)


def _features(text: pa.LargeStringArray, own: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
    """The features of all documents, int32 [F], and where those of each begin, int64 [D + 1]."""
    data, bounds = utf8_bytes(text)
    offsets = np.zeros(len(text) + 1, np.int64)
    place_features(data, bounds, own.tables, np.zeros(0, np.int32), offsets)
    features = np.empty(offsets[-1], np.int32)
    place_features(data, bounds, own.tables, features, offsets)
    return features, offsets


# ---- compiled ----

_F, _1, _0 = np.float32, np.float32(1), np.float32(0)


@entry()
def place_features(data, texts, tables, out, offsets):
    """Counts the features of each document, or lists them if `out` has room.

    Args:
      data: uint8, bytes of all texts.
      texts: int64 [D + 1], where each begins.
      tables: those of the `Vocabulary`.
      out: int32 [F], out; or [0].
      offsets: int64 [D + 1], out.
    """
    most, words = most_features(texts, tables[4])
    features, codes = np.empty(most, np.int32), np.empty(words, np.int32)
    end = find_end(tables)
    for text in range(len(texts) - 1):
        used = list_features(data, texts[text], texts[text + 1], tables, end, features, codes)
        offsets[text + 1] = offsets[text] + used
        if len(out):
            out[offsets[text] : offsets[text + 1]] = features[:used]


@inner
def _logistic(x):
    return _F(1.0 / (1.0 + exp_of(-np.float64(x))))


@entry()
def descend(order, features, offsets, good, inputs, outputs, rate, done, steps, hidden, grads):
    """Goes through all documents once, and changes the matrices after each.

    Args:
      order: int64 [D].
      features: int32 [F].
      offsets: int64 [D + 1].
      good: bool [D].
      inputs: float32 [rows, W], in and out.
      outputs: float32 [2, W], in and out.
      rate: learning rate of the first step of all.
      done: number of steps before.
      steps: number of steps in all epochs.
      hidden: float32 [W], scratch.
      grads: float32 [W], scratch.
    """
    width = inputs.shape[1]
    for step in range(len(order)):
        document = order[step]
        start, stop = offsets[document], offsets[document + 1]
        if start == stop:
            continue
        for column in range(width):
            hidden[column] = _0
        for i in range(start, stop):
            row = features[i]
            for column in range(width):
                hidden[column] += inputs[row, column]
        share = _F(1.0 / np.float64(stop - start))
        difference = _0
        for column in range(width):
            hidden[column] *= share
            slope = _F(outputs[0, column] - outputs[1, column])
            difference = _F(difference + _F(slope * hidden[column]))
        alpha = _F(rate * (1.0 - np.float64(done + step) / np.float64(steps)))
        wanted = _1 if good[document] else _0
        error = _F(alpha * _F(wanted - _logistic(difference)))
        for column in range(width):
            slope = _F(outputs[0, column] - outputs[1, column])
            grads[column] = _F(_F(error * slope) * share)
            change = _F(error * hidden[column])
            outputs[0, column] = _F(outputs[0, column] + change)
            outputs[1, column] = _F(outputs[1, column] - change)
        for i in range(start, stop):
            row = features[i]
            for column in range(width):
                inputs[row, column] += grads[column]
