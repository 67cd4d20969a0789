"""Compares the shares of tokens that splits got with those of --splits. Pure."""

from collections.abc import Mapping
from math import sqrt

_ODDS, _ANY_ODDS = 4.0, 10.0  # ratio of odds, of a token to be in the split
_DEVIATIONS = 2.0  # of the share that documents of one length would have


def find_far_shares(
    asked: Mapping[str, float], tokens: Mapping[str, int], documents: int
) -> dict[str, float]:
    """Finds splits whose share of all tokens is far from the requested one, with the real share.

    {"train": 0.98, "validation": 0.02} with 200 and 100 tokens of 3 documents -> {"train": 0.67,
    "validation": 0.33}; with 29,100 and 900 (3 %) of 300 documents -> {}.

    A share is far if its odds differ from the requested ones by more than a factor of 4, in either
    direction: 2 % is far from 8 %, and from 0.4 %; 50 % from 81 %. Below a factor of 10, it must
    also differ by more than two standard deviations, since hashes assign documents to splits. If
    documents have one length, a split that should have one document or more gets a far share in
    fewer than 2 % of all runs, besides empty splits; with 20 documents, in fewer than 0.01 %. Few
    documents, and documents of which a few are very long, often get one.

    Args:
      asked: requested share of each split; the sum is 1.
      tokens: number of tokens of each split.
      documents: number of documents of all splits.
    """
    total = sum(tokens.values())
    if not total:
        return {}
    shares = {split: tokens[split] / total for split in asked}
    return {split: got for split, got in shares.items() if _is_far(asked[split], got, documents)}


def _is_far(asked: float, got: float, documents: int) -> bool:
    is_unlikely = abs(got - asked) > _DEVIATIONS * sqrt(asked * (1 - asked) / documents)
    most = _ODDS if is_unlikely else _ANY_ODDS
    # got / (1 - got) and asked / (1 - asked), without divisions by 0
    one, other = got * (1 - asked), asked * (1 - got)
    return one > most * other or other > most * one
