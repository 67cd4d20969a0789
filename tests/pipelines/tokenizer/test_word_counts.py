"""Counting words: worked by hand, and `tokenizers`' pre-tokenizer as the oracle."""

import os
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from textmill.pipelines.encoding import splitter
from textmill.pipelines.encoding.patterns import GPT2, PATTERNS, byte_characters, pattern_of
from textmill.pipelines.encoding.splitter import CHUNK
from textmill.pipelines.tokenizer import histogram, uncompiled_patterns, word_counter
from textmill.pipelines.tokenizer.histogram import PreTokenization, from_bytes, to_bytes
from textmill.pipelines.tokenizer.word_counter import WordCounter, add_counts, sort_by_word
from textmill.schemas.errors import DataError


def as_dict(table: pa.Table) -> dict[bytes, int]:
    """A table of counts; no word may occur twice."""
    words = table["word"].to_pylist()
    assert len(set(words)) == len(words)
    return dict(zip(words, table["count"].to_pylist(), strict=True))


def counted(
    documents: list[str], add_prefix_space: bool = False, pattern: str = PATTERNS[GPT2]
) -> dict[bytes, int]:
    """Our counts."""
    counts = WordCounter()
    text = pa.array(["before", *documents, "after"], pa.large_string()).slice(1, len(documents))
    counts.count(text, PreTokenization(pattern, add_prefix_space=add_prefix_space))
    return as_dict(counts.table())


def spaced(document: str) -> str:
    return document if document[:1] == " " else f" {document}"


def cut_by_tokenizers(documents: list[str], pattern: str, add_prefix_space: bool):
    """A pre-tokenizer of a pattern, and documents with the space that it does not add."""
    if pattern == PATTERNS[GPT2]:
        return pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space), documents
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    cut = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), bytes_only])
    return cut, [*map(spaced, documents)] if add_prefix_space else documents


def oracle(
    documents: list[str], add_prefix_space: bool = False, pattern: str = PATTERNS[GPT2]
) -> dict[bytes, int]:
    """The words that `tokenizers` cuts."""
    cut, documents = cut_by_tokenizers(documents, pattern, add_prefix_space)
    split = cut.pre_tokenize_str
    byte_of = {character: byte for byte, character in enumerate(byte_characters())}
    counts = Counter(word for document in documents for word, _ in split(document))
    return {bytes(byte_of[c] for c in word): n for word, n in counts.items()}


hard_characters = st.sampled_from(
    [
        *" \n\t\r\v\u00a0\u3000\u2028\u0085'’aBéж中ก้🙂١½_<!\0\u200d\ufeff\ud7ff\U0010ffff",
        "'s",
        "'ll",
        "  ",
    ]
)


REFUSED = {
    "a look back": r"(?<=\d)\D|\p{L}+(?=\d)|.",
    "a word boundary": r"\b\w+\b| +",
    "a longer look ahead": r"\s+(?=ab)|\w+",
    "a look for the end": r"\w+$|\w",
}


@pytest.mark.parametrize("pattern", [GPT2, "o200k", *REFUSED])  # others: test_splitter
@given(
    st.lists(st.one_of(st.lists(hard_characters, min_size=1).map("".join), st.text(min_size=1))),
    st.booleans(),
)
@example(["\n", " ", "  ", "'s", " 's"], True)
def test_words_are_those_of_tokenizers(pattern, documents, add_prefix_space):
    expression = REFUSED.get(pattern) or pattern_of(pattern)
    found = counted(documents, add_prefix_space, expression)
    assert found == oracle(documents, add_prefix_space, expression)


def test_a_pattern_that_runs_away_is_named():
    pattern = "(x+x+)+y(?<=y)"
    with pytest.raises(
        DataError, match="fails on the text: .*retry-limit.*nested repetitions"
    ) as failed:
        counted(["x" * 40], pattern=pattern)
    assert str(failed.value).startswith(f"--pattern={pattern} ")


@pytest.mark.parametrize("pattern", ["(?=(a+))a*b", "(a{1000}){1000}"])
def test_a_pattern_that_takes_without_end_is_ended(monkeypatch, pattern):
    """It passes its trial on short texts, and takes the square of a longer text's length."""
    monkeypatch.setattr(uncompiled_patterns._CHILD, "_seconds", 1)
    uncompiled_patterns._CHILD.close()  # one that runs has the limit of its start
    with pytest.raises(
        DataError, match="takes more than 1 s for 600,000 characters, 30,000"
    ) as failed:
        counted(["a" * 30_000] * 20, pattern=pattern)
    assert str(failed.value).startswith(f"--pattern={pattern} fails on the text: it takes")


def test_documents_of_several_requests_are_counted_once(monkeypatch):
    monkeypatch.setattr(word_counter, "_REQUEST", 10)
    documents = ["ab cd", "", "ab", "é" * 11, "", "cd", "ab ab"]
    expected = {b"ab": 4, b"cd": 2, b" ": 2, "é".encode() * 11: 1}
    assert counted(documents, pattern=REFUSED["a word boundary"]) == expected


def test_a_chunk_may_end_anywhere():
    for size in range(CHUNK - 6, CHUNK + 2):
        for tail in (" 's b", "\n \n b", "é中 é", "it's 're", " \n", "''s", "1 a1"):
            document = "a" * (size - 2) + tail * 3
            assert counted([document, tail, document[1:]]) == oracle([document, tail, document[1:]])


def test_words_of_any_length_are_told_apart():
    """The key of a word has 15 bytes; longer ones are compared."""
    words = [b"x" * n + last for n in range(40) for last in (b"y", b"z")]
    words += [b"x" * n + b"y" + b"x" * (39 - n) for n in range(40)] + [b"x\0", b"x\0\0"]
    document = " ".join(word.decode() for word in words)
    expected = Counter(document.split(" "))
    assert counted(["a" * 3_500_000]) == {b"a" * 3_500_000: 1}
    found = counted([document, document])
    split = oracle([document, document])
    assert found == split and len(found) > len(expected) - 3


def test_the_end_of_the_text_is_not_left():
    for document in ("abcdefghijklmno", "abcdefghijklmnop", "a b c d e f g h", "é"):
        whole = pa.array([document + "q" * 20, document], pa.large_string())
        for text in (pa.array([document], pa.large_string()), whole.slice(1)):
            counts = WordCounter()
            counts.count(text, PreTokenization())
            assert as_dict(counts.table()) == oracle([document])


def test_tables_grow():
    documents = [" ".join(f"{i:x}" for i in range(start, start + 7000)) for start in (0, 3000)]
    documents += ["".join(chr(0x4E00 + i * j % 1999) for i in range(30)) for j in range(1, 2000)]
    assert counted(documents) == oracle(documents)


def test_buckets_hold_each_word_once_and_always_the_same():
    words = [b"%d," % i * (1 + i % 9) for i in range(1000)]
    table = pa.table([words, list(range(1, 1001))], schema=histogram.SCHEMA)
    where = {}
    for part in (table, table.slice(500, 100), table.take(pa.array(range(999, 0, -1)))):
        counts = WordCounter()
        counts.add(part)
        buckets = dict(counts.buckets())
        assert as_dict(pa.concat_tables(buckets.values())) == as_dict(part)
        found = {word: b for b, t in buckets.items() for word in t["word"].to_pylist()}
        where = where or found
        assert len(set(where.values())) == word_counter.BUCKETS
        assert found.items() <= where.items()


def test_adding():
    one = pa.table([[b"a", b"b"], [1, 2]], schema=histogram.SCHEMA)
    two = pa.table([[b"b", b"\xff\0" * 20], [1 << 40, 1]], schema=histogram.SCHEMA)
    added = {b"a": 2, b"b": (1 << 40) + 4, b"\xff\0" * 20: 1}
    assert as_dict(add_counts([one, two, one])) == added
    assert as_dict(add_counts([pa.concat_tables([one, two]).slice(1)])) == {
        b"b": (1 << 40) + 2,
        b"\xff\0" * 20: 1,
    }
    assert from_bytes(to_bytes(two)).equals(two)
    assert add_counts([]).num_rows == 0 and counted([]) == counted(["", ""]) == {}
    assert histogram.table_bytes(one) == 3
    assert histogram.table_bytes(one.slice(0, 0)) == 0


_ALIKE = st.text("\0aé\xff", max_size=20).map(str.encode)  # many begin with the same eight bytes


@given(st.lists(_ALIKE | st.binary(max_size=10), unique=True), st.integers(0, 9))
@example(
    [b"\xff" * 8, b"a", b"a\0", b"a\0b", b"\x7f" * 8, b"12345678b", b"12345678a", b"12345678"], 3
)
def test_words_are_sorted_by_their_bytes(words, before):
    table = pa.table([words, range(len(words))], schema=histogram.SCHEMA)
    chunks = pa.concat_tables([table.slice(0, before), table.slice(before)])
    expected = sorted(zip(words, range(len(words)), strict=True))
    ordered = sort_by_word(chunks)
    assert [*zip(*(column.to_pylist() for column in ordered), strict=True)] == expected


@pytest.mark.parametrize("pattern", [PATTERNS[GPT2], r"[a-z]+(?!x)|\d"])
def test_a_kept_pattern_cuts_as_a_compiled_one(monkeypatch, tmp_path, pattern):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    texts = ["it's a dog,  and 12 é\n\n", "abx aaxx"]
    for is_compiled in (True, False):  # the second process finds the tables of the first
        word_counter._splitter.cache_clear()
        assert (word_counter._splitter(pattern) is splitter.split_by(pattern)) == is_compiled
        assert counted(texts, pattern=pattern) == oracle(texts, False, pattern)
    [name] = os.listdir(tmp_path / "textmill" / "tokenizers")
    (tmp_path / "textmill" / "tokenizers" / name).write_bytes(b"damaged")
    word_counter._splitter.cache_clear()
    assert counted(texts, pattern=pattern) == oracle(texts, False, pattern)
    word_counter._splitter.cache_clear()


def test_no_call_a_word_or_a_document(calls_of):
    """Measured: 303 calls for 1 MB and 987 for 4 MB: some ten for each chunk of 16,384 words."""
    counted(["loads what is compiled"])
    words = [f" word{i * i:x}" for i in range(20_000)]
    for megabytes in (1, 4):
        documents = ["".join(words[i % 977 : i % 977 + 500]) for i in range(200 * megabytes)]
        text = pa.array(documents, pa.large_string())
        counts = WordCounter()
        calls = calls_of(lambda counts=counts, text=text: counts.count(text, PreTokenization()))
        assert calls <= 60 + counts.table()["count"].to_numpy().sum() / 1000
        assert text.nbytes > megabytes * 900_000
