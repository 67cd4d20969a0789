"""The word table against `tokenizers`, for every tokenizer type that it takes.

More texts: `python -m tests.stress.fuzz_encoding --texts=100000 --seed=7`.
"""

import json
import random
import threading
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests.benchmarks.corpora import unpacked
from tests.stress.fuzz_encoding import (
    backend_of,
    backends_of,
    different,
    draw_texts,
    find_differences,
    small_tokenizer,
)
from tests.tools.places import DATA, ROOT
from tests.tools.published_tokenizers import PUBLISHED, published_or_skip
from tests.tools.tokenizer_factory import changed, config_of, data_of, strings, trained_tokenizer
from tests.tools.tokenizer_families import FAMILIES
from textmill.pipelines.encoding import word_table
from textmill.pipelines.encoding.reference import ReferenceBackend, encode_each
from textmill.pipelines.encoding.tokenizer import load_tokenizer
from textmill.pipelines.encoding.tokenizer_files import canonical_config
from textmill.pipelines.encoding.tokenizer_types import make_backend
from textmill.pipelines.encoding.word_table import WordTable
from textmill.schemas.errors import DataError

_MERGES = config_of(small_tokenizer("Llama 2"))["model"]["merges"]
_FLAGS = ("lstrip", "rstrip", "normalized", "single_word", "special")


@pytest.mark.parametrize("name", FAMILIES)
def test_equal_on_hard_texts(name):
    tokenizer = small_tokenizer(name)
    assert find_differences(tokenizer, islice(draw_texts(tokenizer, 3), 1500)) == (1500, [])


@pytest.mark.parametrize("name", ["gpt2", "roberta-base", "bert-base-uncased"])
def test_published_tokenizers_on_hard_texts(name):
    if not (DATA / "tokenizers" / name).exists():
        pytest.skip("no data to encode with")
    tokenizer = Tokenizer.from_buffer(load_tokenizer(DATA / "tokenizers" / name).json)
    assert find_differences(tokenizer, islice(draw_texts(tokenizer, 4), 2000)) == (2000, [])


@pytest.mark.parametrize("name", FAMILIES)
def test_a_config_is_as_tokenizers_writes_it(name):
    """Whatever of the file it was read from is taken for it."""
    config = config_of(small_tokenizer(name))
    config["added_tokens"].append(
        {"id": 5000, "content": '"vocab":{', "normalized": False, "special": False}
        | dict.fromkeys(["single_word", "lstrip", "rstrip"], False)
    )
    written = Tokenizer.from_buffer(data_of(config)).to_str()
    found = canonical_config(written.encode(), config, "it")
    assert found == json.loads(written)
    assert found["added_tokens"] != config["added_tokens"]  # its id is another


def test_of_merges_that_are_there_twice_the_last_counts():
    config = config_of(small_tokenizer("GPT-2"))
    merges = config["model"]["merges"]
    config["model"]["merges"] = merges + merges[:40]
    tokenizer = Tokenizer.from_buffer(data_of(config))
    assert config_of(tokenizer)["model"]["merges"] == merges[40:] + merges[:40]
    canonical = canonical_config(tokenizer.to_str().encode(), config, "it")
    texts = [*islice(draw_texts(tokenizer, 5), 500)]
    for is_kept, name in ((False, "gigatoken"), (True, "word table")):
        backend = make_backend(canonical, tokenizer, is_kept=is_kept)
        assert not isinstance(backend, str) and backend.name == name
        assert different(backend, tokenizer, texts) == []


@given(st.randoms(use_true_random=True))
def test_any_added_tokens_are_found_or_refused(draw):
    name = draw.choice(["GPT-2", "Qwen 2", "BERT uncased", "T5, XLM-R", "Llama 2", "Mistral"])
    config = config_of(small_tokenizer(name))
    contents = ["<a>", "<a", "a>", "ab", "a b", " x", "  ", "\n", "é", "e\u0301", "<a><a>", "中"]
    for content in draw.sample(contents, 4):
        flags = {flag: draw.random() < 0.3 for flag in _FLAGS}
        flags["single_word"] &= draw.random() < 0.3
        number = len(config["added_tokens"]) + 5000
        config["added_tokens"].append({"id": number, "content": content} | flags)
    tokenizer = Tokenizer.from_buffer(data_of(config))
    backend = make_backend(config_of(tokenizer), tokenizer)
    if isinstance(backend, str):
        assert "added token" in backend
        return
    assert backend.name == ("gigatoken" if name in ("GPT-2", "Qwen 2") else "word table")
    pool = [*contents, *"<a>b x", " ", "\t", "\u3000", "\u0301", "hello"]
    texts = ["".join(draw.choices(pool, k=draw.randrange(1, 9))) for _ in range(500)]
    assert different(backend, tokenizer, texts) == []


@pytest.mark.parametrize(
    ("name", "path", "value", "reason"),
    [
        ("GPT-2", ("model", "dropout"), 0.1, "dropout"),
        ("GPT-2", ("model", "end_of_word_suffix"), "</w>", "end_of_word_suffix"),
        ("GPT-2", ("pre_tokenizer", "use_regex"), False, "does not split"),
        ("GPT-2", ("normalizer",), {"type": "Nmt"}, "Nmt"),
        ("GPT-2", ("added_tokens", 0, "single_word"), True, "single word"),
        ("Llama 3", ("pre_tokenizer", "pretokenizers", 0, "behavior"), "Removed", "Removed"),
        ("Llama 3", ("pre_tokenizer", "pretokenizers", 0, "pattern", "Regex"), "(?<=a)b", "group"),
        ("Llama 3", ("pre_tokenizer", "pretokenizers", 1, "add_prefix_space"), True, "each word"),
        ("BERT cased", ("pre_tokenizer",), {"type": "Whitespace"}, "as BERT does"),
        ("BERT cased", ("added_tokens", 0, "normalized"), True, "normalized text"),
        ("T5, XLM-R", ("pre_tokenizer",), None, "at spaces"),
        (
            "T5, XLM-R",
            ("pre_tokenizer", "pretokenizers", 1, "prepend_scheme"),
            "first",
            "each word",
        ),
        ("Llama 2", ("model", "byte_fallback"), False, "each byte"),
        ("Llama 2", ("normalizer",), {"type": "Prepend", "prepend": "▁"}, "visible"),
        ("Mistral", ("pre_tokenizer", "split"), True, "visible"),
        ("Llama 2", ("model", "merges"), [*_MERGES, ["a", "▁a"]], "crosses"),
    ],
)
def test_other_shapes_are_refused_with_the_reason(name, path, value, reason):
    tokenizer = small_tokenizer(name)
    assert not isinstance(make_backend(config_of(tokenizer), tokenizer), str)
    config = changed(config_of(tokenizer), *path, value=value)
    assert reason in str(make_backend(config, tokenizer))


@pytest.mark.parametrize("name", ["Llama 3", "BERT uncased"])
def test_a_full_table_starts_anew(name, monkeypatch):
    tokenizer = small_tokenizer(name)
    monkeypatch.setattr(word_table, "_MOST_BYTES", 3 << 20)
    monkeypatch.setattr(WordTable, "batch_bytes", 10_000)
    draw = random.Random(5)
    words = ["".join(draw.choices("abcdefghijkl", k=draw.randrange(5, 30))) for _ in range(40_000)]
    texts = [" ".join(words[start : start + 2000]) for start in range(0, len(words), 2000)]
    backend = backend_of(tokenizer)
    assert different(backend, tokenizer, texts) == []
    [table] = backend._encoders
    assert isinstance(table, WordTable) and table._bytes() < 4 << 20
    monkeypatch.undo()
    assert different(backend, tokenizer, texts) == []
    assert table._bytes() > 4 << 20  # or the limit would show nothing


@pytest.mark.parametrize("name", ["GPT-2", "BERT cased", "ALBERT", "Llama 2"])
def test_words_of_any_length(name):
    tokenizer = small_tokenizer(name)
    texts = [
        f"{before}{unit * size}"
        for unit in ("a", "中", " ", "▁", "'s", "\u0301", "ab ")
        for size in (1, 7, 8, 9, 15, 16, 17, 255, 256, 257, 70_000 // len(unit))
        for before in ("", "x", " ")
    ]
    assert different(backend_of(tokenizer), tokenizer, texts) == []


TEXTS = ["skipped", "", "one two", "", "\U000323b0 <s> three", "<s>", "", "four", "skipped"]
ROBERTA, MISTRAL = trained_tokenizer(), small_tokenizer("Mistral")
REFERENCE = ReferenceBackend(ROBERTA)
BACKENDS = {
    "word table": (MISTRAL, backend_of(MISTRAL)),
    "gigatoken": (ROBERTA, make_backend(config_of(ROBERTA), ROBERTA)),
    "tokenizers": (ROBERTA, REFERENCE),
}


@pytest.mark.parametrize(("tokenizer", "backend"), BACKENDS.values(), ids=BACKENDS)
def test_slices_and_empty_documents(tokenizer, backend):
    ragged = backend.encode(strings(*TEXTS).slice(1, 7))
    expected = encode_each(tokenizer, TEXTS[1:8])
    assert ragged.lengths.tolist() == [len(ids) for ids in expected]
    assert ragged.values.tolist() == [i for ids in expected for i in ids]
    assert ragged.values.dtype == np.uint32 and ragged.offsets.dtype == np.int64
    for nothing in (strings(), strings("", ""), strings("a").slice(1)):
        ragged = backend.encode(nothing)
        assert ragged.values.tolist() == []
        assert ragged.offsets.tolist() == [0] * (len(nothing) + 1)


@pytest.mark.parametrize("name", ["BERT uncased", "Qwen 2"])
def test_threads_do_not_meet(name):
    tokenizer = small_tokenizer(name)
    backend, wrong = backends_of(tokenizer)[-1], []

    def work(seed: int) -> None:
        source = draw_texts(tokenizer, seed)
        wrong.extend(different(backend, tokenizer, [next(source) for _ in range(3000)]))

    threads = [threading.Thread(target=work, args=[seed]) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and 1 <= len(backend._encoders) <= 4


def test_after_an_error_no_word_is_left_without_ids(monkeypatch):
    tokenizer = small_tokenizer("BERT uncased")
    backend, text = backend_of(tokenizer), strings("hello हिन्दी e\u0301")

    def fail(tokenizer, texts):
        raise DataError("the tokenizer failed")

    with monkeypatch.context() as patched, pytest.raises(DataError):
        patched.setattr(word_table, "encode_each", fail)
        backend.encode(text)
    assert different(backend, tokenizer, text.to_pylist()) == []


# ---- vocabularies as published, from packages of the index ----


def real_corpus(topics):
    """Documents in English, Norwegian and Python."""
    yield from topics
    for path in sorted(ROOT.glob("*/*.py")):
        yield path.read_text(encoding="utf-8")
    if not DATA.exists():
        return
    for line in unpacked("norec/valid.jsonl.zst").splitlines():
        yield json.loads(line)["text"]
    for article in json.loads(unpacked("squad/dev-v1.1.json.zst"))["data"]:
        for paragraph in article["paragraphs"]:
            yield paragraph["context"]


def hard_corpus():
    """Hard strings, and code points one by one."""
    if not DATA.exists():
        return
    yield from json.loads((DATA / "hard" / "blns.json").read_text(encoding="utf-8"))
    for name in ("utf8tests", "bmp-separated", "sup-unseparated"):
        text = (DATA / "hard" / f"{name}.txt").read_bytes().decode("utf-8", "replace")
        yield from (text[start : start + 20_000] for start in range(0, len(text), 20_000))


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_equal_on_a_mixed_corpus(name, topics, tmp_path):
    path = published_or_skip(name, tmp_path / "tokenizer.json")
    tokenizer = Tokenizer.from_file(str(path))
    for backend in backends_of(tokenizer):
        assert different(backend, tokenizer, [*real_corpus(topics), *hard_corpus()]) == []
        assert different(backend, tokenizer, list(islice(draw_texts(tokenizer, 6), 500))) == []
