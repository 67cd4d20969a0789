"""Which documents are removed; rounds in partitions decide what one place decides."""

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from textmill.pipelines.corpus.near_duplicates.resolve import first_messages, resolve, settle
from textmill.pipelines.corpus.near_duplicates.rows import EDGE, batches_by_key, take_rows
from textmill.pipelines.runners import shuffle

# (rank of the higher, rank of the lower, similarity): ranks are numbers, the smaller the higher.
EDGES = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 12), st.sampled_from([0.8, 0.85, 1.0])).filter(
        lambda edge: edge[0] < edge[1]
    ),
    max_size=40,
)
NUMBERS: Sequence[int] = range(1 << 20)


def edges_of(edges, names: Sequence[int] = NUMBERS):
    """EDGE rows; a document's place is its number, or `names` of it."""
    rows = np.zeros(len(edges), EDGE)
    for row, (higher, lower, similarity) in zip(rows, edges, strict=True):
        row["higher"], row["lower"], row["similarity"] = names[higher], names[lower], similarity
    return rows


def plain(edges, names):
    """Document by document, by rank: {removed: representative}."""
    kept, removed = set(), {}
    for document in sorted({document for edge in edges for document in edge[:2]}):
        near = [
            (-similarity, names[higher], higher)
            for higher, lower, similarity in edges
            if lower == document and higher in kept
        ]
        if near:
            removed[document] = min(near)[2]
        else:
            kept.add(document)
    return removed, kept


def run(edges, names: Sequence[int] = NUMBERS):
    found = resolve(edges_of(edges, names))
    assert (np.diff(found["lower"].astype(int)) > 0).all()
    numbers = {names[document]: document for edge in edges for document in edge[:2]}
    return {numbers[edge["lower"]]: (numbers[edge["higher"]], edge["similarity"]) for edge in found}


@example([], range(13), random.Random(0))
@given(EDGES, st.permutations(range(13)), st.randoms())
def test_as_document_by_document(edges, names, draw):
    edges = list({edge[:2]: edge for edge in edges}.values())
    due, _ = plain(edges, names)
    found = run(edges, names)
    assert found == {
        document: (whom, max(s for *pair, s in edges if pair == [whom, document]))
        for document, whom in due.items()
    }
    # The order of edges does not matter, nor does an edge that comes twice.
    shuffled = edges + edges[:3]
    draw.shuffle(shuffled)
    assert run(shuffled, names) == found


@pytest.mark.parametrize("step", [1, -1])
def test_a_long_chain_is_decided_in_one_go(step):
    """Every second one of 200,000 documents stays: each is near the next one only."""
    numbers = np.arange(200_001)[::step]
    edges = np.zeros(200_000, EDGE)
    edges["higher"], edges["lower"] = numbers[:-1], numbers[1:]
    np.testing.assert_array_equal(resolve(edges)["lower"], np.sort(numbers[1::2]))


def in_rounds(edges, rounds):
    messages, to = first_messages(edges)
    removed = []
    for _ in range(rounds):
        sent = [settle(messages[to == partition]) for partition in np.unique(to)]
        removed += [found for _, _, found in sent]
        messages = np.concatenate([np.zeros(0, EDGE), *(some for some, _, _ in sent)])
        to = np.concatenate([np.zeros(0, np.int64), *(where for _, where, _ in sent)])
    return np.concatenate([*removed, resolve(messages)])


def outcome(removed):
    return sorted((row["lower"], row["higher"], row["similarity"]) for row in removed)


@given(EDGES, st.integers(1, 5), st.integers(0, 6))
def test_any_number_of_partitions_and_rounds(edges, partitions, rounds):
    edges = list({edge[:2]: edge for edge in edges}.values())
    names = [document % partitions << 32 | document for document in range(13)]
    rows = edges_of(edges, names)
    _, to = first_messages(rows)
    assert to.tolist() == [*(rows["higher"] >> 32), *(rows["lower"] >> 32)]
    assert outcome(in_rounds(rows, rounds)) == outcome(resolve(rows))


def test_a_chain_is_decided_link_by_link():
    """1 ~ 2 ~ 3 ~ 4 ~ 5: 2 goes for 1, 4 for 3; three rounds decide all of it."""
    edges = edges_of([(number, number + 1, 0.9) for number in range(1, 5)])
    messages, _ = first_messages(edges)
    for expected in ([], [2], []):
        messages, _, removed = settle(messages)
        assert removed["lower"].tolist() == expected
    assert outcome(resolve(messages)) == outcome(edges[2:3])


def test_large_values_travel_in_parts(monkeypatch):
    monkeypatch.setattr(shuffle, "VALUE_BYTES", 1000)
    edges = edges_of([(number, number + 1, 0.9) for number in range(100)])
    writer = shuffle.ShuffleWriter("runner", "", 5)
    for some in (edges[:40], edges[40:]):
        writer.add(batches_by_key(some, np.full(len(some), 7)))
    sent = writer.send()
    assert len(sent) > 2 and {key for key, _ in sent} == {7}
    streams, received = shuffle.receive(7, [value for _, value in sent], 5)
    assert take_rows(streams, EDGE).tobytes() == edges.tobytes() and not streams
    assert (received == writer.sent).all()
