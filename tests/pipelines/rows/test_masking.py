"""Static masks: exact counts, shares within chance, and nothing lost."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from textmill.pipelines.rows.masking import (
    NEVER,
    SPAN_SHARES,
    Masking,
    _bound_of,
    _first_ones,
    _up_to,
    mix,
)
from textmill.schemas.format.features import unmask

VOCABULARY = 1000
SPECIAL = np.zeros(VOCABULARY, bool)
SPECIAL[:5] = True
WORD_START = np.arange(VOCABULARY) % 3 == 0
MASK = 4


def masking(rate=0.15, slots=19, unit="token", is_word_start=WORD_START):
    return Masking(rate, slots, MASK, SPECIAL, is_word_start, unit)


def random_rows(rows, length=128, seed=0):
    """Rows of one segment ... </s> with padding, half of them with <s>, and their keys."""
    generator = np.random.default_rng(seed)
    ids = generator.integers(5, VOCABULARY, (rows, length)).astype(np.uint16)
    segments = np.ones((rows, length), np.uint8)
    ids[::2, 0] = 0
    for row, used in enumerate(generator.integers(3, length + 1, rows)):
        ids[row, used - 1] = 2
        ids[row, used:] = 1
        segments[row, used:] = 0
    return ids, segments, generator.integers(0, 2**63, rows).astype(np.uint64)


def test_mix_is_splitmix64():
    # Outputs of SplitMix64 for the seed 1234567 (the reference implementation's own example).
    gamma = 0x9E3779B97F4A7C15
    states = [(1234567 + (i + 1) * gamma) % 2**64 for i in range(3)]
    assert mix(np.array(states, np.uint64)).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


NUMBERS = st.integers(0, 20) | st.integers(0, 2**64 - 2)


@given(st.lists(NUMBERS, min_size=2, unique=True), st.integers(0, 99))
@example([1, 0], 0)
def test_a_bound_is_found_that_so_many_numbers_do_not_exceed(numbers, at):
    wanted = 1 + at % (len(numbers) - 1)
    values, some = np.array(numbers, np.uint64), np.zeros(len(numbers) + 1, np.uint64)
    bound = _bound_of(values, wanted)
    assert sorted(numbers)[wanted - 1] <= bound < sorted(numbers)[wanted]
    assert _up_to(values, values[0], some) == sum(number <= numbers[0] for number in numbers)
    assert _up_to(values, bound, some) == wanted
    assert some[:wanted].tolist() == [number for number in numbers if number <= bound]


def test_all_numbers_are_candidates_but_the_one_that_means_never():
    values, some = np.array([NEVER, NEVER - np.uint64(1)]), np.zeros(3, np.uint64)
    assert _first_ones(values, 1, 1, some) == 1 and some[0] == NEVER - np.uint64(1)


def check(ids, segments, columns, slots):
    """Checks masks, whatever picked them; returns the number of picked tokens of each row."""
    positions, weights = columns["masked_positions"], columns["masked_weights"]
    assert positions.shape == weights.shape == (len(ids), slots)
    used = weights.astype(bool)
    counts = used.sum(axis=1)
    assert (used == (np.arange(slots) < counts[:, None])).all(), "slots fill from the left"
    assert (positions[~used] == 0).all() and (columns["masked_ids"][~used] == 0).all()
    for row, count in enumerate(counts):
        places = positions[row, :count]
        assert (np.diff(places.astype(int)) > 0).all(), "ascending, none twice"
        assert (segments[row, places] > 0).all() and not SPECIAL[ids[row, places]].any()
        assert (columns["masked_ids"][row, :count] == ids[row, places]).all()
        untouched = np.setdiff1d(np.arange(ids.shape[1]), places)
        assert (columns["input_ids"][row, untouched] == ids[row, untouched]).all()
    assert (unmask(columns) == ids).all()
    new = columns["input_ids"] != ids
    assert not (SPECIAL[columns["input_ids"]] & new & (columns["input_ids"] != MASK)).any()
    return counts


@pytest.mark.parametrize(("length", "slots"), [(128, 19), (10, 19), (10, 200)])
def test_a_row_gets_its_share_exactly(length, slots):
    ids, segments, keys = random_rows(500, length)
    counts = check(ids, segments, masking(slots=slots).apply(ids, segments, keys), slots)
    assert (counts == budgets_of(ids, segments, 0.15, slots)).all()


def budgets_of(ids, segments, rate, slots):
    """How many tokens of each row should be masked."""
    ordinary = ((segments > 0) & ~SPECIAL[ids]).sum(axis=1)
    return np.minimum(np.maximum(np.rint(ordinary * rate), 1), slots).astype(int)


def test_eighty_ten_ten():
    ids, segments, keys = random_rows(4000)
    columns = masking().apply(ids, segments, keys)
    used = columns["masked_weights"].astype(bool)
    rows, slots = np.nonzero(used)
    became = columns["input_ids"][rows, columns["masked_positions"][rows, slots]]
    was = columns["masked_ids"][rows, slots]
    number = len(was)
    masked, kept = (became == MASK).mean(), (became == was).mean()
    # Five standard deviations of a binomial share.
    assert abs(masked - 0.8) < 5 * np.sqrt(0.8 * 0.2 / number)
    assert abs(kept - 0.1) < 5 * np.sqrt(0.1 * 0.9 / number) + 1 / VOCABULARY
    drawn = became[(became != MASK) & (became != was)]
    assert drawn.min() >= 5 and drawn.max() == VOCABULARY - 1
    full = (segments > 0).all(axis=1)
    places = columns["masked_positions"][full][used[full]]
    assert abs(places.mean() - 63.5) < 5 * 37 / np.sqrt(len(places)), "no place is preferred"


def test_masks_depend_on_the_key_and_the_row_alone():
    ids, segments, keys = random_rows(50)
    whole = masking().apply(ids, segments, keys)
    one = masking().apply(ids[7:8], segments[7:8], keys[7:8])
    assert all((whole[name][7:8] == one[name]).all() for name in one)
    other = masking().apply(ids[7:8], segments[7:8], keys[8:9])
    assert (other["masked_positions"] != one["masked_positions"]).any()


def test_a_row_without_ordinary_tokens_is_left_alone():
    ids = np.array([[0, 2, 1, 1]], np.uint16)
    segments = np.array([[1, 1, 0, 0]], np.uint8)
    columns = masking(slots=1).apply(ids, segments, np.array([3], np.uint64))
    assert not columns["masked_weights"].any() and (columns["input_ids"] == ids).all()


def words(ids, segments):
    """Each row's words as lists of positions, the plainest way."""
    for row, segment in zip(ids, segments, strict=True):
        found = []
        for place in range(len(row)):
            if segment[place] == 0 or SPECIAL[row[place]]:
                continue
            goes_on = (
                found
                and found[-1][-1] == place - 1
                and segment[place - 1] == segment[place]
                and not WORD_START[row[place]]
            )
            if goes_on:
                found[-1].append(place)
            else:
                found.append([place])
        yield found


def draw(key, place, times):
    """The number of a place in a row: of the first stream, the second, and so on."""
    value = np.array([(key + (place + 1) * 0x9E3779B97F4A7C15) % 2**64], np.uint64)
    for _ in range(times):
        value = mix(value)
    return int(value[0])


def chosen_words(found, budget, key):
    """The words of a row that are masked, the plainest way; none if none fits."""
    rest = sorted(found, key=lambda word: (draw(key, word[0], 1) >> 16, word[0]))
    taken = []

    def room():
        return budget - sum(map(len, taken))

    while rest and len(rest[0]) <= room():
        taken.append(rest.pop(0))
    if rest and len(rest[0]) <= budget:
        share = (draw(key, rest[0][0], 3) >> 11) / 2**53
        if share * len(rest[0]) < room():
            word, before = rest.pop(0), list(taken)
            while len(word) > room():
                taken.pop()
            rest += before[len(taken) :]
            taken.append(word)
        else:
            rest.append(rest.pop(0))
    else:
        rest = rest[1:]
    for word in rest:
        if len(word) <= room():
            taken.append(word)
    return taken


def test_words_of_all_lengths_are_masked_alike():
    """Shares of words of one to eight tokens, in rows of 512, are within a tenth of the rate."""
    generator, rows = np.random.default_rng(4), 1500
    lengths = np.minimum(generator.geometric(0.5, (rows, 512)), 8)
    is_start = np.zeros((rows, 513), bool)
    np.put_along_axis(is_start, np.minimum(np.cumsum(lengths, axis=1), 512), True, axis=1)
    is_start[:, 0] = True
    ids = np.where(is_start[:, :512], 9, 10).astype(np.uint16)
    keys = generator.integers(0, 2**63, rows).astype(np.uint64)
    segments = np.ones(ids.shape, np.uint8)
    columns = masking(0.15, 77, "word").apply(ids, segments, keys)
    assert (columns["masked_weights"].sum(axis=1) == 77).all()
    is_masked = np.zeros(ids.shape, bool)
    np.put_along_axis(is_masked, columns["masked_positions"].astype(int), True, axis=1)
    begins = np.flatnonzero(is_start[:, :512])
    sizes = np.diff(begins, append=ids.size)
    for size in range(1, 9):
        of_size = is_masked.ravel()[begins[sizes == size]]
        assert abs(of_size.mean() - 0.15) < 0.015 + 4 * np.sqrt(0.15 * 0.85 / len(of_size)), size


def places_of_spans(found, budget, key):
    """The spans of a row the plainest way: the positions of each."""
    spans, taken, left = [], set(), budget
    words = [word for stretch in found for word in stretch]
    ends = np.repeat(np.cumsum([len(stretch) for stretch in found]), [len(s) for s in found])
    for first in sorted(
        range(len(words)), key=lambda w: (draw(key, words[w][0], 1) >> 16, words[w][0])
    ):
        share = (draw(key, words[first][0], 3) >> 11) / 2**53
        wanted = 1 + int((np.cumsum(SPAN_SHARES)[:-1] <= share).sum())
        span = []
        for word in range(first, min(first + wanted, ends[first])):
            if word in taken or len(words[word]) > left:
                break
            taken.add(word)
            left -= len(words[word])
            span += words[word]
        if span:
            spans.append(span)
    return spans


def stretches(found):
    """Words that stand side by side, together."""
    together = []
    for word in found:
        if together and together[-1][-1][-1] == word[0] - 1:
            together[-1].append(word)
        else:
            together.append([word])
    return together


@pytest.mark.parametrize("unit", ["word", "span"])
@given(
    seed=st.integers(0, 2**32),
    length=st.integers(4, 80),
    rate=st.sampled_from([0.1, 0.15, 0.5]),
)
def test_words_and_spans_are_those_of_the_plain_way(unit, seed, length, rate):
    ids, segments, keys = random_rows(15, length, seed)
    slots = max(1, round(rate * length))
    columns = masking(rate, slots, unit).apply(ids, segments, keys)
    counts, budgets = check(ids, segments, columns, slots), budgets_of(ids, segments, rate, slots)
    for row, (found, budget) in enumerate(zip(words(ids, segments), budgets, strict=True)):
        key = int(keys[row])
        if unit == "word":
            taken = chosen_words(found, budget, key)
        else:
            taken = places_of_spans(stretches(found), budget, key)
        places = columns["masked_positions"][row, : counts[row]].tolist()
        if taken:
            assert places == sorted(place for part in taken for place in part)
        elif found:
            assert len(places) == budget, "a script without spaces falls back to tokens"
        if unit == "word" and len(places) < budget:
            assert all(word[0] in places for word in found if len(word) == 1)
        for span in taken if unit == "span" else []:
            became, was = columns["input_ids"][row, span], ids[row, span]
            kinds = (became == MASK).all(), (became == was).all(), (became != MASK).all()
            assert any(kinds), "a span is masked, kept or replaced as a whole"


def test_lengths_of_spans_and_shares_of_what_becomes_of_them():
    assert SPAN_SHARES @ np.arange(1, 11) == pytest.approx(3.797, abs=1e-3)  # Joshi et al.: 3.8
    ids, segments, keys = random_rows(700, length=512)
    all_start = np.ones(VOCABULARY, bool)
    columns = masking(0.15, 77, "span", all_start).apply(ids, segments, keys)
    counts = columns["masked_weights"].sum(axis=1)
    assert (counts == budgets_of(ids, segments, 0.15, 77)).all()
    lengths, masked = [], []
    for row in np.flatnonzero(counts >= 60):
        used = np.flatnonzero((segments[row] > 0) & ~SPECIAL[ids[row]])
        spans = places_of_spans([[[int(place)] for place in used]], counts[row], int(keys[row]))
        lengths += [len(span) for span in spans]
        masked += [(columns["input_ids"][row, span] == MASK).all() for span in spans]
    # Spans end early at others and at the budget: 3.4 of 3.8 words stay.
    assert 3.3 < np.mean(lengths) < 3.6
    assert abs(np.mean(masked) - 0.8) < 5 * np.sqrt(0.16 / len(masked))
