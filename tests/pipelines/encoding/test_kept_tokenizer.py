"""Tokenizers from the user's cache beside those that are parsed."""

import os
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from tests.stress.fuzz_encoding import different, draw_texts, small_tokenizer
from tests.tools.tokenizer_factory import trained_tokenizer
from textmill.pipelines.encoding import kept_tokenizer
from textmill.pipelines.encoding.kept_tokenizer import KeptTokenizer, find, keep
from textmill.pipelines.encoding.tokenizer import LoadedTokenizer, load_tokenizer

_ATTRIBUTES = (
    *("json", "sha256", "ids", "vocab_size", "special_ids", "all_special_ids"),
    *("prefix_ids", "suffix_ids", "golden", "token_bytes", "continuing_prefix", "is_byte_level"),
)
KEPT = KeptTokenizer({"a": [1, "é"]}, {"x": np.arange(5), "y": np.zeros((2, 3), np.float32)})


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path) -> Path:
    """An empty cache, which takes small tokenizers, too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(kept_tokenizer, "LEAST_BYTES", 0)
    return tmp_path / "textmill" / "tokenizers"


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("GPT-2", "gigatoken"),
        *((name, "word table") for name in ("Llama 3", "Qwen 2", "DeepSeek V3", "a space first")),
        *((name, "word table") for name in ("BERT uncased", "ALBERT", "Mistral")),
    ],
)
def test_a_kept_tokenizer_is_the_parsed_one(name, backend, tmp_path, folder):
    tokenizer = small_tokenizer(name)
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer.to_str(pretty=True))
    parsed, kept = load_tokenizer(path), load_tokenizer(path)
    assert len(os.listdir(folder)) == 2  # for the file, and for its canonical form
    assert (parsed._kept, kept.load_backend()) == (None, backend)
    for attribute in _ATTRIBUTES:
        assert getattr(kept, attribute) == getattr(parsed, attribute), attribute
    short = [text for text in islice(draw_texts(tokenizer, 8), 300) if text.isascii()]
    for loaded in (kept, LoadedTokenizer(parsed.json)):
        assert different(loaded._choice[0], tokenizer, short) == []
        # Only gigatoken, and words that the table leaves, need `tokenizers`.
        assert ("_tokenizer" in vars(loaded)) >= (backend == "gigatoken")
        assert (
            different(loaded._choice[0], tokenizer, [*islice(draw_texts(tokenizer, 9), 300)]) == []
        )


def test_a_kept_tokenizer_that_no_fast_backend_takes(tmp_path):
    tokenizer = trained_tokenizer()
    tokenizer.pre_tokenizer = None
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    reason = load_tokenizer(tmp_path / "tokenizer.json").load_backend()
    kept = load_tokenizer(tmp_path / "tokenizer.json")
    assert kept._kept is not None and kept.load_backend() == reason
    assert reason.startswith("tokenizers, since it ")


def test_a_file_holds_values_and_arrays(folder):
    keep(("one", "two"), KEPT)
    for key in ("one", "two"):
        found = find(key)
        assert found is not None and found.values == KEPT.values
        assert [(n, a.dtype, a.tolist()) for n, a in found.arrays.items()] == [
            (n, a.dtype, a.tolist()) for n, a in KEPT.arrays.items()
        ]
        assert not any(a.flags.writeable for a in found.arrays.values())
    assert sorted(os.listdir(folder)) == ["one", "two"]


@pytest.mark.parametrize("place", [0, 9, 40, -70])
def test_a_damaged_file_is_ignored_and_made_again(place, folder):
    keep(("key",), KEPT)
    content = (folder / "key").read_bytes()
    damaged = bytearray(content)
    damaged[place] ^= 1
    for broken in (bytes(damaged), content[:-1], content[:70], content[:3], b"", b"x" * 200):
        (folder / "key").unlink()
        (folder / "key").write_bytes(broken)
        assert find("key") is None
    keep(("key",), KEPT)
    assert (folder / "key").read_bytes() == content


def test_other_code_has_other_files(monkeypatch):
    key = kept_tokenizer.key_of(b"{}")
    kept_tokenizer._code.cache_clear()
    monkeypatch.setattr(kept_tokenizer, "version", lambda name: "0.0.1")
    other = kept_tokenizer.key_of(b"{}")
    kept_tokenizer._code.cache_clear()
    assert other != key and other.partition("-")[0] == key.partition("-")[0]


def test_files_used_least_recently_are_removed(monkeypatch, folder):
    monkeypatch.setattr(kept_tokenizer, "MOST_BYTES", 1000)  # each file takes 256 bytes
    for number in range(3):
        keep((f"a{number}", f"b{number}"), KEPT)
        os.utime(folder / f"a{number}", (number, number))
    size = (folder / "a0").stat().st_size
    assert 256 <= size < 500
    assert find("a0") is not None  # is now the most recent
    keep(("new",), KEPT)
    left = {entry.inode(): entry.stat().st_size for entry in os.scandir(folder)}
    assert sum(left.values()) <= 1000 < sum(left.values()) + size
    assert {*os.listdir(folder)} == {"a0", "b0", "a2", "b2", "new"}


def test_a_directory_that_cannot_be_written_changes_nothing(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    keep(("key",), KEPT)
    assert find("key") is None
