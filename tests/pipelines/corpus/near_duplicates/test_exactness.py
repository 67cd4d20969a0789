import numpy as np
import pytest

from tests.tools.near_duplicates import find_near, removals


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


def test_one_shingle_is_all_of_a_short_text():
    found = find_near(["One, two.", "one two", "one two three", "two"])
    assert found.removed == {1: (0, 1.0)}


def test_characters_for_text_without_spaces():
    """Each is a word of word:5, and a comma lies between two."""
    long = "我们今天早上在公园里散步的时候看见了一只很大的白色的鸟它站在湖边的石头上一动也不动"
    texts = [long, long[:20] + "," + long[20:]]
    assert find_near(texts, "word:5").removed == {0: (1, 1.0)}
    assert find_near(texts, "char:6", threshold="0.7").removed == {
        0: (1, pytest.approx(0.75, abs=0.06))
    }
