"""WordPiece training: values worked by hand, and `tokenizers`' trainers as the oracle.

Theirs number `##x` in the order of a hash that differs from run to run, and break ties by these
numbers. So ours is given the numbers of one of their runs, and then every token has the same id:
but for that order nothing differs. Other tests show our own order, and that it is one of those that
theirs may have.
"""

import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from textmill.pipelines.encoding.patterns import bert_words
from textmill.pipelines.tokenizer.bert_wordpiece import (
    first_tokens,
    normalized_words,
    train_wordpiece,
)
from textmill.pipelines.tokenizer.histogram import PreTokenization
from textmill.pipelines.tokenizer.merge_loop import TrainedVocabulary
from textmill.pipelines.tokenizer.word_counter import WordCounter

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def arrays(histogram: dict[str, int]) -> tuple[pa.LargeBinaryArray, np.ndarray]:
    words = pa.array([word.encode() for word in histogram], pa.large_binary())
    return words, np.array(list(histogram.values()), np.int64)


def first_of(histogram: dict[str, int], special_tokens=("[UNK]",), **limits) -> list[str]:
    return first_tokens(*arrays(histogram), special_tokens=special_tokens, **limits)


def train(
    histogram: dict[str, int], vocab_size: int, special_tokens=("[UNK]",), **more
) -> TrainedVocabulary:
    """Our trainer on a histogram, with ids of the first tokens in our order or as given."""
    first = more.pop("first", None) or first_of(histogram, special_tokens)
    return train_wordpiece(
        *arrays(histogram),
        first=first,
        vocab_size=vocab_size,
        special_tokens=special_tokens,
        **more,
    )


def theirs(histogram: dict[str, int], trainer) -> tuple[list[str], list[tuple[str, str]]]:
    """Tokens in the order of their ids, and merges if there are any, of one run of `tokenizers`."""
    is_bpe = isinstance(trainer, trainers.BpeTrainer)
    tokenizer = Tokenizer(models.BPE() if is_bpe else models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("\n", "removed")
    tokenizer.train_from_iterator(("\n".join([w] * n) for w, n in histogram.items()), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    vocabulary = model["vocab"]
    assert sorted(vocabulary.values()) == list(range(len(vocabulary)))
    return sorted(vocabulary, key=vocabulary.get), [tuple(m) for m in model.get("merges", ())]


def unmerged(tokens: list[str], special_tokens) -> list[str]:
    """Those that come before any merge: special tokens, `x` and `##x`."""
    return [
        t
        for t in tokens
        if t in special_tokens or len(t) == 1 or (len(t) == 3 and t.startswith("##"))
    ]


# ---- words ----


def normalized(documents: list[str], lowercase: bool) -> dict[str, int]:
    counts = WordCounter()
    counts.count(pa.array(documents, pa.large_string()), PreTokenization(bert_words()))
    words = normalized_words(counts.table(), lowercase=lowercase).to_pydict()
    assert words["word"] == sorted(set(words["word"]))
    return dict(zip([w.decode() for w in words["word"]], words["count"], strict=True))


def normalized_by_tokenizers(documents: list[str], lowercase: bool) -> dict[str, int]:
    normalize = normalizers.BertNormalizer(lowercase=lowercase).normalize_str
    split = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    return dict(Counter(word for document in documents for word, _ in split(normalize(document))))


hard = st.sampled_from(
    [
        *" \n\t\r\v\f\0\x1c\x7f\u0085\u00a0\u3000\u2028'’|#!_aBé\u0301\u0323\u0338ßİΣжक्षि",
        *"中\uf900\U0002ceae\U00030000\u1100\u1161\u200d\ufeff\ufffd\ue000ǅﬁ１–“\ud7ff",
        *"\U0010ffff\u037e\u1fef\u2260\u226e\u212a",
    ]
)


@given(st.lists(st.one_of(st.text(hard), st.text())), st.booleans())
@example(["a|\u0301b", "\u0301|", "=\u0338", "\u2260 \u037e"], True)
def test_words_are_those_of_tokenizers(documents, lowercase):
    assert normalized(documents, lowercase) == normalized_by_tokenizers(documents, lowercase)


@pytest.mark.slow
@pytest.mark.parametrize("lowercase", [True, False])
def test_words_around_every_code_point_are_those_of_tokenizers(lowercase):
    characters = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    documents = [
        "".join(f"x{c}Y.{c}z {c}" for c in characters[start : start + 1000])
        for start in range(0, len(characters), 1000)
    ]
    assert normalized(documents, lowercase) == normalized_by_tokenizers(documents, lowercase)


# ---- vocabulary ----


def test_the_first_tokens_are_in_an_order_of_ours():
    histogram = {"ba": 3, "cab": 2, "é": 1}
    assert first_of(histogram) == ["[UNK]", *"abcé", "##a", "##b"]
    assert first_of(histogram, ("[UNK]", "b", "##b")) == ["[UNK]", "b", "##b", *"acé", "##a"]
    # a 5, b 5, c 2, é 1; of equally frequent ones the smaller code point stays.
    assert first_of(histogram, limit_alphabet=1) == ["[UNK]", "a", "##a"]
    assert first_of(histogram, limit_alphabet=3) == ["[UNK]", *"abc", "##a", "##b"]
    limits = {"limit_alphabet": 2, "initial_alphabet": "é中"}
    assert first_of(histogram, **limits) == ["[UNK]", *"é中"]
    assert first_of(histogram, ("[UNK]", "a"), **limits) == ["[UNK]", *"aé中", "##a"]
    assert first_of({}) == ["[UNK]"]


def test_words_are_encoded_as_the_model_does_and_not_as_they_were_merged():
    # ##cde is merged before abc, so that abcde becomes ab ##cde; encoded it is abc ##d ##e.
    histogram = {"xcde": 20, "abc": 9, "abcde": 1, "f" * 101: 1}
    trained = train(histogram, 100, min_frequency=5)
    assert {"ab", "##cde", "abc"} < set(trained.tokens) and "##de" not in trained.tokens
    vocabulary = {token: i for i, token in enumerate(trained.tokens)}
    model = models.WordPiece(vocabulary, unk_token="[UNK]")
    assert trained.word_tokens.tolist() == [len(model.tokenize(word)) for word in histogram]
    assert trained.word_tokens.tolist() == [1, 1, 3, 1]  # [UNK] for more than 100 characters


histograms = st.dictionaries(
    st.text("abcé中", min_size=1, max_size=20), st.integers(1, 6), min_size=1, max_size=10
)
# The later ones are spelled by merges, which then take their ids.
special_tokens = st.sampled_from(
    [(), ("é", "<s>"), ("ab",), ("##a", "##bc", "c"), ("aaaa", "##aa", "##")]
).map(lambda tokens: ("[UNK]", *tokens))


@given(
    kind=st.sampled_from([trainers.BpeTrainer, trainers.WordPieceTrainer]),
    histogram=histograms,
    special_tokens=special_tokens,
    limits=st.fixed_dictionaries(
        {
            "limit_alphabet": st.sampled_from([1, 2, 3, 4, 5, 100]),
            "initial_alphabet": st.sampled_from(["", "zé"]),
        }
    ),
    max_token_length=st.sampled_from([None, 1, 3, 4, 5, 8]),
    vocab_size=st.sampled_from([1, 12, 14, 16, 25, 1000]),
    min_frequency=st.integers(0, 3),
)
def test_merges_are_those_of_tokenizers_given_its_order(
    kind, histogram, special_tokens, limits, max_token_length, **settings
):
    if kind is trainers.BpeTrainer:
        settings["max_token_length"] = max_token_length
    trainer = kind(
        special_tokens=list(special_tokens),
        continuing_subword_prefix="##",
        show_progress=False,
        **limits | {"initial_alphabet": list(limits["initial_alphabet"])},
        **settings,
    )
    tokens, merges = theirs(histogram, trainer)
    first = unmerged(tokens, special_tokens)
    found = train(histogram, special_tokens=special_tokens, first=first, **settings)
    assert found.tokens == tokens
    assert kind is trainers.WordPieceTrainer or found.merges == merges

    own = first_of(histogram, special_tokens, **limits)
    times = Counter(character for word, n in histogram.items() for character in word * n)
    if limits["limit_alphabet"] == 100:
        assert sorted(own) == sorted(first)
        if not any(token.startswith("##") for token in special_tokens):  # theirs are in order, too
            assert [t for t in own if t[:2] != "##"] == [t for t in first if t[:2] != "##"]
    elif not limits["initial_alphabet"] and not {*times} & {*special_tokens}:
        # The same characters but for equally frequent ones.
        assert sorted(times[t] for t in own if len(t) == 1) == sorted(
            times[t] for t in first if len(t) == 1
        )


# ---- texts ----


@pytest.mark.slow
@pytest.mark.parametrize("lowercase", [True, False])
def test_real_texts_give_the_vocabulary_of_tokenizers(real_texts, lowercase):
    names = ("wikitext-2/wiki.valid.tokens", "imdb/test.jsonl", "norec/valid.jsonl")
    documents = [text for name in names for text in real_texts(name)[:2000]]
    histogram = normalized(documents, lowercase)
    assert histogram == normalized_by_tokenizers(documents, lowercase)
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    for vocab_size, min_frequency in ((1000, 2), (20_000, 1)):
        trainer = trainers.WordPieceTrainer(
            vocab_size=vocab_size,
            min_frequency=min_frequency,
            special_tokens=list(SPECIALS),
            show_progress=False,
        )
        tokenizer.train_from_iterator(documents, trainer)
        vocabulary = tokenizer.get_vocab()
        tokens = sorted(vocabulary, key=vocabulary.__getitem__)
        first = unmerged(tokens, SPECIALS)
        assert sorted(first) == sorted(first_of(histogram, SPECIALS))
        found = train(histogram, vocab_size, SPECIALS, first=first, min_frequency=min_frequency)
        assert found.tokens == tokens
