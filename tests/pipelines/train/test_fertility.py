"""Fertility by hand, and against a count of each token of each word."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tokenizers import ByteLevelBPETokenizer, Tokenizer, models, pre_tokenizers

from pipelines.train.fertility import (
    Fertility,
    GroupSample,
    count_tokens,
    fertility_table,
    measure_fertility,
)


def column(documents: list[str]) -> pa.LargeStringArray:
    return pa.array(documents, pa.large_string())


def of_bytes(use_regex: bool = True) -> Tokenizer:
    """A token a byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    return tokenizer


def of_merges() -> Tokenizer:
    """Tokens of several characters, some with a space before; offsets without that space."""
    trained = ByteLevelBPETokenizer(trim_offsets=True)
    text = ["low lower lowest 中文 中文, é 🙂 🙂  \n\n  low\tnew newer newest, it's wide wider"] * 9
    trained.train_from_iterator(text, 330, 2, show_progress=False)
    return Tokenizer.from_str(trained.to_str())


def of_clauses() -> Tokenizer:
    """Merges that cross spaces: a token may hold several words."""
    tokenizer = of_bytes(use_regex=False)
    vocab = {**tokenizer.get_vocab(), "aĠ": 256, "aĠa": 257, "aĠaĠ": 258}
    merges = [("a", "Ġ"), ("aĠ", "a"), ("aĠa", "Ġ")]
    tokenizer.model = models.BPE(vocab, merges)
    return tokenizer


def test_tokens_of_words_by_hand():
    total, words = count_tokens(column(["a  lot", "é 🙂x", " \n", ""]), of_bytes())
    # a | space space | l o t; two bytes | space | four bytes, x; two of white space
    assert (total, words.tolist()) == (6 + 8 + 2, [1, 3, 2, 5])
    tokens = of_merges().encode("  low, lowk", add_special_tokens=False).tokens
    assert tokens == ["Ġ", "Ġlow", ",", "Ġlow", "k"]
    total, words = count_tokens(column(["  low, lowk"]), of_merges())
    assert (total, words.tolist()) == (5, [2, 2])


def test_a_token_of_several_words_counts_for_the_first():
    assert of_clauses().encode("a ab").tokens == ["aĠa", "b"]
    total, words = count_tokens(column(["a ab"]), of_clauses())
    assert (total, words.tolist()) == (2, [1, 1])


def test_no_documents():
    total, words = count_tokens(column([]), of_bytes())
    assert (total, words.tolist()) == (0, [])


TEXTS = st.lists(
    st.text(st.one_of(st.sampled_from("low er\n\t\u3000\x1f'中文é🙂,"), st.characters()))
)


@pytest.mark.parametrize("tokenizer", [of_bytes(), of_merges(), of_clauses()])
@given(documents=TEXTS)
def test_every_token_counts_for_the_word_of_its_first_visible_character(tokenizer, documents):
    documents = [d.encode(errors="ignore").decode() for d in documents]
    tokens, of_words = 0, []
    for document in documents:
        word_of, words = [-1] * len(document), 0
        for place, character in enumerate(document):
            if not character.isspace():
                words += place == 0 or document[place - 1].isspace()
                word_of[place] = words - 1
        assert words == len(document.split())
        counts = [0] * words
        for start, stop in tokenizer.encode(document, add_special_tokens=False).offsets:
            tokens += 1
            seen = [word for word in word_of[start:stop] if word >= 0]
            if seen:
                counts[seen[0]] += 1
        of_words += counts
    total, found = count_tokens(column(["before", *documents]).slice(1), tokenizer)
    assert (total, found.tolist()) == (tokens, of_words)


def test_figures_by_hand():
    sample = GroupSample()
    sample.add(column(["ab cdef", "é g"]), "few")
    sample.add(column(["word " * 5000, "ab"]), "many")
    many, few = measure_fertility(sample, of_bytes())
    assert few == Fertility(
        group="few",
        documents=2,
        bytes=7 + 4,
        sampled_documents=2,
        tokens_per_word=11 / 4,
        bytes_per_token=1,
        characters_per_token=10 / 11,
        words_of_over_3_tokens=1 / 4,  # cdef
    )
    assert (many.group, many.documents, many.bytes) == ("many", 2, 25_002)
    assert many.tokens_per_word == 25_002 / 5001
    assert many.words_of_over_3_tokens == 5000 / 5001


def test_white_space_alone_has_no_words():
    sample = GroupSample()
    sample.add(column([" \n "]), "blank")
    [blank] = measure_fertility(sample, of_bytes())
    assert (blank.tokens_per_word, blank.words_of_over_3_tokens) == (3, 0)


def test_the_table_lists_the_largest_groups():
    groups = tuple(
        Fertility(f"g{n}" if n else "", 1, 100, 1, 1.5, 4.25, 4.125, 0.0125) for n in range(23)
    )
    console = Console(width=80, record=True, file=None)
    with console.capture() as printed:
        console.print(fertility_table(groups))
    lines = printed.get().split("\n")
    [first] = [line for line in lines if "(none)" in line]
    assert first.strip("│ ").split() == "(none) │ 4.3% │ 1.50 │ 4.25 │ 4.12 │ 1.2%".split()
    assert "and 3 more" in printed.get() and "g19" in printed.get() and "g20" not in printed.get()
    assert np.all([len(line) <= 80 for line in lines])
