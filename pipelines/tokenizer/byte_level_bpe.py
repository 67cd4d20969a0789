"""Byte-level BPE, as in GPT-2 and RoBERTa."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from textmill.pipelines.encoding.normal_text import normalizer_of
from textmill.pipelines.encoding.patterns import GPT2, PATTERNS, byte_characters, first_tokens
from textmill.pipelines.encoding.reference import (
    Regex,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    processors,
)
from textmill.pipelines.rows.text_bytes import utf8_bytes
from textmill.pipelines.tokenizer.histogram import Histogram, PreTokenization
from textmill.pipelines.tokenizer.merge_loop import TrainedVocabulary, merge_words
from textmill.pipelines.tokenizer.options import TokenizerOptions
from textmill.pipelines.tokenizer.special_roles import add_special_tokens

ROLES = {  # transformers' names for the special tokens of RoBERTa
    "bos_token": "<s>",
    "cls_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
}


def words_of(histogram: Histogram, _: TokenizerOptions) -> Histogram:
    """The words of the histogram, unchanged."""
    return histogram


def train(words: Histogram, options: TokenizerOptions, progress: np.ndarray) -> TrainedVocabulary:
    """See `train_bpe`."""
    counts = words.counts["count"].to_numpy()
    return train_bpe(words.words, counts, **options.limits(), progress=progress)


def train_bpe(
    words: pa.LargeBinaryArray,
    counts: np.ndarray,
    *,
    special_tokens: Sequence[str] = (),
    **limits: Any,
) -> TrainedVocabulary:
    """Trains a byte-level BPE on words that occur `counts` times.

    The vocabulary begins with the special tokens and the 256 byte characters in the order of their
    code points.

    Args:
      words: distinct pre-tokens as raw bytes, not empty, without nulls; their order has no effect.
      counts: int64[len(words)], each at least 1.
      special_tokens: the tokens with the first ids.
      **limits: arguments of `merge_words`: vocab_size, min_frequency, max_token_length, progress.
    """
    first = first_tokens(special_tokens)
    data, offsets = utf8_bytes(words)
    ids = {token: i for i, token in enumerate(first)}
    of_byte = np.array([ids[character] for character in byte_characters()], np.int32)
    return merge_words(
        offsets,
        data,
        counts,
        ids=of_byte,
        first=first,
        special_tokens=special_tokens,
        **limits,
    )


def tokenizer_of(
    trained: TrainedVocabulary, words: Histogram, options: TokenizerOptions
) -> Tokenizer:
    """The tokenizer, with RoBERTa's `<s> text </s>` if it has these tokens.

    Ids, merges and added tokens are as `tokenizers` itself would save them after training. As in
    the published RoBERTa, `<mask>` includes the space before it, since it replaces a word with its
    space.
    """
    cutting = words.origin.cutting
    vocabulary = {token: i for i, token in enumerate(trained.tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, trained.merges))
    if cutting.normalizers:
        tokenizer.normalizer = normalizer_of(cutting.normalizers)
    tokenizer.pre_tokenizer = _pre_tokenizer(cutting)
    tokenizer.decoder = decoders.ByteLevel()
    add_special_tokens(tokenizer, options, takes_space="<mask>")
    if {"<s>", "</s>"} <= {*options.specials}:
        tokenizer.post_processor = processors.RobertaProcessing(
            ("</s>", vocabulary["</s>"]),
            ("<s>", vocabulary["<s>"]),
            add_prefix_space=cutting.add_prefix_space,
        )
    else:
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def _pre_tokenizer(cutting: PreTokenization) -> pre_tokenizers.PreTokenizer:
    """The pre-tokenizer that cuts text in this way, as in published tokenizers.

    ByteLevel puts a space before each piece that it receives, not before each document. With
    a different pattern than its own, a Metaspace step with a space as its mark does that first.
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
    """The settings for tokenizer_config.json besides roles."""
    return {"add_prefix_space": options.bpe.add_prefix_space}
