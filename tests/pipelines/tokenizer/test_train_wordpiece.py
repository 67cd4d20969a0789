"""train_tokenizer --model=wordpiece, whole: files in, a BERT tokenizer out, shards made with it."""

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, pre_tokenizers

from tests.tools.places import DATA
from textmill.schemas.errors import DataError, UsageError

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDPIECE = ("--model=wordpiece", "--vocab_size=110")
LINES = [
    "Low lower lowest LOW, newer (wider) newest.",
    "Blåbær på Ærø: 中文字符 и кириллица 🙂",
    "  The Café\tis low; the café is wide!",
] * 3


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return path


def config_of(directory: Path) -> dict:
    return json.loads((directory / "tokenizer.json").read_text(encoding="utf-8"))


def without_ids(config: dict) -> dict:
    del config["model"]["vocab"], config["truncation"]
    for token in config["added_tokens"]:
        del token["id"]
    for token in config["post_processor"]["special_tokens"].values():
        del token["ids"]
    return config


def test_a_whole_run(train, tmp_path, capsys):
    report = train("out", *WORDPIECE)
    tokenizer = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    encodings = tokenizer.encode_batch(LINES, add_special_tokens=False)
    split = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    cut = [w for line in LINES for w, _ in split(tokenizer.normalizer.normalize_str(line))]
    assert report["tokens"] == sum(map(len, encodings))
    assert report["words"] == len(cut) and report["distinct_words"] == len(set(cut))
    single = [len(tokenizer.encode(word, add_special_tokens=False)) == 1 for word in cut]
    assert report["words_of_one_token"] == np.mean(single)
    assert report["parameters"]["model"] == "wordpiece"
    train("out", *WORDPIECE)
    assert "already contains this tokenizer" in capsys.readouterr().out
    with pytest.raises(UsageError, match="lowercase: stored true, requested false"):
        train("out", *WORDPIECE, "--no_lowercase")
    if DATA.is_dir():
        published = without_ids(config_of(DATA / "tokenizers" / "bert-base-uncased"))
        assert without_ids(config_of(tmp_path / "out")) == published

    from transformers import AutoTokenizer

    auto = AutoTokenizer.from_pretrained(str(tmp_path / "out"))
    pair = auto("Low café", "newest [MASK]")
    encoded = tokenizer.encode("Low café", "newest [MASK]")
    assert (pair["input_ids"], pair["token_type_ids"]) == (encoded.ids, encoded.type_ids)
    assert encoded.tokens[:3] == ["[CLS]", "low", "cafe"]
    assert encoded.tokens[-2:] == ["[MASK]", "[SEP]"]
    roles = [auto.pad_token, auto.unk_token, auto.cls_token, auto.sep_token, auto.mask_token]
    assert roles == SPECIALS
    assert auto.decode(auto("low café!")["input_ids"], skip_special_tokens=True) == "low cafe!"


def test_one_histogram_gives_an_uncased_and_a_cased_vocabulary(train, tmp_path):
    flags = ("--model=wordpiece", "--vocab_size=130", "--min_frequency=1")
    train("one", *flags)
    histogram = f"--from_histogram={tmp_path}/one/histogram.parquet"
    train("two", histogram, "--no_lowercase", *flags)
    train("three", "--no_lowercase", *flags)
    two, three = (config_of(tmp_path / name) for name in ("two", "three"))
    assert two == three
    assert two["normalizer"]["lowercase"] is False and "Café" in two["model"]["vocab"]


def test_limits_of_the_alphabet_and_of_tokens(train, tmp_path):
    flags = ("--limit_alphabet=12", "--max_token_length=4", "--initial_alphabet=zq")
    report = train("out", *WORDPIECE, *flags)
    tokens = set(config_of(tmp_path / "out")["model"]["vocab"]) - set(SPECIALS)
    characters = {token for token in tokens if len(token) == 1}
    assert {"z", "q", "e", "w"} < characters and len(characters) == 12
    assert max(len(token.removeprefix("##")) for token in tokens) == 3
    own = {"limit_alphabet": 12, "initial_alphabet": "zq"}
    assert report["parameters"] | own == report["parameters"]


def test_texts_without_words_and_vocabularies_without_merges_are_refused(train, text):
    with pytest.raises(UsageError, match="before any merge; use at least as many, or keep"):
        train("out", "--model=wordpiece", "--vocab_size=50")
    text.write_text("\u200b \u0301\n", encoding="utf-8")
    with pytest.raises(DataError, match="no words are left"):
        train("out", *WORDPIECE)
