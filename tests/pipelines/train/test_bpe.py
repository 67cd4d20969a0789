"""BPE training: values worked by hand, and `tokenizers`' trainer as the oracle."""

import json
import sys
import time

import numba
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from pipelines.encoding.splitting.patterns import byte_characters, first_tokens
from pipelines.host import compiled
from pipelines.train import merge_loop
from pipelines.train.merge_loop import Trained
from pipelines.train.models.byte_level_bpe import train_bpe


def train(histogram: dict[bytes, int], vocab_size: int, **settings) -> Trained:
    """Our trainer on a histogram."""
    words = pa.array(list(histogram), pa.large_binary())
    counts = np.array(list(histogram.values()), np.int64)
    return train_bpe(words, counts, vocab_size=vocab_size, **settings)


def oracle(
    histogram: dict[bytes, int],
    vocab_size: int,
    min_frequency: int = 2,
    special_tokens=(),
    max_token_length: int | None = None,
) -> tuple[dict[str, int], list[list[str]]]:
    """Vocabulary and merges that `tokenizers` finds in the same words."""
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=list(special_tokens),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=max_token_length,
        show_progress=False,
    )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Split("\n", "removed")
    characters = byte_characters()
    texts = {"".join(characters[b] for b in word): n for word, n in histogram.items()}
    tokenizer.train_from_iterator(("\n".join([t] * n) for t, n in texts.items()), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], model["merges"]


def as_oracle(trained: Trained) -> tuple[dict[str, int], list[list[str]]]:
    """What we found in the form of `oracle`."""
    vocabulary = {token: i for i, token in enumerate(trained.tokens)}
    return vocabulary, [list(merge) for merge in trained.merges]


def test_byte_characters_are_gpt2s():
    assert sorted(byte_characters()) == sorted(pre_tokenizers.ByteLevel.alphabet())
    [(text, _)] = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str("\0 é")[:1]
    characters = byte_characters()
    assert text == characters[0]
    assert "".join(characters[b] for b in " é".encode()) == "ĠÃ©"


def test_first_tokens_are_specials_then_bytes_by_code_point():
    tokens = first_tokens(("<s>", "b", "<s>"))
    assert tokens[:4] == ["<s>", "b", "!", '"']
    assert len(tokens) == 257 and tokens.count("b") == 1
    assert tokens[2:] == sorted(tokens[2:])


def test_merges_worked_by_hand():
    # lo 7, ow 7, we 2, er 2: lo wins by its smaller left id; then low 7; then er before lowe (both
    # 2): (e, r) has the smaller left id; then low+er 2.
    trained = train({b"low": 5, b"lower": 2}, 300)
    assert trained.merges == [("l", "o"), ("lo", "w"), ("e", "r"), ("low", "er")]
    assert trained.tokens[256:] == ["lo", "low", "er", "lower"]
    assert trained.word_tokens.tolist() == [1, 1]


def test_equal_letters_merge_from_the_left():
    # aaaaa counts (a,a) four times and becomes aa aa a.
    trained = train({b"aaaaa": 3}, 257)
    assert trained.merges == [("a", "a")]
    assert trained.word_tokens.tolist() == [3]


def test_vocabulary_size_and_min_frequency_stop_it():
    assert train({b"low": 5, b"lower": 2}, 257).merges == [("l", "o")]
    assert train({b"low": 5, b"lower": 2}, 300, min_frequency=3).merges == [("l", "o"), ("lo", "w")]
    assert train({b"ab": 1}, 300, min_frequency=0).merges == [("a", "b")]
    assert train({b"a": 9}, 300).merges == []
    assert train({}, 300).merges == []
    assert train({b"abc": 9}, 10**15).tokens[256:] == ["ab", "abc"]  # no memory for what cannot be


def test_a_longest_token_is_shorter_than_said_but_two_bytes_always_merge():
    histogram = {b"abcd": 9, b"abc": 5}
    longest = {n: train(histogram, 300, max_token_length=n).tokens[256:] for n in (1, 3, 4, 5)}
    assert longest == {
        1: ["ab", "cd"],
        3: ["ab", "cd"],
        4: ["ab", "abc"],
        5: ["ab", "abc", "abcd"],
    }


def test_a_merge_that_spells_a_special_token_takes_its_id():
    histogram = {b"ab": 5, b"abc": 3}
    trained = train(histogram, 300, special_tokens=("<s>", "ab"))
    assert trained.tokens[:2] == ["<s>", "ab"]
    assert trained.merges == [("a", "b"), ("ab", "c")]
    assert len(trained.tokens) == 256 + 2 + 1
    assert as_oracle(trained) == oracle(histogram, 300, 2, ("<s>", "ab"))


def test_counts_beyond_32_bits():
    # `tokenizers` wraps here: 3 * 2**31 is above its limit, and would come after the count of 5.
    trained = train({b"ab": 3 << 31, b"cd": 5}, 257)
    assert trained.merges == [("a", "b")]


def test_order_of_words_decides_nothing():
    histogram = {b"abab": 2, b"bab": 3, b"caba": 4}
    assert train(histogram, 300).merges == train(dict(reversed(histogram.items())), 300).merges


def test_sliced_words():
    words = pa.array([b"zzzz", b"ab", b"abc", b"yyyy"], pa.large_binary()).slice(1, 2)
    assert train_bpe(words, np.array([2, 2]), vocab_size=300).merges == [("a", "b"), ("ab", "c")]


@settings(max_examples=400)
@given(
    histogram=st.dictionaries(
        st.text("abc", min_size=1, max_size=24).map(str.encode),
        st.integers(1, 6),
        min_size=1,
        max_size=10,
    ),
    vocab_size=st.sampled_from([262, 268, 300, 1000]),
    min_frequency=st.integers(0, 3),
    # The later ones are spelled by merges, which then take their ids.
    special_tokens=st.sampled_from([(), ("<s>", "é"), ("ab",), ("aa", "bca", "c"), ("aaaa", "Ġa")]),
    max_token_length=st.sampled_from([None, 0, 1, 2, 3, 4, 5, 8]),
)
def test_equals_tokenizers(histogram, vocab_size, **settings):
    trained = train(histogram, vocab_size, **settings)
    assert as_oracle(trained) == oracle(histogram, vocab_size, **settings)


@settings(max_examples=100)
@given(
    st.dictionaries(
        st.binary(min_size=1, max_size=8), st.integers(1, 1000), min_size=1, max_size=60
    )
)
def test_equals_tokenizers_on_any_bytes(histogram):
    assert as_oracle(train(histogram, 400)) == oracle(histogram, 400)


@settings(max_examples=50)
@given(st.dictionaries(st.text("ab", min_size=1, max_size=20).map(str.encode), st.integers(1, 3)))
def test_word_tokens_are_the_encoding(histogram):
    trained = train(histogram, 300)
    vocabulary = {token: i for i, token in enumerate(trained.tokens)}
    model = models.BPE(vocabulary, trained.merges)
    encoded = [len(model.tokenize(word.decode())) for word in histogram]
    assert trained.word_tokens.tolist() == encoded


@pytest.mark.parametrize("kind", ["random", "equal", "repeated"])
def test_a_word_of_millions_of_letters_takes_seconds(kind):
    size = 3_500_000
    letters = np.random.default_rng(0).integers(97, 123, size, np.uint8)
    word = {
        "random": letters.tobytes(),
        "equal": b"a" * size,
        "repeated": letters[: size // 7].tobytes() * 7,
    }[kind]
    train({b"ab": 2}, 300)  # compiled outside the measurement
    began = time.monotonic()
    trained = train({word: 1, b"tail": 2}, 8000)
    assert time.monotonic() - began < 20
    assert len(trained.merges) > 20 if kind == "equal" else len(trained.tokens) == 8000


def test_no_call_a_merge():
    """Measured: 3,473 calls, with 44 merges and with 1,744."""

    def calls(vocab_size: int) -> int:
        count = 0

        def note(_, event, __):
            nonlocal count
            count += event in ("call", "c_call")

        histogram = {f"{i * i:x}-{i:o}".encode(): 1 + i % 7 for i in range(3000)}
        train(histogram, vocab_size)
        sys.setprofile(note)
        try:
            found = len(train(histogram, vocab_size).merges)
        finally:
            sys.setprofile(None)
        assert found == vocab_size - 256
        return count

    assert calls(2000) - calls(300) < 100


def test_positions_beyond_32_bits(monkeypatch):
    """The 64-bit form of the loop, without 2 GB of words."""
    histogram = {b"abab": 2, b"aaab": 3}
    small = train(histogram, 300)
    monkeypatch.setattr(merge_loop, "LARGE", 1)
    large = train(histogram, 300)
    assert (large.tokens, large.merges) == (small.tokens, small.merges)


@settings(max_examples=200)
@given(
    st.dictionaries(
        st.text("abc", min_size=1, max_size=40).map(str.encode), st.integers(1, 6), min_size=1
    )
)
def test_stale_positions_are_forgotten_when_memory_is_short(histogram):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge_loop, "POOL_ROOM", 1)
        assert as_oracle(train(histogram, 400)) == oracle(histogram, 400)


def test_another_thread_can_watch_and_stop():
    progress = np.array([0, 0])
    train({b"abc": 2}, 300, progress=progress)
    assert progress[0] == 258
    assert train({b"abc": 2}, 300, progress=np.array([0, 1])).merges == []


def test_refusals():
    with pytest.raises(ValueError, match="vocab_size is 257, but 258 tokens come before merges"):
        train({b"a": 1}, 257, special_tokens=("<s>", "<pad>"))
    with pytest.raises(ValueError, match="a word has the count 0"):
        train({b"a": 0}, 300)
    with pytest.raises(ValueError, match="word 1 is empty"):
        train({b"a": 1, b"": 1}, 300)


def test_compiles_where_no_cache_can_be_written(monkeypatch):
    real = numba.njit

    def njit(*signature, **options):
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return real(*signature, **options)

    monkeypatch.setattr(numba, "njit", njit)
    assert compiled.entry()(lambda x: x + 1)(1) == 2
    assert compiled.entry("int64(int64)")(lambda x: x + 1)(1) == 2
