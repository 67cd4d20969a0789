"""Directories of tokenizer files: the ids of `AutoTokenizer`, or an error with the remedy."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer

from tests.tools.tokenizer_factory import TEXT
from textmill.pipelines.encoding.tokenizer_files import read_tokenizer_files
from textmill.schemas.errors import DataError, UsageError

ROBERTA = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
END = "<|endoftext|>"
SIZE = 430  # of vocabularies of bytes
HARD = (
    *("", " ", "  \n\t ", "The Film 2024", " The  Film  2024 ", "the film 12345 and 3.14159"),
    *("Blåbærsyltetøy på Ærø koster 17½ kr.", "e\u0301 Привет, мир: 中文字符 हिन्दी 🙂\u200d🙂"),
    *(
        "they'LL we'll 'tis ''s I'm'd",
        "def f(x):\n        return x\n\n\n",
        "a\r\n\r\nb\u00a0c\u3000",
    ),
    *(f"a{END}b {END} c<s>d</s><unk><pad>e<mask>", "[CLS] a [SEP][MASK] [UNK]x"),
    "x <|im_start|>user\n  hi <tool> THE<TOOL> é<|im_end|>   <extra> <pad2>  end",
)


def _byte_level(specials: tuple[str, ...]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        show_progress=False,
        special_tokens=list(specials),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


def _word_pieces() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=200, show_progress=False, special_tokens=list(BERT)
    )
    tokenizer.train_from_iterator([*TEXT, *(text.lower() for text in TEXT)], trainer)
    return tokenizer


def _token(content: str, **flags: bool) -> dict[str, Any]:
    plain = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized"), False)
    return {"content": content, **plain, "special": True, **flags}


def _typed(content: str, **flags: bool) -> dict[str, Any]:
    """As tokenizer_config.json writes a token out."""
    return {"__type": "AddedToken", **_token(content, **flags)}


NEW = {"<|im_start|>": SIZE, "<|im_end|>": SIZE + 1, "<tool>": SIZE + 2}
# Ids of NEW, with flags; one is not a special token, and takes the space before it along.
DECODER = {
    str(SIZE): _token("<|im_start|>"),
    str(SIZE + 1): _token("<|im_end|>", rstrip=True),
    str(SIZE + 2): _token("<tool>", special=False, normalized=True, lstrip=True),
}
RUNS = {" " * n: SIZE + 9 - n for n in range(9, 1, -1)}  # longest first, as CodeGen's
OPT = {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>"}
Files = dict[str, dict[str, Any]]
CONFIG, MODEL, MAP = "tokenizer_config.json", "config.json", "special_tokens_map.json"
ADDED = "added_tokens.json"


def _named(name: str, **settings: Any) -> Files:
    return {CONFIG: {"tokenizer_class": name, **settings}}


def _model(name: str) -> Files:
    return {MODEL: {"model_type": name}}


# Special tokens of a vocabulary in vocab.json + merges.txt, and the other files.
BYTE_LEVEL: dict[str, tuple[tuple[str, ...], Files]] = {
    "gpt2": ((END,), _named("GPT2Tokenizer")),
    "gpt2 of a model": ((END,), _model("gpt2")),
    "gpt2, added": ((END,), _named("GPT2TokenizerFast") | {ADDED: NEW}),
    "gpt2, added and special": (
        (END,),
        _named("GPT2Tokenizer", add_prefix_space=True)
        | {ADDED: NEW, MAP: {"pad_token": "<|im_end|>", "bos_token": _token("<|im_start|>")}},
    ),
    "gpt2, decoder": (
        (END,),
        # The files of transformers 4 beside it are not read.
        _named("GPT2Tokenizer", added_tokens_decoder={"0": _token(END), **DECODER})
        | {ADDED: {"x": 1}, MAP: {"pad_token": "<|im_end|>"}},
    ),
    "gpt2, new pad and extra": (
        (END,),
        _named("GPT2Tokenizer", additional_special_tokens=["<extra>"], pad_token="<pad2>"),
    ),
    "gpt2, bos and eos": (
        (END,),
        _named("GPT2Tokenizer", add_bos_token=True, add_eos_token=True, bos_token="<|im_start|>")
        | {ADDED: NEW},
    ),
    "opt": (ROBERTA[:4], _named("GPT2Tokenizer", add_bos_token=True, **OPT)),
    "opt, old": (
        ROBERTA[:4],
        _named("GPT2Tokenizer", add_bos_token=True) | {MAP: {k: _token(v) for k, v in OPT.items()}},
    ),
    "roberta": (ROBERTA, _named("RobertaTokenizer", mask_token=_typed("<mask>", lstrip=True))),
    "roberta of a model, without a prefix": (
        ROBERTA,
        _model("roberta") | {MAP: {"mask_token": _token("<mask>", lstrip=True)}},
    ),
    "bart, prefix, added": (
        ROBERTA,
        _named("BartTokenizer", add_prefix_space=True, mask_token=_typed("<mask>")) | {ADDED: NEW},
    ),
    "roberta, other names": (
        ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"),
        _named(
            "RobertaTokenizer",
            **{f"{n}_token": f"[{n.upper()}]" for n in ("pad", "cls", "sep", "unk")},
            **{"bos_token": "[CLS]", "eos_token": "[SEP]", "mask_token": _typed("[MASK]")},
        ),
    ),
    "qwen2": ((END,), _named("Qwen2Tokenizer", added_tokens_decoder=DECODER)),
    "qwen3 of a model": ((END,), _model("qwen3") | {ADDED: NEW}),
    "qwen2, prefix": ((END,), _named("Qwen2TokenizerFast", add_prefix_space=True)),
    "codegen": ((END,), _named("CodeGenTokenizer") | {ADDED: RUNS}),
    "phi": (
        (END,),
        _named("CodeGenTokenizer", add_prefix_space=False) | {ADDED: RUNS, **_model("phi")},
    ),
}
LINES: dict[str, Files] = {
    "bert": _named("BertTokenizer"),
    "bert, cased": _named("BertTokenizerFast", do_lower_case=False),
    "bert, accents": _named("BertTokenizer", strip_accents=False, tokenize_chinese_chars=False),
    "distilbert of a model": _model("distilbert"),
    "electra, added": _named("ElectraTokenizer", do_lower_case=False) | {ADDED: {"<tool>": 200}},
}
WHOLE: dict[str, Files] = {
    "added_tokens.json": _named("PreTrainedTokenizerFast") | {ADDED: NEW},
    "added_tokens_decoder": _named("PreTrainedTokenizerFast", added_tokens_decoder=DECODER),
    "flags of the decoder": _named(
        "PreTrainedTokenizerFast", added_tokens_decoder={"0": _token(END, lstrip=True)}
    ),
    "prefix": _named("GPT2Tokenizer", add_prefix_space=True),
    "prefix, not the class's": _named("PreTrainedTokenizerFast", add_prefix_space=True),
}


def _write(directory: Path, files: Files) -> None:
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content))


def _assert_same(directory: Path) -> None:
    theirs = AutoTokenizer.from_pretrained(directory)
    ours = read_tokenizer_files(str(directory)).parse()[0]
    for text in HARD:
        for adds in (False, True):
            due = theirs(text, add_special_tokens=adds)["input_ids"]
            found = ours.encode(text, add_special_tokens=adds)
            assert found.ids == due, (text, found.tokens, theirs.convert_ids_to_tokens(due))
    assert ours.get_vocab() == theirs.get_vocab()
    flags = {i: str(token) for i, token in ours.get_added_tokens_decoder().items()}
    assert flags == {i: str(token) for i, token in theirs.added_tokens_decoder.items()}


@pytest.mark.parametrize("name", BYTE_LEVEL)
def test_vocab_json_and_merges(name, tmp_path):
    specials, files = BYTE_LEVEL[name]
    _byte_level(specials).model.save(str(tmp_path))
    _write(tmp_path, files)
    _assert_same(tmp_path)


@pytest.mark.parametrize("name", LINES)
def test_vocab_txt(name, tmp_path):
    _word_pieces().model.save(str(tmp_path))
    _write(tmp_path, LINES[name])
    _assert_same(tmp_path)


@pytest.mark.parametrize("name", WHOLE)
def test_tokenizer_json_with_files_beside(name, tmp_path):
    _byte_level((END,)).save(str(tmp_path / "tokenizer.json"))
    _write(tmp_path, WHOLE[name])
    _assert_same(tmp_path)


@pytest.mark.parametrize(
    "settings",
    [{"do_lower_case": True}, {"strip_accents": True}, {"tokenize_chinese_chars": False}],
)
def test_a_normalizer_of_bert_s_class(settings, tmp_path):
    _word_pieces().save(str(tmp_path / "tokenizer.json"))
    cased = {"do_lower_case": False, "strip_accents": False}
    _write(tmp_path, _named("BertTokenizer", **{**cased, **settings}))
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    ours = read_tokenizer_files(str(tmp_path)).parse()[0]
    for text in HARD:
        due = theirs(text, add_special_tokens=False)["input_ids"]
        assert ours.encode(text, add_special_tokens=False).ids == due


REMEDY = r"AutoTokenizer.from_pretrained\(DIR\).save_pretrained"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (_named("CLIPTokenizer"), "has vocab.json and merges.txt with tokenizer_class 'CLIPToke"),
        (_named("WhisperTokenizer"), "with tokenizer_class 'WhisperTokenizer', for which Textmill"),
        (_named("DebertaTokenizer"), "tokenizer_class 'DebertaTokenizer'"),
        (_named("PreTrainedTokenizerFast"), "tokenizer_class 'PreTrainedTokenizerFast'"),
        (_named("BertTokenizer"), "with tokenizer_class 'BertTokenizer', for which"),
        ({CONFIG: {"tokenizer_class": []}}, r"with tokenizer_class \[\], for which"),
        (_model("whisper"), "with model_type 'whisper', for which"),
        ({MODEL: {"tokenizer_class": "ClvpTokenizer", "model_type": "gpt2"}}, "'ClvpTokenizer'"),
    ],
)
def test_another_class_is_refused_with_the_remedy(files, said, tmp_path):
    _byte_level((END,)).model.save(str(tmp_path))
    _write(tmp_path, files)
    with pytest.raises(UsageError, match=f"{said}.*{REMEDY}"):
        read_tokenizer_files(str(tmp_path)).parse()


def test_vocab_txt_of_an_unknown_class_is_refused(tmp_path):
    _word_pieces().model.save(str(tmp_path))
    for files in ({}, _named("BertJapaneseTokenizer"), _model("gpt2")):
        _write(tmp_path, {CONFIG: {}} | files)
        with pytest.raises(UsageError, match=f"has vocab.txt with .*{REMEDY}"):
            read_tokenizer_files(str(tmp_path)).parse()


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            {ADDED: {"<a>": SIZE + 1}},
            f"'<a>' has the id {SIZE + 1} in .*gives it {SIZE};.*{REMEDY}",
        ),
        ({ADDED: {"<a>": SIZE, END: 7}}, f"'{END.replace('|', '.')}' has the id 7 in .*it 0;"),
        ({ADDED: {"<a>": "x"}}, "'<a>' has the id x"),
        ({ADDED: {"<a>": [], "<b>": 1}}, "the added tokens of its tokenizer cannot be read"),
        ({CONFIG: {"added_tokens_decoder": {"x": _token("<a>")}}}, "cannot be read: ValueError"),
        ({CONFIG: {"added_tokens_decoder": {str(SIZE): {}}}}, "cannot be read: KeyError"),
        ({CONFIG: {"added_tokens_decoder": [1]}}, "cannot be read: AttributeError"),
    ],
)
def test_tokens_without_their_ids_are_refused(files, said, tmp_path):
    """Beside vocab.json and beside tokenizer.json."""
    _write(tmp_path, files)
    _byte_level((END,)).model.save(str(tmp_path))
    with pytest.raises(DataError, match=said):
        read_tokenizer_files(str(tmp_path)).parse()
    tokenizer = _byte_level((END,))
    if END not in json.dumps(files):
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        with pytest.raises(DataError, match=said):
            read_tokenizer_files(str(tmp_path)).parse()
