"""Training of linear models: worked by hand, in a different order, and beside fastText."""

import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from textmill.pipelines.linear_model.model_file import SOFTMAX, Settings, write_model
from textmill.pipelines.linear_model.scores import LinearModel
from textmill.pipelines.linear_model.training import (
    Training,
    count_words,
    first_numbers,
    order_of,
    train,
)
from textmill.pipelines.rows.routing import content_digests

HOW = Training(Settings(4, 2, SOFTMAX, 1000), 1, 5, 0.5, 7)
GOOD = ["a fine film indeed", "fine and warm", "I liked this fine film", "warm film, fine"]
OTHER = ["a dull film", "dull and cold", "I left this dull film", "cold film, dull"]


def column(texts):
    return pa.array(texts, pa.large_string())


def sorted_by_hash(texts, good):
    text = column(texts)
    digests = content_digests(text)
    order = np.lexsort(digests.T[::-1])
    return text.take(pa.array(order)), digests[order], np.array(good)[order]


DOCUMENTS = sorted_by_hash(GOOD + OTHER, [True] * 4 + [False] * 4)


def test_a_step_by_hand():
    """One document of one word, one step: computed here from the formulas."""
    text, digests, good = sorted_by_hash(["x"], [True])
    how = Training(Settings(2, 1, SOFTMAX, 1), 1, 1, 0.25, 3)
    model = train(text, digests, good, how)
    before = first_numbers(2, 2, 3).astype(float)
    # The entries are </s> and x, each once: the features of the document are both.
    hidden = before.mean(axis=0)
    error = 0.25 * (1 - 1 / (1 + math.exp(0)))  # the outputs begin at 0
    assert model.outputs.values == pytest.approx(np.array([error * hidden, -error * hidden]))
    assert model.inputs.values == pytest.approx(before)  # slopes are 0 at the first step
    assert (model.words, model.labels, model.counts.tolist()) == (
        2,
        ["good", "other"],
        [1, 1, 1, 0],
    )


def test_two_steps_by_hand():
    text, digests, good = sorted_by_hash(["x"], [True])
    model = train(text, digests, good, Training(Settings(2, 1, SOFTMAX, 1), 1, 2, 0.25, 3))
    inputs, outputs = first_numbers(2, 2, 3).astype(float), np.zeros((2, 2))
    for rate in (0.25, 0.125):
        hidden = inputs.mean(axis=0)
        slope = outputs[0] - outputs[1]
        error = rate * (1 - 1 / (1 + math.exp(-(slope @ hidden))))
        inputs += error * slope / 2
        outputs += np.array([[error], [-error]]) * hidden
    assert model.outputs.values == pytest.approx(outputs, rel=1e-5)
    assert model.inputs.values == pytest.approx(inputs, rel=1e-5)


def test_words_are_sorted_by_number_and_bytes():
    words = count_words(column(["b a\tb\0c", "c __label__x a\u00a0d", ""]), 1)
    expected = ([b"</s>", b"b", b"c", b"a", b"a\xc2\xa0d"], [3, 2, 2, 1, 1])
    assert words == expected
    assert count_words(column(["b a b", "c"]), 2) == ([b"</s>", b"b"], [2, 2])


@given(st.lists(st.text("ab \t\n\0\x1c\u00a0é</s>", max_size=12), max_size=8), st.integers(1, 3))
def test_words_are_those_of_python(texts, least):
    counted = Counter(word for text in texts for word in text.encode().replace(b"\0", b" ").split())
    counted[b"</s>"] = len(texts)
    expected = sorted(((-n, word) for word, n in counted.items() if n >= least or word == b"</s>"))
    words, numbers = count_words(column(texts), least)
    assert [(-n, word) for word, n in zip(words, numbers, strict=True)] == expected


def test_many_different_words():
    """More than the first tables have room for."""
    texts = [" ".join(str(n) for n in range(start, 200_000, 7)) for start in range(7)]
    words, numbers = count_words(column([*texts, texts[0]]), 1)
    assert (len(words), numbers[0], sum(numbers)) == (200_001, 8, 200_000 + 28_572 + 8)
    assert words[1:3] == [b"0", b"100002"] and set(words[1:]) == {
        str(n).encode() for n in range(200_000)
    }


def test_a_model_separates_its_documents():
    text, digests, good = DOCUMENTS
    scores = LinearModel.of(train(text, digests, good, HOW)).scores(text, 0)
    assert scores[good].min() > scores[~good].max()


def test_the_bits_of_a_model_stay():
    content = write_model(train(*DOCUMENTS, HOW))
    assert content == write_model(train(*DOCUMENTS, HOW))
    sums = np.frombuffer(content[-32:], "<f4")
    # Whatever the machine and its libraries: sums and products of IEEE 754 in a fixed order.
    assert sums.tobytes().hex() == BITS


BITS = "e15e8a3cf6c2c1bd8b93fe3d26fa3f3ee15e8abcf6c2c13d8b93febd26fa3fbe"


def test_seeds_change_order_and_numbers():
    digests = DOCUMENTS[1]
    orders = [order_of(digests, seed, epoch).tolist() for seed, epoch in ((1, 0), (1, 1), (2, 0))]
    assert all(sorted(order) == list(range(8)) for order in orders)
    assert len({*map(tuple, orders)}) == 3
    numbers = first_numbers(1000, 4, 1)
    assert np.abs(numbers).max() <= 0.25 and abs(numbers.mean()) < 0.01
    assert numbers.std() == pytest.approx(0.25 / 3**0.5, rel=0.05)
    assert (numbers[:10] == first_numbers(10, 4, 1)).all()
    assert (numbers != first_numbers(1000, 4, 2)).any()
