"""Where documents go, a pure function of their content; JSON by columns, against `json.dumps`."""

import json

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from textmill.pipelines.readers.documents import ANSWERS
from textmill.pipelines.rows.routing import Routes, content_digests, joint_digests, json_of

ROUTES = Routes(
    {"test": 0.1, "train": 0.8, "validation": 0.1}, {"test": 1, "train": 4, "validation": 2}
)


def test_digests_are_xxh3_128_of_each_document():
    texts = ["", "a", "béé\u2028", "long " * 1000]
    array = pa.array(["before", *texts, "after"], pa.large_string())
    digests = content_digests(array.slice(1, 4))
    assert [bytes(d) for d in digests] == [xxhash.xxh3_128_digest(t.encode()) for t in texts]


def test_documents_of_several_columns_have_one_digest():
    text, answers = (
        pa.array(["a", "b"], pa.large_string()),
        pa.array([[1], []], pa.list_(pa.int8())),
    )
    assert joint_digests([text]).tolist() == content_digests(text).tolist()
    halves = xxhash.xxh3_128_digest(b"a") + xxhash.xxh3_128_digest(b"[1]")
    assert bytes(joint_digests([text, answers])[0]) == xxhash.xxh3_128_digest(halves)


def test_names_follow_the_routes():
    names = ROUTES.names()
    assert names[0] == "test-00000-of-00001"
    assert names[1] == "train-00000-of-00004"
    assert names[-1] == "validation-00001-of-00002"


def test_shares_are_kept_and_shards_are_even():
    texts = pa.array([str(i) for i in range(50_000)], pa.large_string())
    routes = ROUTES.of(content_digests(texts))
    counts = np.bincount(routes, minlength=7)
    expected = np.array([5000, *[10_000] * 4, *[2500] * 2])
    assert (abs(counts - expected) < 5 * np.sqrt(expected)).all()


def test_the_seams_of_the_splits():
    """The first half of the hash, as a share of 2**64, picks the split."""
    routes = Routes({"a": 0.5, "b": 0.5}, {"a": 1, "b": 3})

    def route(high, low):
        return int(routes.of(np.array([[*high.to_bytes(8), *low.to_bytes(8)]], np.uint8))[0])

    assert route(0, 7) == 0
    assert route((1 << 63) - 1, 7) == 0
    assert route(1 << 63, 7) == 1 + 7 % 3
    assert route((1 << 64) - 1, (1 << 64) - 1) == 1 + ((1 << 64) - 1) % 3
    routes = Routes({"train": 1.0}, {"train": 2})
    assert route((1 << 64) - 1, (1 << 64) - 1) == 1


# ---- JSON of columns, of which digests are made ----

# No surrogates: what documents hold is UTF-8.
CHARACTERS = st.one_of(
    st.sampled_from('ab\\"/\n\t\x00\x1f\x7f\x85é中🙂\u2028\uffff'),
    st.characters(exclude_categories=["Cs"]),
)
TEXTS = st.text(CHARACTERS, max_size=8)


@given(st.lists(TEXTS, max_size=6))
def test_strings(texts):
    found = json_of(pa.array(texts, pa.large_string()))
    assert found.to_pylist() == [json.dumps(text) for text in texts]


@given(
    st.lists(
        st.lists(
            st.fixed_dictionaries({"text": TEXTS, "start": st.integers(-(1 << 63), (1 << 63) - 1)}),
            max_size=3,
        ),
        max_size=5,
    ),
    st.integers(0, 3),
)
def test_answers(values, skipped):
    answers = pa.array(values, ANSWERS)[skipped:]
    assert json_of(answers).to_pylist() == [json.dumps(v) for v in answers.to_pylist()]


def test_columns_of_other_types_are_json_too():
    messages = [[{"role": "user", "content": "Who?\n", "weight": 1}], []]
    kind = pa.list_(
        pa.struct([("role", pa.string()), ("content", pa.large_string()), ("weight", pa.int8())])
    )
    found = json_of(pa.array([*messages, *messages], kind).slice(1, 3)).to_pylist()
    assert found == [json.dumps(value) for value in [[], *messages]]
    assert json_of(pa.array([1.5, 0.1, 1e-7], pa.float32())).to_pylist() == ["1.5", "0.1", "1e-7"]
    with pytest.raises(TypeError, match="binary have no JSON"):
        json_of(pa.array([b"x"]))
