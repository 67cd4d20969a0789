"""--keep_best: the documents with the highest scores, by hand and beside numpy; whole runs."""

import json
import math
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.corpus_factory import build, rows_of, write_lines
from tests.tools.model_files import model_bytes
from textmill.pipelines.corpus.corpus_check import check_corpus
from textmill.pipelines.corpus.keep_best import (
    SHIFTS,
    count_ranks,
    find_best,
    find_last,
    ranks_of,
    score_of,
)
from textmill.schemas.errors import DataError, UsageError, spell
from textmill.schemas.format.corpus_metadata import (
    CorpusSchema,
    CorpusStatistics,
    FileStatistics,
    number_to_keep,
)
from textmill.schemas.format.drops import Funnel, Removed

SCORES = [0.0, 1e-45, 1e-38, 0.25, 0.5, np.nextafter(np.float32(0.5), np.float32(1)), 0.99, 1.0]


def shown(row):
    """The score of a document as JSON shows it."""
    return float(str(np.float32(row["quality"])))


def best_of(partitions, share):
    """The rounds over partitions of scores -> bool arrays; and the last round's LAST row."""
    ranks = [ranks_of(np.array(scores, np.float32), n) for n, scores in enumerate(partitions)]
    last: Any = None
    for number in range(len(SHIFTS)):
        counts = [count_ranks(own, number, last) for own in ranks]
        assert sum(int(own["documents"].sum()) for own in counts) == sum(map(len, partitions))
        assert max(map(len, counts), default=0) <= 1026
        [last] = find_last(np.concatenate(counts[::-1]), share)
    return [find_best(own, last).tolist() for own in ranks], last


@given(
    st.lists(
        st.lists(st.one_of(st.sampled_from(SCORES), st.floats(0, 1, width=32)), max_size=12),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from([1e-9, 0.1, 0.2, 1 / 3, 0.5, 0.9, 1.0]),
)
def test_the_best_beside_a_sort_of_all(partitions, share):
    scores = np.array([score for own in partitions for score in own], np.float32)
    kept = math.ceil(Fraction(repr(share)) * len(scores))
    due = np.zeros(len(scores), bool)
    due[np.argsort(-scores, kind="stable")[:kept]] = True  # documents are in the order of hashes
    found, last = best_of(partitions, share)
    assert [one for own in found for one in own] == due.tolist()
    if len(scores):
        quantile = np.quantile(-scores, float(Fraction(kept, len(scores))), method="inverted_cdf")
        assert np.float32(score_of(int(last["rank"]))) == -quantile == scores[due].min()


def test_the_best_by_hand():
    assert best_of([[0.5, 0.5, 0.5], [0.5, 0.5]], 0.4)[0] == [[True, True, False], [False, False]]
    assert best_of([[0.5], [0.9, 0.5], [0.1]], 0.5)[0] == [[True], [True, False], [False]]
    assert best_of([[0.3]], 0.001)[0] == [[True]]
    assert best_of([[], []], 0.5)[0] == [[], []]
    assert best_of([[0.0], [0.0, 1.0]], 1.0)[0] == [[True], [True, True]]


def test_a_share_is_the_decimal_that_was_given():
    assert 0.07 * 100 > 7 and number_to_keep(0.07, 100) == 7
    assert [number_to_keep(0.2, n) for n in (0, 1, 5, 6)] == [0, 1, 1, 2]
    assert number_to_keep(1.0, 7) == 7


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(model_bytes(3, labels=3))
    return f"--quality_model={path}"


@pytest.fixture
def source(tmp_path):
    draw = random.Random(0)
    texts = [" ".join(draw.choices("the a film er good bad x".split(), k=5)) for _ in range(400)]
    lines = [{"text": text, "n": number % 3} for number, text in enumerate(texts)]
    return write_lines(tmp_path / "in.jsonl", [*lines, *lines[:50]])


@pytest.mark.parametrize("flags", [[], ["--duplicate_paragraphs=line:1", "--min_quality=0.2"]])
def test_the_best_of_a_corpus_and_what_is_listed(tmp_path, source, model, flags):
    flags = [model, "--num_files=3", "--keep_fields=n", *flags]
    every = rows_of(build(source, tmp_path / "every", *flags))
    corpus = build(source, tmp_path / "best", *flags, "--keep_best=0.3", "--keep_rejects")
    kept = math.ceil(Fraction(3, 10) * len(every))
    ordered = sorted(every, key=lambda row: (-row["quality"], row["id"]))
    assert rows_of(corpus) == sorted(ordered[:kept], key=lambda row: row["id"])
    assert corpus.stats.dropped["not_best"] == len(every) - kept
    assert corpus.stats.broken_equations(0.3) == []
    assert corpus.schema.parameters["keep_best"] == 0.3
    assert check_corpus(corpus.directory).problems == []
    removed = corpus.stats.funnel.removed["not_best"]
    others = sorted(ordered[kept:], key=lambda row: row["id"])
    assert [(s.document, s.excerpt, s.detail) for s in removed.samples] == [
        (row["id"], row["text"], f"quality {shown(row)}") for row in others[:20]
    ]
    lines = Path(corpus.directory, "rejects", "filtered.jsonl").read_text().splitlines()
    lines = [line for line in map(json.loads, lines) if line["reason"] == "not_best"]
    assert lines == [
        {
            "reason": "not_best",
            "measured": shown(row),
            "limit": shown(ordered[kept - 1]),
            "text": row["text"],
            "n": row["n"],
        }
        for row in others
    ]


def test_one_document_and_all_documents(tmp_path, model):
    one = write_lines(tmp_path / "one.jsonl", ["the film"])
    assert len(rows_of(build(one, tmp_path / "one", model, "--keep_best=0.01"))) == 1
    three = write_lines(tmp_path / "three.jsonl", ["the film", "a film", "x"])
    corpus = build(three, tmp_path / "all", model, "--keep_best=1", "--num_files=5")
    assert len(rows_of(corpus)) == 3 and "not_best" not in corpus.stats.dropped


def test_no_document_is_an_error_of_a_line(tmp_path, model):
    source = write_lines(tmp_path / "in.jsonl", ["the film"])
    with pytest.raises(DataError, match=r"no document is left to write; 1 were read \(1 min_chars"):
        build(source, tmp_path / "none", model, "--keep_best=0.5", "--min_chars=99")


def test_another_number_of_documents_is_found():
    statistics = CorpusStatistics(
        documents_read=11,
        dropped={"not_best": 8},
        funnel=Funnel(documents=11, removed={"not_best": Removed(8)}),
        files={"x": FileStatistics(documents=3)},
        lengths=(3,) + (0,) * 32,
    )
    assert statistics.broken_equations(0.2) == []
    for share, expected in ((0.3, 4), (1.0, 11)):
        assert statistics.broken_equations(share) == [
            f"keep_best={share} is {expected} documents, but 3 are kept"
        ]


@pytest.mark.parametrize("share", [0, 1.5, "0.2", float("nan")])
def test_a_schema_with_an_impossible_share_is_rejected(share):
    with pytest.raises(DataError, match="keep_best"):
        CorpusSchema({"keep_best": share}, ("id", "text"), 1, "parquet")


@pytest.mark.parametrize("share", ["0", "-1", "1.1", "nan"])
def test_impossible_shares_are_refused(tmp_path, source, model, share):
    with pytest.raises(UsageError) as caught:
        build(source, tmp_path / "x", model, f"--keep_best={share}")
    assert "give a share above 0, up to 1, such as 0.2" in spell(str(caught.value))
    with pytest.raises(UsageError, match="it needs"):
        build(source, tmp_path / "x", "--keep_best=0.2")
