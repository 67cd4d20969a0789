"""Counting words: worked by hand, and `tokenizers`' pre-tokenizer as the oracle."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from pipelines import word_counts
from pipelines.bpe import byte_characters
from pipelines.unicode_guard import disputed_code_points
from pipelines.word_counts import add_counts, count_words, from_bytes, in_buckets, to_bytes

HARD = Path(__file__).parents[2] / "shared" / "data" / "hard"
needs_hard = pytest.mark.skipif(not HARD.is_dir(), reason="../shared/data is not there")


def as_dict(table: pa.Table) -> dict[bytes, int]:
    """A table of counts; no word may occur twice."""
    words = table["word"].to_pylist()
    assert len(set(words)) == len(words)
    return dict(zip(words, table["count"].to_pylist(), strict=True))


def counted(documents: list[str], add_prefix_space: bool = False) -> dict[bytes, int]:
    """Our counts."""
    text = pa.array(documents, pa.large_string())
    return as_dict(count_words(text, add_prefix_space=add_prefix_space)[0])


def oracle(documents: list[str], add_prefix_space: bool = False) -> dict[bytes, int]:
    """What `tokenizers` splits the documents into."""
    split = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space).pre_tokenize_str
    byte_of = {character: byte for byte, character in enumerate(byte_characters())}
    counts = Counter(word for document in documents for word, _ in split(document))
    return {bytes(byte_of[c] for c in word): n for word, n in counts.items()}


def test_counts_worked_by_hand():
    documents = ["it's a dog", "a dog", " a"]
    assert counted(documents) == {b"it": 1, b"'s": 1, b" a": 2, b" dog": 2, b"a": 1}
    assert counted(documents, add_prefix_space=True) == {
        b" it": 1,
        b"'s": 1,
        b" a": 3,
        b" dog": 2,
    }


def test_words_end_with_their_document():
    assert counted(["ab", "cd"]) == {b"ab": 1, b"cd": 1}
    assert counted(["ab\n", "\ncd"]) == {b"ab": 1, b"\n": 2, b"cd": 1}


def test_special_tokens_are_text():
    assert counted(["a<mask>"]) == {b"a": 1, b"<": 1, b"mask": 1, b">": 1}


def test_disputed_documents_go_through_tokenizers():
    disputed = chr(disputed_code_points()[0])
    documents = [f"a{disputed}b", "a b", f"{disputed} b"]
    table, guarded = count_words(pa.array(documents, pa.large_string()), add_prefix_space=False)
    assert guarded == 2
    assert as_dict(table) == oracle(documents)


def test_none_and_slices():
    assert counted([]) == {}
    text = pa.array(["x", "a b", "c", "y"], pa.large_string()).slice(1, 2)
    assert as_dict(count_words(text, add_prefix_space=False)[0]) == {b"a": 1, b" b": 1, b"c": 1}


hard_characters = st.sampled_from(
    [
        *" \n\t\r\v\u00a0\u3000\u2028\u0085'’aBéж中ก้🙂١½_<!\0\u200d\ufeff\ud7ff\U0010ffff",
        "'s",
        "'ll",
        "  ",
    ]
)


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.one_of(st.lists(hard_characters, min_size=1).map("".join), st.text(min_size=1))),
    st.booleans(),
)
@example(["\n", " ", "  ", "'s", " 's"], True)
def test_equals_tokenizers(documents, add_prefix_space):
    assert counted(documents, add_prefix_space) == oracle(documents, add_prefix_space)


@needs_hard
@pytest.mark.parametrize("add_prefix_space", [False, True])
def test_equals_tokenizers_on_hard_texts(add_prefix_space):
    documents = [
        *json.loads((HARD / "blns.json").read_text()),
        *(HARD / "utf8tests.txt").read_text().splitlines(keepends=True),
        (HARD / "bmp-separated.txt").read_text(),
        (HARD / "sup-unseparated.txt").read_text(),
    ]
    documents = [document for document in documents if document]
    assert counted(documents, add_prefix_space) == oracle(documents, add_prefix_space)


def test_a_text_of_one_word_of_megabytes():
    assert counted(["a" * 3_500_000]) == {b"a" * 3_500_000: 1}


def test_lost_bytes_are_noticed(monkeypatch):
    monkeypatch.setattr(word_counts, "_count_fast", lambda texts: word_counts._table([b"a"], [1]))
    with pytest.raises(RuntimeError, match="2 bytes of documents became 1 bytes of words"):
        counted(["aa"])


def test_nothing_is_written_to_standard_error(capfd):
    counted(["a b c"])
    assert capfd.readouterr() == ("", "")


def test_buckets_hold_each_word_once_and_always_the_same():
    words = [b"%d" % i for i in range(1000)]
    table = word_counts._table(words, list(range(1, 1001)))
    buckets = dict(in_buckets(table))
    assert len(buckets) == word_counts.BUCKETS
    together = as_dict(pa.concat_tables(buckets.values()))
    assert together == as_dict(table)
    where = {word: b for b, t in buckets.items() for word in t["word"].to_pylist()}
    for bucket, part in in_buckets(table.slice(500, 100)):
        assert all(where[word] == bucket for word in part["word"].to_pylist())


def test_adding():
    one = word_counts._table([b"a", b"b"], [1, 2])
    two = word_counts._table([b"b", b"\xff\0"], [1 << 40, 1])
    assert as_dict(add_counts([one, two, one])) == {b"a": 2, b"b": (1 << 40) + 4, b"\xff\0": 1}
    assert add_counts([]).num_rows == 0
    assert word_counts.table_bytes(one) == 3
    assert word_counts.table_bytes(one.slice(0, 0)) == 0


def test_bytes_round_trip():
    table = word_counts._table([b"a", b"\0\xff"], [1, np.iinfo(np.int64).max])
    assert from_bytes(to_bytes(table)).equals(table)
    assert len(to_bytes(table.slice(0, 1))) <= len(to_bytes(table))
