"""JSON by columns, against `json.dumps`."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.readers.documents import ANSWERS
from pipelines.rows.routing import json_of

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
    with pytest.raises(TypeError, match="double have no JSON"):
        json_of(pa.array([1.5]))
