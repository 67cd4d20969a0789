"""The tokenizer of published weights against that of a set, in every form of it."""

import json
from typing import Any

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from tests.tools.shard_factory import tokenizer_json
from tests.tools.tokenizer_factory import changed, config_of, data_of, trained_tokenizer
from textmill.schemas.errors import DataError, UsageError, as_flags
from textmill.trainers.models.set_tokenizer import (
    check_same_tokens,
    leading_ids,
    open_tokenizer,
    published_tokenizer,
)

VOCAB = {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4}
MERGES = [("a", "b"), ("b", "c")]


def bpe(vocab: dict[str, int], merges: list[tuple[str, str]]) -> bytes:
    tokenizer = Tokenizer(models.BPE(vocab, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer.to_str().encode()


def words(count: int) -> list[str]:
    vocab = json.loads(tokenizer_json(count))["model"]["vocab"]
    return sorted(vocab, key=vocab.__getitem__)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_list_of_tokens_is_compared(tmp_path, end):
    """As BERT is published: the number of a line is the id; a vocabulary may have grown."""
    for count in (40, 60):
        text = end.join([*words(count), ""])
        (tmp_path / "vocab.txt").write_bytes(text.encode())
        [note] = check_same_tokens(tokenizer_json(50), str(tmp_path), field="init_from")
        assert "only tokens were compared with the dataset's" in note and "vocab.txt with" in note
    (tmp_path / "vocab.txt").write_bytes(text.replace("w7" + end, "seven" + end).encode())
    with pytest.raises(UsageError, match="id 7 is 'seven' there and 'w7' in the dataset .1 ids"):
        check_same_tokens(tokenizer_json(50), str(tmp_path), field="init_from")


def test_merges_are_compared(tmp_path):
    """In one vocabulary, "abc" is ab c by these merges, and a bc in the other order."""
    said = r"the merge \('b', 'c'\) there is \('a', 'b'\) in the dataset"
    ours = bpe(VOCAB, MERGES)
    (tmp_path / "vocab.json").write_text(json.dumps(VOCAB))
    [note] = check_same_tokens(ours, str(tmp_path), field="init_from")
    assert note.endswith("only tokens were compared with the dataset's: merges.txt is missing")
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\nb c\n")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    assert check_same_tokens(ours, str(tmp_path), field="init_from") == []
    (tmp_path / "merges.txt").write_text("#version: 0.2\nb c\na b\n")
    with pytest.raises(UsageError, match=said):
        check_same_tokens(ours, str(tmp_path), field="init_from")
    config = json.loads(ours)
    config["model"]["merges"] = ["a b", "b c"]  # as in an old file
    del config["pre_tokenizer"]["use_regex"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(config))
    assert check_same_tokens(ours, str(tmp_path), field="init_from") == []
    (tmp_path / "tokenizer.json").write_bytes(bpe(VOCAB, MERGES[::-1]))
    with pytest.raises(UsageError, match=said):
        check_same_tokens(ours, str(tmp_path), field="init_from")


LOWER, DIGITS = {"type": "Lowercase"}, {"type": "Digits", "individual_digits": True}


def _byte_level(**flags: bool) -> dict[str, Any]:
    plain = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"type": "ByteLevel", **plain, **flags}


@pytest.mark.parametrize(
    ("part", "value", "said"),
    [
        (
            "normalizer",
            LOWER,
            r"'The Film 2024' is \['t', 'he', .* there and \['The', .* by a different normalizer",
        ),
        ("normalizer", {"type": "NFD"}, "'Ærø på 17½ kr.' is .* by a different normalizer"),
        ("normalizer", {"type": "NFKC"}, "'Ærø på 17½ kr.' is .*normalizer"),
        ("normalizer", {"type": "Strip", "strip_left": True, "strip_right": True}, "' film' is"),
        (
            "pre_tokenizer",
            _byte_level(add_prefix_space=True),
            r"'The Film 2024' is \['Ġ', .* there and \['The', .* by a different pre_tokenizer",
        ),
        (
            "pre_tokenizer",
            {"type": "Sequence", "pretokenizers": [DIGITS, _byte_level()]},
            "'The Film 2024' is .*pre_tokenizer",
        ),
        (
            "pre_tokenizer",
            {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
            "'",
        ),
    ],
)
@pytest.mark.parametrize("merges", [None, 60])
def test_settings_are_compared_by_ids(part, value, said, merges, tmp_path):
    """The tokens are the same, or fewer: "The Film 2024" has other ids."""
    ours = config_of(trained_tokenizer())
    ours["pre_tokenizer"] = _byte_level()
    model = ours["model"]
    ranks = {word: i for i, word in enumerate(["Ġ2024", "2024", "20", "24"], len(model["vocab"]))}
    model["vocab"] |= ranks
    model["merges"] += [["2", "0"], ["2", "4"], ["20", "24"], ["Ġ", "2024"]]
    theirs = changed(ours, part, value=value)
    theirs["model"]["merges"] = model["merges"][:merges]
    (tmp_path / "tokenizer.json").write_bytes(data_of(theirs))
    with pytest.raises(
        UsageError, match=f"^{tmp_path}: its tokenizer is not the dataset's: {said}"
    ):
        check_same_tokens(data_of(ours), str(tmp_path), field="")


def test_settings_without_an_effect_are_named(tmp_path):
    """Two ways to write one thing are no error."""
    ours = config_of(trained_tokenizer())
    theirs = changed(ours, "normalizer", value={"type": "Sequence", "normalizers": []})
    (tmp_path / "tokenizer.json").write_bytes(data_of(theirs))
    [note] = check_same_tokens(data_of(ours), str(tmp_path), field="")
    end = "the normalizer of its tokenizer is not the dataset's, though 13 texts get the same ids"
    assert note == f"{tmp_path}: {end}"


def test_settings_of_other_files_are_compared(tmp_path):
    """vocab.json + merges.txt, and BERT's vocab.txt, whose class and settings lie beside them."""
    ours = trained_tokenizer()
    ours.model.save(str(tmp_path))
    config = tmp_path / "tokenizer_config.json"
    config.write_text('{"tokenizer_class": "RobertaTokenizer"}')
    assert check_same_tokens(ours.to_str().encode(), str(tmp_path), field="") == []
    for settings in (
        {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": True},
        {"tokenizer_class": "Qwen2Tokenizer"},
    ):
        config.write_text(json.dumps(settings))
        with pytest.raises(UsageError, match=" there and .* in the dataset, by a different "):
            check_same_tokens(ours.to_str().encode(), str(tmp_path), field="")
    vocab = {word: i for i, word in enumerate(["[UNK]", "The", "the", "film", "Film", "2024"])}
    bert = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    bert.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    bert.normalizer = normalizers.BertNormalizer(lowercase=False)
    lines = tmp_path / "bert"
    lines.mkdir()
    bert.model.save(str(lines))
    for lower in (False, True):
        settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": lower}
        settings |= {f"{role}_token": "[UNK]" for role in ("cls", "sep", "mask", "pad")}
        (lines / "tokenizer_config.json").write_text(json.dumps(settings))
        if lower:
            with pytest.raises(UsageError, match="'The Film 2024' is .*by a different normalizer"):
                check_same_tokens(bert.to_str().encode(), str(lines), field="")
        else:
            assert check_same_tokens(bert.to_str().encode(), str(lines), field="") == []


def test_a_published_tokenizer_has_the_tokens_beside_it(tmp_path):
    """Of tokenizer.json, of vocab.json + merges.txt, or of a class that nothing here knows."""
    assert published_tokenizer(tmp_path) is None
    ours = trained_tokenizer()
    size = ours.get_vocab_size()
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<|im_end|>": size}))
    ours.model.save(str(tmp_path))
    ours.add_tokens(["<|im_end|>"])
    text = "The film<|im_end|> ends"
    config = tmp_path / "tokenizer_config.json"
    for name in ("RobertaTokenizer", "CLIPTokenizer"):
        config.write_text(json.dumps({"tokenizer_class": name}))
        found = published_tokenizer(tmp_path)
        if name == "CLIPTokenizer":
            assert found is None
        else:
            assert found and open_tokenizer(found).encode(text).ids == ours.encode(text).ids
    trained_tokenizer().save(str(tmp_path / "tokenizer.json"))
    found = published_tokenizer(tmp_path)
    assert found and open_tokenizer(found).encode(text).ids == ours.encode(text).ids


def test_a_tokenizer_of_another_size_is_named(tmp_path):
    """It splits texts otherwise; an added token does not."""
    large = config_of(trained_tokenizer())
    merges = large["model"]["merges"]
    small = changed(large, "model", "merges", value=merges[:100])
    kept = 5 + 256 + 100
    vocab = {token: i for token, i in large["model"]["vocab"].items() if i < kept}
    small = changed(small, "model", "vocab", value=vocab)
    for ours, theirs in ((small, large), (large, small)):
        (tmp_path / "tokenizer.json").write_bytes(data_of(theirs))
        [note] = check_same_tokens(data_of(ours), str(tmp_path), field="init_from")
        (there, theirs_long), (here, ours_long) = (
            (len(config["model"]["merges"]), 12 if config is small else 11)
            for config in (theirs, ours)
        )
        assert as_flags(note) == (
            f"the dataset's tokenizer has {here} merges and that of --init_from={tmp_path} {there},"
            f" so it splits texts otherwise: 'Ærø på 17½ kr.' is {theirs_long} tokens there and "
            f"{ours_long} here. Losses for a token cannot be compared; bits per byte can"
        )
    grown = trained_tokenizer()
    grown.add_special_tokens(["<|im_start|>"])
    (tmp_path / "tokenizer.json").write_bytes(data_of(large))
    assert check_same_tokens(grown.to_str().encode(), str(tmp_path), field="") == []


def test_what_cannot_be_compared_is_said(tmp_path):
    (tmp_path / "spiece.model").write_bytes(b"\n\x0e")
    [note] = check_same_tokens(tokenizer_json(50), str(tmp_path), field="init_from")
    assert as_flags(note).startswith(
        f"--init_from={tmp_path} has neither tokenizer.json nor vocab.json nor"
    )
    (tmp_path / "vocab.txt").write_bytes(b"\xff")
    with pytest.raises(DataError, match="its tokenizer cannot be read: .*'utf-8'"):
        check_same_tokens(tokenizer_json(50), str(tmp_path), field="init_from")


def test_the_tokenizer_decides_what_begins_a_text():
    """Llama 3's adds a start, GPT-2's and SmolLM2's nothing, an encoder's a start and an end."""
    tokenizer = Tokenizer.from_buffer(tokenizer_json(50))
    byte_level = processors.ByteLevel(trim_offsets=False)
    start = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    assert leading_ids(tokenizer) == [0]  # <s> $A </s>
    for processor, due in ((byte_level, []), (processors.Sequence([byte_level, start]), [0])):
        tokenizer.post_processor = processor
        assert leading_ids(tokenizer) == due
