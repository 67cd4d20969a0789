"""Finds the near-duplicates of one partition in memory, for a plan. Pure."""

import pyarrow as pa

from textmill.pipelines.corpus.near_duplicates.flags import NearDuplicateRule
from textmill.pipelines.corpus.near_duplicates.rows import (
    ASK,
    MEMBER,
    PAIR,
    all_distinct,
    of_batch,
    sets_of,
    take_rows,
)
from textmill.pipelines.corpus.near_duplicates.steps import (
    make_members,
    make_sets,
    propose_pairs,
    sign,
    verify_pairs,
)
from textmill.pipelines.rows.example_batch import to_stream


def find_near(text: pa.LargeStringArray, rule: NearDuplicateRule) -> tuple[int, int]:
    """The number of near-duplicates of a partition, and the bytes that a run sends to find them."""
    made = (make_members(0, signed, 1) for signed in sign(text, rule))
    sent = [to_stream(some) for batches in made for _, some in batches]
    members, pairs, asks = take_rows(sent, MEMBER), [], []
    for own_pairs, own_asks, _ in propose_pairs(members, rule):
        pairs += [some for _, some in own_pairs]
        asks += [some for _, some in own_asks]
    requests = all_distinct((of_batch(one, ASK) for one in asks), ASK)
    sets = [some for batches in make_sets(requests, text, rule) for _, some in batches]
    distinct = all_distinct((of_batch(one, PAIR) for one in pairs), PAIR)
    edges = verify_pairs(distinct, lambda: filter(None, map(sets_of, sets)), text, rule)
    lower = {row for found, _ in edges for row in found["lower"].tolist()}
    return len(lower), sum(map(len, sent)) + sum(one.nbytes for one in (*pairs, *asks, *sets))
