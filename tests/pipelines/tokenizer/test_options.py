"""Options of train_tokenizer from argv, from YAML and from Python."""

import pytest

from textmill.pipelines.tokenizer.options import (
    BpeFlags,
    TextFlags,
    TokenizerOptions,
    WordpieceFlags,
)
from textmill.pipelines.tokenizer.values import Normalizers, Pattern
from textmill.pipelines.train_tokenizer import BUILDER
from textmill.schemas.commands.flag_file import config_bytes
from textmill.schemas.errors import FieldError, UsageError

READING = TextFlags(input=("text.txt",))
PARTS = {"bpe": BpeFlags, "wordpiece": WordpieceFlags, "reading": TextFlags}


def parse(*argv):
    return BUILDER.parse(list(argv))[0]


def in_python(**flags):
    """Options from flags by name, whatever part they are of."""
    flags = {"vocab_size": 300, "output": "out", "input": ("text.txt",), **flags}
    for part, kind in PARTS.items():
        names = kind.__dataclass_fields__.keys() & flags.keys()
        flags[part] = kind(**{name: flags.pop(name) for name in names})
    return TokenizerOptions(**flags)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ({"vocab_size": 260}, "at least 261, because the 256 bytes and the special tokens come"),
        ({"vocab_size": 1 << 25}, "at least 261, because"),
        ({"output": ""}, "give the directory of the tokenizer"),
        ({"model": "unigram"}, "give one of bpe, wordpiece"),
        ({"min_frequency": -1}, "at least 0 and below 2**63"),
        ({"max_token_length": 0}, "at least 1 and below 2**63"),
        ({"special_tokens": "<s>,,<x>"}, "'' is empty or has white space around it"),
        ({"special_tokens": "<s>, <x>"}, "' <x>' is empty or has white space around it"),
        ({"special_tokens": "a,b,a"}, "a is given twice"),
        ({"special_tokens": '"a'}, "put a part that holds a comma into double quotes"),
        ({"special_tokens": "[CLS]", "model": "wordpiece"}, "wordpiece needs [UNK]"),
        ({"pattern": "gpt3"}, "no pattern has this name; give one of gpt2, cl100k,"),
        ({"pattern": "digits:0"}, "no pattern has this name"),
        ({"pattern": "gpt2", "model": "wordpiece"}, "it has no effect with wordpiece, only with b"),
        ({"normalizer": "nfx"}, "'nfx' is none of none, nfc, nfd"),
        ({"normalizer": "none,nfc"}, "'none' is none of none, nfc"),
        ({"normalizer": "nfc", "model": "wordpiece"}, "it has no effect with wordpiece"),
        ({"limit_alphabet": 0, "model": "wordpiece"}, "at least 1 and below 2**63"),
        ({"limit_alphabet": 9}, "it has no effect with bpe, only with wordpiece: leave it out"),
        ({"text_field": "x", "from_histogram": "h"}, "it has no effect with a histogram, which h"),
    ],
    ids=str,
)
def test_one_refusal_from_argv_yaml_and_python(flags, reason, tmp_path):
    name, value = next(iter(flags.items()))
    expected = f"{name}={value}: {reason}"
    others = {"vocab_size": 300, "output": "out"}
    if "from_histogram" not in flags:
        others["input"] = "text.txt"
    argv = [f"--{key}={each}" for key, each in (others | flags).items()]
    with pytest.raises(FieldError) as of_argv:
        parse(*argv)
    path = tmp_path / "job.yaml"
    lines = [f"{key}: {each!r}\n" for key, each in (others | flags).items()]
    path.write_text("".join(lines))
    with pytest.raises(UsageError) as of_yaml:
        parse(f"--config={path}")
    with pytest.raises(FieldError) as of_python:
        in_python(**{"input": ()} | others | flags)
    assert str(of_argv.value) == f"--{of_python.value.in_python()}"
    assert str(of_yaml.value) == f"{path}: {of_python.value.in_python()}"
    assert of_python.value.in_python().startswith(expected)


def test_values_are_what_they_mean_wherever_they_come_from(tmp_path):
    expected = TokenizerOptions(
        vocab_size=300,
        output="out",
        special_tokens=("<s>", "a,b"),
        reading=READING,
        bpe=BpeFlags(pattern=Pattern("llama3"), normalizer=Normalizers(("nfc", "lowercase"))),
    )
    named = {"special_tokens": ["<s>", "a,b"], "pattern": "llama3", "normalizer": "nfc,lowercase"}
    assert in_python(**named) == expected
    argv = ["--vocab_size=300", "--output=out", "--input=text.txt", "--pattern=llama3"]
    argv += ["--normalizer=nfc,lowercase"]
    assert parse(*argv, '--special_tokens=<s>,"a,b"') == expected
    path = tmp_path / "config.yaml"
    path.write_bytes(config_bytes("pipelines.train_tokenizer", expected))
    texts = {'special_tokens: <s>,"a,b"', "pattern: llama3", "normalizer: nfc,lowercase"}
    assert texts <= set(path.read_text().splitlines())
    assert parse(f"--config={path}", "--output=out") == expected


def test_defaults_depend_on_the_model():
    assert parse("--vocab_size=300", "--output=o", "--input=t", "--special_tokens=").specials == ()
    bpe, wordpiece = in_python(), in_python(model="wordpiece")
    assert bpe.specials == ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    assert wordpiece.specials == ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    assert bpe.bpe == BpeFlags(pattern=None, normalizer=None) and bpe.special_tokens is None
    parameters = bpe.parameters()
    assert (parameters["pattern"], parameters["normalizer"]) == (None, None)
    assert in_python(normalizer="none").parameters()["normalizer"] == "none"
