"""Byte-level BPE, as GPT-2 and RoBERTa have it."""

from typing import Any

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from pipelines.encoding.normal_text import normalizer_of
from pipelines.encoding.splitting.patterns import GPT2, PATTERNS
from pipelines.train.bpe import Trained, train_bpe
from pipelines.train.cutting import Cutting
from pipelines.train.histogram import Histogram
from pipelines.train.options import TokenizerOptions
from pipelines.train.tokenizer_json import add_special_tokens

_ROLES = {  # what transformers calls them, for the special tokens that RoBERTa has
    "bos_token": "<s>",
    "cls_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
}


def words_of(histogram: Histogram, _: TokenizerOptions) -> Histogram:
    """The words as they were cut."""
    return histogram


def train(words: Histogram, options: TokenizerOptions, progress: np.ndarray) -> Trained:
    """See `bpe.train_bpe`."""
    return train_bpe(
        words.words,
        words.counts["count"].to_numpy(),
        vocab_size=options.vocab_size,
        min_frequency=options.min_frequency,
        max_token_length=options.max_token_length,
        special_tokens=options.specials(),
        progress=progress,
    )


def tokenizer_json(trained: Trained, words: Histogram, options: TokenizerOptions) -> bytes:
    """The file's content: a byte-level BPE, and RoBERTa's `<s> text </s>` if it can.

    Ids, merges and added tokens are as `tokenizers` itself would save them after training. As in
    RoBERTa as it was published, `<mask>` takes the space before it along, because it stands for a
    word with its space.
    """
    cutting = words.origin.cutting
    vocabulary = {token: i for i, token in enumerate(trained.tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, trained.merges))
    if cutting.normalizers:
        tokenizer.normalizer = normalizer_of(cutting.normalizers)
    tokenizer.pre_tokenizer = _pre_tokenizer(cutting)
    tokenizer.decoder = decoders.ByteLevel()
    specials = options.specials()
    add_special_tokens(tokenizer, specials, takes_space="<mask>")
    if {"<s>", "</s>"} <= set(specials):
        tokenizer.post_processor = processors.RobertaProcessing(
            ("</s>", vocabulary["</s>"]),
            ("<s>", vocabulary["<s>"]),
            add_prefix_space=cutting.add_prefix_space,
        )
    else:
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer.to_str(pretty=True).encode()


def _pre_tokenizer(cutting: Cutting) -> pre_tokenizers.PreTokenizer:
    """What cuts text so, as published tokenizers write it.

    ByteLevel puts a space before each piece that it gets, not before each document, so that with
    another pattern than its own a step before the others has to: a Metaspace whose mark is a space.
    """
    if cutting.pattern == PATTERNS[GPT2]:
        return pre_tokenizers.ByteLevel(add_prefix_space=cutting.add_prefix_space)
    steps: list[pre_tokenizers.PreTokenizer] = []
    if cutting.add_prefix_space:
        steps.append(pre_tokenizers.Metaspace(" ", prepend_scheme="always", split=False))
    steps.append(pre_tokenizers.Split(Regex(cutting.pattern), "isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    return pre_tokenizers.Sequence(steps)


def tokenizer_config(options: TokenizerOptions) -> dict[str, Any]:
    """What tokenizer_config.json says of this tokenizer."""
    roles = {role: token for role, token in _ROLES.items() if token in options.specials()}
    return {**roles, "add_prefix_space": options.add_prefix_space}
