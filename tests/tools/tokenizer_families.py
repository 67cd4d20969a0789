"""Tokenizers built as those that people use are published, trained on the spot on any text.

Normalizer, splitting, model and added tokens are as published, only the vocabulary is trained.
"""

import io
from collections.abc import Callable, Sequence
from typing import Any

from sentencepiece import SentencePieceTrainer
from sentencepiece.sentencepiece_model_pb2 import (
    ModelProto,  # pyright: ignore[reportAttributeAccessIssue]
)
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from tests.tools.swig_types import keep_swig_types
from textmill.pipelines.encoding.patterns import PATTERNS

keep_swig_types()

QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = (
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
)
_END = "<|endoftext|>"
Trained = Callable[[Sequence[str], int], Tokenizer]


def _byte_level(texts: Sequence[str], size: int, *patterns: str) -> Tokenizer:
    """Byte-level BPE that splits by some patterns; by GPT-2's own way where none is given."""
    tokenizer = Tokenizer(models.BPE())
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not patterns)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, last]) if patterns else last
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        show_progress=False,
        special_tokens=[_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _cl100k(texts: Sequence[str], size: int) -> Tokenizer:
    tokenizer = _byte_level(texts, size, PATTERNS["cl100k"])
    tokenizer.add_special_tokens(["<|fim_prefix|>", "<|im_start|>", "<|im_end|>"])
    return tokenizer


def _llama3(texts: Sequence[str], size: int) -> Tokenizer:
    """Whole words of the vocabulary are taken without merges, and there are 256 added tokens."""
    trained = _byte_level(texts, size, PATTERNS["llama3"])
    config = trained.to_str().replace('"ignore_merges":false', '"ignore_merges":true')
    tokenizer = Tokenizer.from_str(config)
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]
    tokenizer.add_special_tokens(names + [f"<|reserved_special_token_{i}|>" for i in range(253)])
    return tokenizer


def _qwen2(texts: Sequence[str], size: int) -> Tokenizer:
    tokenizer = _byte_level(texts, size, PATTERNS["qwen2"])
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens(["<tool_call>", "</tool_call>"])
    return tokenizer


def _qwen35(texts: Sequence[str], size: int) -> Tokenizer:
    tokenizer = _byte_level(texts, size, QWEN35)
    tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def _deepseek(texts: Sequence[str], size: int) -> Tokenizer:
    tokenizer = _byte_level(texts, size, *DEEPSEEK)
    tokenizer.normalizer = normalizers.Sequence([])
    tokenizer.add_special_tokens(["<｜begin▁of▁sentence｜>", "<｜User｜>"])
    tokenizer.add_tokens([AddedToken("<think>", normalized=True)])
    return tokenizer


def _starcoder(texts: Sequence[str], size: int) -> Tokenizer:
    """Single digits, then GPT-2's way."""
    tokenizer = _byte_level(texts, size)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    return tokenizer


def _space_first(texts: Sequence[str], size: int) -> Tokenizer:
    """As train_tokenizer writes --add_prefix_space with a pattern, and several normalizers."""
    tokenizer = _byte_level(texts, size, PATTERNS["llama3"])
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    )
    space = pre_tokenizers.Metaspace(" ", prepend_scheme="always", split=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([space, tokenizer.pre_tokenizer])
    return tokenizer


def _modernbert(texts: Sequence[str], size: int) -> Tokenizer:
    """GPT-2's way after NFC, with runs of spaces as added tokens, and [MASK] with its space."""
    tokenizer = _byte_level(texts, size)
    tokenizer.normalizer = normalizers.NFC()
    spaces = [AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)]
    tokenizer.add_tokens([AddedToken("|||IP_ADDRESS|||", normalized=True), *spaces])
    tokenizer.add_special_tokens(
        ["[UNK]", "[CLS]", "[SEP]", "[PAD]", AddedToken("[MASK]", lstrip=True)]
    )
    return tokenizer


def _bert(texts: Sequence[str], size: int, *, lowercase: bool = True) -> Tokenizer:
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, show_progress=False, special_tokens=specials, limit_alphabet=1000
    )
    tokenizer.train_from_iterator(texts, trainer)
    cls, sep = (tokenizer.token_to_id(token) for token in ("[CLS]", "[SEP]"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", cls), ("[SEP]", sep)],
    )
    return tokenizer


def _unigram(texts: Sequence[str], size: int) -> tuple[models.Unigram, bytes]:
    """Pieces by SentencePiece, and its map of characters, as T5 and XLM-R have them."""
    proto = _sentencepiece(texts, size, "unigram")
    pieces = [(piece.piece, piece.score) for piece in proto.pieces]
    model = models.Unigram(pieces, unk_id=2, byte_fallback=False)
    return model, proto.normalizer_spec.precompiled_charsmap


def _t5(texts: Sequence[str], size: int) -> Tokenizer:
    model, characters = _unigram(texts, size)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Precompiled(characters)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>", "<extra_id_0>", "<extra_id_1>"])
    return tokenizer


def _t5_by_metaspace(texts: Sequence[str], size: int) -> Tokenizer:
    """As `transformers` converts them today: Metaspace alone."""
    tokenizer = _t5(texts, size)
    precompiled = tokenizer.normalizer
    tokenizer.normalizer = normalizers.Sequence(
        [precompiled, normalizers.Strip(left=False), normalizers.Replace(Regex(" {2,}"), "▁")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    return tokenizer


def _albert(texts: Sequence[str], size: int) -> Tokenizer:
    tokenizer = _t5([text.lower() for text in texts], size)
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Replace("``", '"'),
            normalizers.Replace("''", '"'),
            normalizers.NFKD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            tokenizer.normalizer,
            normalizers.Replace(Regex(" {2,}"), " "),
        ]
    )
    return tokenizer


def _llama2(texts: Sequence[str], size: int) -> Tokenizer:
    """BPE over whole texts, with a byte for each unknown character's bytes."""
    proto = _sentencepiece(texts, size, "bpe", byte_fallback=True, normalization="identity")
    vocabulary = {piece.piece: i for i, piece in enumerate(proto.pieces)}
    model = models.BPE(
        vocabulary, _merges(vocabulary), unk_token="<unk>", fuse_unk=True, byte_fallback=True
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False) for token in ("<unk>", "<s>", "</s>")]
    )
    return tokenizer


def _gemma(texts: Sequence[str], size: int) -> Tokenizer:
    tokenizer = _llama2(texts, size)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    return tokenizer


def _mistral(texts: Sequence[str], size: int) -> Tokenizer:
    """As Mistral is published since its version 0.3: Metaspace that does not split."""
    tokenizer = _llama2(texts, size)
    tokenizer.normalizer = normalizers.Sequence([])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return tokenizer


def _merges(vocabulary: dict[str, int]) -> list[tuple[str, str]]:
    """All ways to put a piece together of two, the piece that was learnt first first."""
    ways = [
        (vocabulary[piece], vocabulary[piece[:cut]], vocabulary[piece[cut:]], piece, cut)
        for piece in vocabulary
        for cut in range(1, len(piece))
        if piece[:cut] in vocabulary and piece[cut:] in vocabulary and not piece.startswith("<")
    ]
    return [(piece[:cut], piece[cut:]) for _, _, _, piece, cut in sorted(ways)]


def _sentencepiece(
    texts: Sequence[str],
    size: int,
    kind: str,
    *,
    byte_fallback: bool = False,
    normalization: str = "nmt_nfkc",
) -> Any:
    """The model that SentencePiece trains."""
    written = io.BytesIO()
    SentencePieceTrainer.Train(
        sentence_iterator=iter(texts),
        model_writer=written,
        model_type=kind,
        vocab_size=size,
        byte_fallback=byte_fallback,
        normalization_rule_name=normalization,
        remove_extra_whitespaces=normalization != "identity",
        pad_id=0 if kind == "unigram" else -1,
        eos_id=1 if kind == "unigram" else 2,
        unk_id=2 if kind == "unigram" else 0,
        bos_id=-1 if kind == "unigram" else 1,
        hard_vocab_limit=False,
        num_threads=2,
        minloglevel=2,
    )
    proto: Any = ModelProto()
    proto.ParseFromString(written.getvalue())
    return proto


FAMILIES: dict[str, Trained] = {
    "GPT-2": _byte_level,
    "cl100k (Phi-4, OLMo 2)": _cl100k,
    "Llama 3": _llama3,
    "Qwen 2": _qwen2,
    "Qwen 3.5": _qwen35,
    "o200k (gpt-oss)": lambda texts, size: _byte_level(texts, size, PATTERNS["o200k"]),
    "DeepSeek V3": _deepseek,
    "StarCoder": _starcoder,
    "ModernBERT": _modernbert,
    "a space first": _space_first,
    "BERT uncased": _bert,
    "BERT cased": lambda texts, size: _bert(texts, size, lowercase=False),
    "T5, XLM-R": _t5,
    "T5 by Metaspace": _t5_by_metaspace,
    "ALBERT": _albert,
    "Llama 2": _llama2,
    "Gemma": _gemma,
    "Mistral": _mistral,
}


def train_family(name: str, texts: Sequence[str], size: int) -> Tokenizer:
    """A tokenizer of a family, of about `size` tokens, trained on texts."""
    return FAMILIES[name](texts, size)
