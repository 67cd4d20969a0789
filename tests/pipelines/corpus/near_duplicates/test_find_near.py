"""--near_duplicates finds what all pairs compared give, in one process and however it runs."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.tools.corpus_factory import build, texts_of, write_lines
from tests.tools.near_duplicates import digest_of, find_near, near_documents, removals
from textmill.pipelines.corpus import lost_data
from textmill.pipelines.corpus.near_duplicates import steps
from textmill.pipelines.corpus.shuffles import Shuffle
from textmill.pipelines.runners import shuffle
from textmill.pipelines.runners.shuffle import check_deliveries
from textmill.schemas.errors import DataError


def corpus(seed):
    """60 different documents: clusters whose members differ by words, and two of equal sets."""
    generator = np.random.default_rng(seed)
    texts = ["", "?", "a", "a b", "x y x y x y", "x y x y x y x"]
    families = generator.integers(0, 30, (5, 20))
    while len(texts) < 60:
        words = families[generator.integers(5)].copy()
        changed = generator.integers(0, 20, generator.integers(5))
        words[changed] = generator.integers(0, 30, len(changed))
        text = " ".join(f"w{word}" for word in words[: generator.integers(15, 21)])
        if text not in texts:
            texts.append(text)
    return texts


@pytest.mark.parametrize("threshold", ["0.5", "0.8", "1"])
@pytest.mark.parametrize("shingle", ["word:2", "char:6"])
def test_the_same_as_of_all_pairs_compared(shingle, threshold):
    """200 x 1 bands miss no pair of that similarity, and no bucket of 60 documents is hot."""
    removed = 0
    for seed in range(5):
        texts = corpus(seed)
        due = removals(texts, shingle, threshold)
        for order in (np.arange(60), np.random.default_rng(seed).permutation(60)):
            some = [texts[i] for i in order]
            found = find_near(some, shingle, "200x1", threshold).removed
            assert {some[i]: (some[j], similar) for i, (j, similar) in found.items()} == due
        removed += len(due)
    assert removed > (20 if threshold != "1" else 2)


def test_documents_stay_similar_when_their_anchor_goes():
    """The longest is near one of 200, at 84 / 96, and near no other: 75 / 97."""
    words = [f"w{number}" for number in range(80)]
    longest = [*words, *(f"x{number}" for number in range(8))]
    texts = [" ".join([*longest, *(f"y{number}" for number in range(12))]), " ".join(longest)]
    texts += [" ".join([*words[:-1], f"z{number}"]) for number in range(198)]
    found = find_near(texts, bands="1x1")  # nearly all in one bucket
    assert found.removed[1] == (0, 84 / 96)
    assert len(found.removed) > 150


def test_characters_for_text_without_spaces():
    """Each is a word of word:5, and a comma lies between two."""
    long = "我们今天早上在公园里散步的时候看见了一只很大的白色的鸟它站在湖边的石头上一动也不动"
    texts = [long, long[:20] + "," + long[20:]]
    assert find_near(texts, "word:5").removed == {0: (1, 1.0)}
    assert find_near(texts, "char:6", threshold="0.7").removed == {
        0: (1, pytest.approx(0.75, abs=0.06))
    }


# ---- whole runs ----

DOCUMENTS = near_documents(400)
# A pair of similarity 0.8 meets in 32 bands of 4 hashes with a probability of 0.99999994.
RULE = ["--near_duplicates=jaccard:0.8", "--bands=32x4"]


def find(documents, folder, *flags):
    """The corpus, whose documents and list of removed ones are what all pairs compared give."""
    source = write_lines(folder / "source.jsonl", documents)
    corpus = build(source, folder / "corpus", *RULE, *flags)
    names = corpus.schema.removed_names()
    removed = pa.concat_tables(pq.read_table(folder / "corpus" / name) for name in names)
    expected = removals(documents)
    assert texts_of(corpus) == sorted({*documents} - {*expected})
    assert {
        row["id"]: (row["representative"], row["similarity"]) for row in removed.to_pylist()
    } == {
        digest_of(document).hex(): (digest_of(whom).hex(), similarity)
        for document, (whom, similarity) in expected.items()
    }
    return corpus


@pytest.mark.parametrize(
    "flags",
    [
        ["--num_files=1"],
        ["--num_files=9", "--shuffle_by=runner", "--direct_runner_bundle_repeat=2"],
        ["--num_files=4", "--direct_running_mode=multi_threading", "--direct_num_workers=2"],
    ],
    ids=" ".join,
)
def test_any_way_to_run_gives_what_all_pairs_compared_give(tmp_path, flags):
    stats = find(DOCUMENTS, tmp_path, *flags).stats
    expected = removals(DOCUMENTS)
    assert len(expected) > 50
    counts = stats.observed["near_duplicates"]
    assert counts["removed"] == len(expected) and counts["compared"] == len(set(DOCUMENTS))
    assert counts["verified"] >= len(expected) and "uncompared" not in counts
    clusters = stats.observed["near_duplicate_clusters"]
    assert sum(clusters.values()) == len({whom for whom, _ in expected.values()})


@pytest.mark.parametrize("shuffle_by", ["files", "runner"])
def test_rounds_decide_the_same_and_batches_may_be_sent_at_any_time(
    tmp_path, monkeypatch, shuffle_by
):
    monkeypatch.setattr(steps, "_PARTITIONS_OF_ONE_PLACE", 4)  # of more, some decide in rounds
    monkeypatch.setattr(shuffle, "BUFFER_BYTES", 20_000)
    monkeypatch.setattr("textmill.pipelines.corpus.near_duplicates.steps._DOCUMENTS_AT_ONCE", 10)
    monkeypatch.setattr("textmill.pipelines.corpus.near_duplicates.steps._BYTES_AT_ONCE", 1000)
    monkeypatch.setattr("textmill.pipelines.corpus.near_duplicates.buckets._PAIRS_AT_ONCE", 100)
    find(DOCUMENTS, tmp_path, "--num_files=8", f"--shuffle_by={shuffle_by}")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (Shuffle.MEMBERS, "the buckets of partition"),
        (Shuffle.PAIRS, "the pairs and sets of partition"),
        (Shuffle.NAMES, "the clusters of partition"),
        (Shuffle.REMOVALS, "the near-duplicates of partition"),
        (Shuffle.ROUNDS, "the edges of round 1"),
    ],
)
def test_what_is_lost_is_named(tmp_path, monkeypatch, number, words):
    def check_leaky(deliveries, *arguments):
        is_lost = deliveries.received[:, 0] >> np.uint64(40) == number
        assert is_lost.any()
        check_deliveries(replace(deliveries, received=deliveries.received[~is_lost]), *arguments)

    monkeypatch.setattr(lost_data, "check_deliveries", check_leaky)
    with pytest.raises(DataError, match=f"lost parts of {words}"):
        find(DOCUMENTS[:100], tmp_path, "--num_files=2")


@pytest.mark.parametrize("documents", [["one two three four five six"], ["...", "!!!"]])
def test_nothing_near(tmp_path, documents):
    some = sum(document[0].isalpha() for document in documents)
    observed = find(documents, tmp_path, "--num_files=4").stats.observed
    assert observed == ({"near_duplicates": {"compared": some}} if some else {})
