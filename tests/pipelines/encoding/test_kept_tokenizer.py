"""Kept tokenizers beside parsed ones, and the files that they are kept in."""

import os
import resource
import subprocess
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from tests.stress.fuzz_encoding import different, draw_texts, small_tokenizer
from tests.tools.tokenizer_factory import strings, trained_tokenizer
from textmill.pipelines.encoding import kept_tokenizer, tokenizer
from textmill.pipelines.encoding.kept_tokenizer import find, keep
from textmill.pipelines.encoding.tokenizer import load_tokenizer, tokenizer_of_json

_ATTRIBUTES = (
    *("json", "sha256", "ids", "vocab_size", "special_ids", "all_special_ids", "golden_pairs"),
    *("prefix_ids", "suffix_ids", "golden", "token_bytes", "continuing_prefix", "is_byte_level"),
    "special_tokens",
)
_VALUE = {"a": [1, "é"], "b": (b"\xe9", None), "x": np.arange(5), "y": np.zeros((2, 3), np.float32)}


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path) -> Path:
    """An empty cache, which takes small tokenizers, too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(kept_tokenizer, "LEAST_BYTES", 0)
    return tmp_path / "textmill" / "tokenizers"


@pytest.mark.parametrize(
    "name",
    ["GPT-2", "Llama 3", "Qwen 2", "DeepSeek V3", "a space first", "BERT uncased", "ALBERT"]
    + ["T5, XLM-R", "Mistral"],
)
def test_a_kept_tokenizer_is_the_parsed_one(name, tmp_path, folder):
    original = small_tokenizer(name)
    path = tmp_path / "tokenizer.json"
    path.write_text(original.to_str(pretty=True))
    parsed = load_tokenizer(path)
    assert not folder.exists()  # until the backend is known
    assert parsed.load_backend() == "word table"
    assert len(os.listdir(folder)) == 2  # names for the file and for its canonical form
    texts = [*islice(draw_texts(original, 9), 300)]
    for kept in (load_tokenizer(path), tokenizer_of_json(parsed.json)):
        assert kept.load_backend() == "word table"
        assert different(kept, original, ["hello, the world 12", ""]) == []
        assert kept._tokenizer._parse.cache_info().currsize == 0  # nothing has asked `tokenizers`
        assert different(kept, original, texts) == []
        for attribute in _ATTRIBUTES:
            assert getattr(kept, attribute) == getattr(parsed, attribute), attribute
        assert (kept.is_word_start == parsed.is_word_start).all()


def test_roles_are_part_of_the_key(tmp_path):
    original = small_tokenizer("GPT-2")
    original.save(str(tmp_path / "tokenizer.json"))
    load_tokenizer(tmp_path).load_backend()
    for token in ("a", "b"):
        (tmp_path / "special_tokens_map.json").write_text(f'{{"pad_token": "{token}"}}')
        for _ in range(2):
            loaded = load_tokenizer(tmp_path)
            assert loaded.special_ids["pad"] == original.token_to_id(token)
            loaded.load_backend()


def test_gigatoken_is_for_inputs_where_its_load_pays(monkeypatch, tmp_path):
    original = small_tokenizer("GPT-2")
    original.save(str(tmp_path / "tokenizer.json"))
    monkeypatch.setattr(tokenizer, "GIGATOKEN_PAYS_BYTES", 1)
    pays = original.get_vocab_size()
    for _ in range(2):
        assert load_tokenizer(tmp_path).load_backend(pays) == "gigatoken"
        assert load_tokenizer(tmp_path).load_backend(pays - 1) == "word table"
    loaded = load_tokenizer(tmp_path)
    for text in ("some words", "some more words " * 100):
        assert loaded.encode(strings(text)).values.tolist() == original.encode(text).ids
    assert loaded._choice[0].name == "gigatoken"


def test_a_tokenizer_without_a_fast_backend_is_not_kept(tmp_path, folder):
    original = trained_tokenizer()
    original.pre_tokenizer = None
    original.save(str(tmp_path / "tokenizer.json"))
    for size in (1, 1 << 30):
        reason = load_tokenizer(tmp_path).load_backend(size)
        assert reason.startswith("tokenizers, since it ")
    assert not folder.exists()


def test_a_small_tokenizer_is_not_kept(monkeypatch, tmp_path, folder):
    monkeypatch.setattr(kept_tokenizer, "LEAST_BYTES", 1 << 17)
    small_tokenizer("GPT-2").save(str(tmp_path / "tokenizer.json"))
    assert load_tokenizer(tmp_path).load_backend(1 << 30) == "gigatoken"
    assert not folder.exists()


# ---- files ----


def _same(found) -> bool:
    return found is not None and all(
        np.array_equal(found[name], value) and type(found[name]) is type(value)
        for name, value in _VALUE.items()
    )


def test_a_file_holds_a_value_without_the_tokenizer(folder):
    original = trained_tokenizer()
    keep(["one", "two"], _VALUE | {"of": original}, original)
    for key in ("one", "two"):
        found = find(key, "another")
        assert _same(found) and found["of"] == "another"
        assert found["x"].ctypes.data % 64 == found["y"].ctypes.data % 64 == 0
    assert sorted(os.listdir(folder)) == ["one", "two"]
    assert os.path.samefile(folder / "one", folder / "two")


@pytest.mark.parametrize("place", [0, 9, 40, 300, -1])
def test_a_damaged_file_is_ignored_and_made_again(place, folder):
    keep(["key"], _VALUE, None)
    content = (folder / "key").read_bytes()
    damaged = bytearray(content)
    damaged[place] ^= 1
    for broken in (bytes(damaged), content[:-1], content[:70], content[:3], b"", b"x" * 200):
        (folder / "key").write_bytes(broken)
        assert find("key", None) is None
    keep(["key"], _VALUE, None)
    assert (folder / "key").read_bytes() == content


def test_a_file_of_another_key_or_user_is_ignored(folder, monkeypatch):
    keep(["key"], _VALUE, None)
    (folder / "other").write_bytes((folder / "key").read_bytes())
    (folder / "other").chmod(0o600)
    assert find("other", None) is None and _same(find("key", None))
    for mode in (0o620, 0o602):
        (folder / "key").chmod(mode)
        assert find("key", None) is None
    (folder / "key").chmod(0o644)
    assert _same(find("key", None))
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert find("key", None) is None


def test_other_code_has_other_keys(monkeypatch):
    key = kept_tokenizer.key_of({"a": b"{}"}, {})
    kept_tokenizer._code.cache_clear()
    monkeypatch.setattr(kept_tokenizer, "version", lambda name: "0.0.1")
    assert kept_tokenizer.key_of({"a": b"{}"}, {}) != key
    kept_tokenizer._code.cache_clear()


def test_files_used_least_recently_are_removed(monkeypatch, folder):
    keep(["a0", "b0"], _VALUE, None)
    size = (folder / "a0").stat().st_size
    monkeypatch.setattr(kept_tokenizer, "MOST_BYTES", 3 * size + 50)
    for number in range(3):
        keep([f"a{number}", f"b{number}"], _VALUE, None)
        os.utime(folder / f"a{number}", (number, number))
    assert find("a0", None) is not None  # is now the most recent
    keep(["new"], _VALUE, None)
    assert {*os.listdir(folder)} == {"a0", "b0", "a2", "b2", "new"}


def test_a_directory_that_cannot_be_written_changes_nothing(monkeypatch, tmp_path, folder):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))  # as on a full disk
    try:
        keep(["key"], _VALUE, None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(folder) == []
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    keep(["key"], _VALUE, None)
    assert find("key", None) is None


@pytest.mark.slow
def test_processes_that_start_at_once(tmp_path, folder):
    small_tokenizer("GPT-2").save(str(tmp_path / "tokenizer.json"))
    code = (
        "from textmill.pipelines.encoding import kept_tokenizer, tokenizer;"
        "kept_tokenizer.LEAST_BYTES = 0;"
        f"print(tokenizer.load_tokenizer({str(tmp_path)!r}).load_backend())"
    )
    command = [sys.executable, "-c", code]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    assert [process.communicate()[0] for process in started] == ["word table\n"] * 8
    assert len(os.listdir(folder)) == 2
