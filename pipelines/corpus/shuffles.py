"""The shuffles of build_corpus: their numbers in tallies, and how messages name them."""

from enum import IntEnum

from textmill.pipelines.runners.shuffle import place_of_key


class Shuffle(IntEnum):
    """Numbers the kinds of elements that are sent to a partition."""

    DOCUMENTS = 0
    MEMBERS = 1
    ASKS = 2
    PAIRS = 3
    NAMES = 4
    REMOVALS = 5
    ROUNDS = 6  # the first round of near-duplicates; ROUNDS + 1 is the second
    PARAGRAPHS = 101
    REPEATED = 102
    MOVED = 103
    RANKS = 111  # the first round of --keep_best; RANKS + 1 is the second
    LASTS = 121
    STAGED = 1 << 10  # empty values, one for each staged partition


_SENT = {
    Shuffle.DOCUMENTS: "the documents of partition {}",
    Shuffle.MEMBERS: "the buckets of partition {}",
    Shuffle.ASKS: "the sets requested from partition {}",
    Shuffle.PAIRS: "the pairs and sets of partition {}",
    Shuffle.NAMES: "the clusters of partition {}",
    Shuffle.REMOVALS: "the near-duplicates of partition {}",
    Shuffle.PARAGRAPHS: "the paragraphs of partition {}",
    Shuffle.REPEATED: "the repeated paragraphs of partition {}",
    Shuffle.MOVED: "the edited documents of partition {}",
}


def name_shuffle(key: int) -> str:
    """Describes a tally's key for messages: `the paragraphs of partition 3`."""
    shuffle, partition = place_of_key(key)
    for known, sent in _SENT.items():
        if known == shuffle:
            return sent.format(partition)
    if shuffle >= Shuffle.LASTS:
        return f"the last document to keep, for partition {partition}"
    if shuffle >= Shuffle.RANKS:
        return "the numbers of documents by score"
    return f"the edges of round {shuffle - Shuffle.ROUNDS + 1}"
