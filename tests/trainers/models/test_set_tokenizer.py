"""The tokenizer of published weights against that of a set, in every form of it."""

import json

import pytest
from tokenizers import Tokenizer, models, processors

from schemas.errors import DataError, UsageError
from tests.tools.shard_factory import tokenizer_json
from trainers.models.set_tokenizer import check_same_tokens, leading_ids

VOCAB = {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4}
MERGES = [("a", "b"), ("b", "c")]


def bpe(vocab: dict[str, int], merges: list[tuple[str, str]]) -> bytes:
    return Tokenizer(models.BPE(vocab, merges)).to_str().encode()


def words(count: int) -> list[str]:
    vocab = json.loads(tokenizer_json(count))["model"]["vocab"]
    return sorted(vocab, key=vocab.__getitem__)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_list_of_tokens_is_compared(tmp_path, end):
    """As BERT is published: the number of a line is the id; a vocabulary may have grown."""
    for count in (40, 60):
        text = end.join([*words(count), ""])
        (tmp_path / "vocab.txt").write_bytes(text.encode())
        assert check_same_tokens(tokenizer_json(50), str(tmp_path), flag="--init_from=") == []
    (tmp_path / "vocab.txt").write_bytes(text.replace("w7" + end, "seven" + end).encode())
    with pytest.raises(UsageError, match="id 7 is 'seven' there and 'w7' in the dataset .1 ids"):
        check_same_tokens(tokenizer_json(50), str(tmp_path), flag="--init_from=")


def test_merges_are_compared(tmp_path):
    """In one vocabulary, "abc" is ab c by these merges, and a bc in the other order."""
    said = r"the merge \('b', 'c'\) there is \('a', 'b'\) in the dataset"
    ours = bpe(VOCAB, MERGES)
    (tmp_path / "vocab.json").write_text(json.dumps(VOCAB))
    assert check_same_tokens(ours, str(tmp_path), flag="--init_from=") == []
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\nb c\n")
    assert check_same_tokens(ours, str(tmp_path), flag="--init_from=") == []
    (tmp_path / "merges.txt").write_text("#version: 0.2\nb c\na b\n")
    with pytest.raises(UsageError, match=said):
        check_same_tokens(ours, str(tmp_path), flag="--init_from=")
    config = json.loads(ours)
    for merges in (["a b", "b c"], [["a", "b"]]):  # in an old file, and of fewer
        config["model"]["merges"] = merges
        (tmp_path / "tokenizer.json").write_text(json.dumps(config))
        assert check_same_tokens(ours, str(tmp_path), flag="--init_from=") == []
    (tmp_path / "tokenizer.json").write_bytes(bpe(VOCAB, MERGES[::-1]))
    with pytest.raises(UsageError, match=said):
        check_same_tokens(ours, str(tmp_path), flag="--init_from=")


def test_what_cannot_be_compared_is_said(tmp_path):
    (tmp_path / "spiece.model").write_bytes(b"\n\x0e")
    [note] = check_same_tokens(tokenizer_json(50), str(tmp_path), flag="--init_from=")
    assert note.startswith(f"--init_from={tmp_path} has neither tokenizer.json nor vocab.json nor")
    (tmp_path / "vocab.txt").write_bytes(b"\xff")
    with pytest.raises(DataError, match="its tokenizer cannot be read: .*'utf-8'"):
        check_same_tokens(tokenizer_json(50), str(tmp_path), flag="--init_from=")


def test_the_tokenizer_decides_what_begins_a_text():
    """Llama 3's adds a start, GPT-2's and SmolLM2's nothing, an encoder's a start and an end."""
    tokenizer = Tokenizer.from_buffer(tokenizer_json(50))
    byte_level = processors.ByteLevel(trim_offsets=False)
    start = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    assert leading_ids(tokenizer) == [0]  # <s> $A </s>
    for processor, due in ((byte_level, []), (processors.Sequence([byte_level, start]), [0])):
        tokenizer.post_processor = processor
        assert leading_ids(tokenizer) == due
