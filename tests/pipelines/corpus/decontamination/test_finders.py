"""The index of n-grams goes to workers by a file from which nothing is run."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from tests.tools.filter_factory import column
from textmill.pipelines.corpus.decontamination.finders import Finder, load_finder, stage_index
from textmill.pipelines.corpus.decontamination.ngram_index import (
    NgramIndex,
    Targets,
    index_targets,
    pack_index,
    unpack_index,
)
from textmill.schemas.errors import DataError

TEXTS = ["one two three four", "zwei drei vier fünf sechs", "你好 世界", "short", ""]
TARGETS = Targets(
    files=(("a.txt", "0a"), ("b.jsonl", "0b")),
    fields=("text", "question"),
    text=column(TEXTS),
    file_T=np.array([0, 1, 1, 0, 1]),
    field_T=np.array([1, 0, 1, 0, 1]),
    record_T=np.array([5, 4, 3, 2, 1]),
)
INDEX = index_targets(TARGETS, ngram=3, least=2, share=0.25)
WHOLE = np.array([False, True, False, False, True])


def assert_equal(found, expected, kind):
    assert vars(found).keys() == vars(expected).keys() == set(kind.__dataclass_fields__)
    for name, value in vars(expected).items():
        own = vars(found)[name]
        if isinstance(value, np.ndarray):
            assert own.dtype == value.dtype
            np.testing.assert_array_equal(own, value, name)
        elif name == "targets":
            assert_equal(own, value, Targets)
        else:
            assert own == value and type(own) is type(value), name


@pytest.mark.parametrize("gone", [[], [0, 3], range(len(INDEX.hash_G))], ids=["all", "some", "no"])
def test_what_is_unpacked_is_what_was_packed(gone):
    index = INDEX.without(np.array(gone, np.int64), WHOLE)
    assert_equal(unpack_index(pack_index(index)), index, NgramIndex)


def test_a_worker_finds_what_the_launcher_would(tmp_path):
    documents = column(["say one two three four again", "one two", "fünf drei vier fünf sechs"])
    path = stage_index(INDEX, str(tmp_path))
    finder = load_finder(path)
    assert load_finder(path) is finder
    found, expected = finder.find(documents), Finder(INDEX).find(documents)
    assert found.hits == expected.hits and [number for number, _ in found.hits] == [0, 2]
    np.testing.assert_array_equal(found.spans, expected.spans)


@pytest.mark.parametrize("write", [pickle.dumps, pack_index], ids=["pickle", "another"])
def test_a_changed_index_is_not_read(write, tmp_path):
    path = stage_index(INDEX, str(tmp_path))
    with open(path, "wb") as file:
        file.write(write(replace(INDEX, share=0.5)))
    with pytest.raises(DataError, match="ngrams-.*.arrow was changed after the run wrote it"):
        load_finder(path)
