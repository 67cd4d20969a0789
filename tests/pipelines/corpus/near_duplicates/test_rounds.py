"""What rounds in partitions decide is what one place decides."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipelines.corpus.near_duplicates.resolve import resolve
from pipelines.corpus.near_duplicates.rounds import finish, first_messages, settle
from pipelines.corpus.near_duplicates.rows import EDGE, digest_bytes, of_streams, to_batch
from pipelines.runners import shuffle


def edges_of(pairs):
    """Edges from the smaller number to the greater; digests spread over all partitions."""
    edges = np.zeros(len(pairs), EDGE)
    for row, (higher, lower, similarity) in enumerate(pairs):
        for name, number in (("higher", higher), ("lower", lower)):
            edges[name][row] = (number * 0x9E3779B97F4A7C15 % 2**128).to_bytes(16, "big")
        edges["similarity"][row] = similarity
    return edges


def in_rounds(edges, partitions, rounds):
    messages, to = first_messages(edges, partitions)
    removed = []
    for _ in range(rounds):
        sent = [settle(messages[to == part], partitions) for part in range(partitions)]
        messages = np.concatenate([some for some, _, _ in sent])
        to = np.concatenate([where for _, where, _ in sent])
        removed += [found for _, _, found in sent]
    return np.concatenate([*removed, finish(messages)])


def outcome(removed):
    return sorted((row["lower"].tobytes(), row["higher"].tobytes()) for row in removed)


pairs = st.lists(
    st.tuples(st.integers(1, 12), st.integers(1, 12), st.sampled_from([0.8, 0.85, 0.9])).filter(
        lambda pair: pair[0] < pair[1]
    ),
    unique_by=lambda pair: pair[:2],
)


@given(pairs, st.integers(1, 5), st.integers(0, 6))
def test_any_number_of_partitions_and_rounds(pairs, partitions, rounds):
    edges = edges_of(pairs)
    whole = edges[
        resolve(digest_bytes(edges["higher"]), digest_bytes(edges["lower"]), edges["similarity"])
    ]
    assert outcome(in_rounds(edges, partitions, rounds)) == outcome(whole)


def test_a_chain_is_decided_link_by_link():
    """1 ~ 2 ~ 3 ~ 4 ~ 5: 2 goes for 1, 4 for 3; three rounds decide all of it."""
    edges = edges_of([(number, number + 1, 0.9) for number in range(1, 5)])
    messages, to = first_messages(edges, 1)
    for expected in ([], [2], []):
        messages, to, removed = settle(messages, 1)
        due = edges_of([(number - 1, number, 0.9) for number in expected])
        assert outcome(removed) == outcome(due)
    assert outcome(finish(messages)) == outcome(edges[2:3])


def test_large_values_travel_in_parts(monkeypatch):
    monkeypatch.setattr(shuffle, "VALUE_BYTES", 1000)
    edges = edges_of([(number, number + 1, 0.9) for number in range(100)])
    outbox = shuffle.Outbox("runner", "", 5)
    outbox.add([(7, to_batch(edges[:40])), (7, to_batch(edges[40:]))])
    sent = outbox.send()
    assert len(sent) > 4 and {key for key, _ in sent} == {7}
    streams, received = shuffle.receive(7, [value for _, value in sent], 5)
    assert of_streams(streams, EDGE).tobytes() == edges.tobytes()
    assert (received == outbox.sent).all()
