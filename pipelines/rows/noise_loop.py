"""Random lengths of spans, and what they make of text, compiled by numba.

Called by `noise_spans.py`. Legend: P pieces, N spans of all pieces.
"""

import numpy as np

from pipelines.host.compiled import entry, inner

_GAMMA = np.uint64(0x9E3779B97F4A7C15)


@inner
def _mix(value):
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@inner
def _partition(key, items, lengths):
    """Cuts a number of items into as many parts as there are lengths, none of them empty.

    Every way to cut has the same chance: cuts are drawn by selection sampling (Knuth, The Art of
    Computer Programming 2, 3.4.2, algorithm S).
    """
    cuts, begin = 0, 0
    for place in range(1, items):
        wanted = lengths.size - 1 - cuts
        if not wanted:
            break
        draw = _mix(key + np.uint64(place) * _GAMMA)
        if np.float64(draw >> np.uint64(11)) / (1 << 53) * (items - place) < wanted:
            lengths[cuts] = place - begin
            cuts, begin = cuts + 1, place
    lengths[cuts] = items - begin


@entry()
def partition_all(keys, items, counts, lengths):
    """Fills int64 [N]: for each of P keys `items` cut into `counts` parts at random; 0 for none."""
    at = 0
    for piece in range(keys.size):
        if counts[piece]:
            _partition(keys[piece], items[piece], lengths[at : at + counts[piece]])
            at += counts[piece]


@entry()
def fill_pairs(ids, offsets, count_P, start_N, length_N, sentinel_ids, eos, inputs, targets):
    """Fills the streams of inputs and of targets; see `noise_spans.Spans.pairs`.

    Args:
      ids: the stream.
      offsets: int64 [P + 1], of the pieces in it.
      count_P: int64, the spans of each piece.
      start_N: int64, in the stream.
      length_N: int64.
      sentinel_ids: for the first, second ... span of a piece.
      eos: what ends both.
      inputs: set.
      targets: set.
    """
    span, at, target_at = 0, 0, 0
    for piece in range(count_P.size):
        place = offsets[piece]
        for number in range(count_P[piece]):
            start, stop = start_N[span], start_N[span] + length_N[span]
            for token in range(place, start):
                inputs[at] = ids[token]
                at += 1
            inputs[at] = targets[target_at] = sentinel_ids[number]
            at, target_at, span = at + 1, target_at + 1, span + 1
            for token in range(start, stop):
                targets[target_at] = ids[token]
                target_at += 1
            place = stop
        for token in range(place, offsets[piece + 1]):
            inputs[at] = ids[token]
            at += 1
        inputs[at] = targets[target_at] = eos
        at, target_at = at + 1, target_at + 1
