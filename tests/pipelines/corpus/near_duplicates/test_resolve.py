import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipelines.corpus.near_duplicates.resolve import is_kept, resolve

# (rank of the higher, rank of the lower, similarity): ranks are numbers, the smaller the higher.
EDGES = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 12), st.sampled_from([0.8, 0.85, 1.0])).filter(
        lambda edge: edge[0] < edge[1]
    ),
    max_size=40,
)


def digests(documents, shuffled=None):
    """A digest of each number: in the order of numbers, or of `shuffled`."""
    names = {document: document for document in documents}
    if shuffled is not None:
        names = {document: int(shuffled[document]) for document in documents}
    rows = [names[document].to_bytes(16, "big") for document in documents]
    return np.frombuffer(b"".join(rows), np.uint8).reshape(-1, 16)


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


def run(edges, names):
    higher, lower, similarity = zip(*edges, strict=True) if edges else ((), (), ())
    chosen = resolve(digests(higher, names), digests(lower, names), np.array(similarity, float))
    return {lower[edge]: (higher[edge], similarity[edge]) for edge in chosen}


@given(EDGES, st.permutations(range(13)), st.randoms())
def test_as_document_by_document(edges, names, random):
    edges = list({edge[:2]: edge for edge in edges}.values())
    due, _ = plain(edges, names)
    found = run(edges, names)
    assert {document: found[document][0] for document in found} == due
    # The order of edges does not matter, nor does an edge that comes twice.
    shuffled = edges + edges[:3]
    random.shuffle(shuffled)
    assert run(shuffled, names) == found


def test_no_chains():
    """Of A ~ B ~ C ~ D, B goes for A, and C stays; D goes for C."""
    edges = [(0, 1, 0.9), (1, 2, 0.95), (2, 3, 0.8)]
    assert run(edges, range(4)) == {1: (0, 0.9), 3: (2, 0.8)}
    assert run([*edges, (0, 2, 0.8)], range(4)) == {1: (0, 0.9), 2: (0, 0.8)}


def test_the_most_similar_kept_one_represents():
    edges = [(0, 3, 0.8), (1, 3, 0.9), (2, 3, 1.0), (0, 2, 0.8)]
    assert run(edges, range(4)) == {2: (0, 0.8), 3: (1, 0.9)}
    equal = [(0, 2, 0.9), (1, 2, 0.9)]
    assert run(equal, [1, 0, 2])[2] == (1, 0.9)
    assert run(equal, [0, 1, 2])[2] == (0, 0.9)


def test_by_the_removed_documents_digest():
    edges = [(0, 9, 0.8), (0, 3, 0.8), (0, 7, 0.8)]
    higher, lower, similarity = zip(*edges, strict=True)
    chosen = resolve(digests(higher), digests(lower), np.array(similarity))
    assert chosen.tolist() == [1, 2, 0]


def test_a_long_chain_is_decided_in_one_go():
    """Of 200,000 documents, each near the next one only, every second one stays."""
    higher = np.arange(200_000)
    as_digests = [
        np.stack([numbers, np.zeros_like(numbers)]).T.copy().view(np.uint8).reshape(-1, 16)
        for numbers in (higher, higher + 1)
    ]
    np.testing.assert_array_equal(is_kept(*as_digests), higher % 2 == 0)


def test_no_edge():
    none = np.zeros((0, 16), np.uint8)
    assert len(resolve(none, none, np.zeros(0))) == 0
