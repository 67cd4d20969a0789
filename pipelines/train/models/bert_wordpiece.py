"""WordPiece with BERT's normalizer and words."""

from dataclasses import replace
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from pipelines.train.bpe import Trained
from pipelines.train.histogram import Histogram
from pipelines.train.options import TokenizerOptions
from pipelines.train.tokenizer_json import add_special_tokens
from pipelines.train.wordpiece import (
    PREFIX,
    UNKNOWN,
    first_tokens,
    normalized_words,
    normalizer,
    train_wordpiece,
)
from schemas.errors import DataError, UsageError

_ROLES = {  # what transformers calls them, for the special tokens that BERT has
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "unk_token": UNKNOWN,
    "mask_token": "[MASK]",
}


def words_of(histogram: Histogram, options: TokenizerOptions) -> Histogram:
    """What BERT's normalizer and pre-tokenizer make of the words.

    Raises:
      DataError: nothing.
    """
    words = normalized_words(histogram.counts, lowercase=options.lowercase)
    if not words.num_rows:
        raise DataError("BERT's normalizer leaves nothing of the text: it holds no words")
    return replace(histogram, counts=words)


def train(words: Histogram, options: TokenizerOptions, progress: np.ndarray) -> Trained:
    """See `wordpiece.train_wordpiece`.

    Raises:
      UsageError: the vocabulary does not hold the characters.
    """
    counts = words.counts["count"].to_numpy()
    specials = options.specials()
    first = first_tokens(
        words.words,
        counts,
        special_tokens=specials,
        limit_alphabet=options.limit_alphabet,
        initial_alphabet=options.initial_alphabet,
    )
    if options.vocab_size < len(first):
        raise UsageError(
            f"--vocab_size={options.vocab_size}: the special tokens and the text's characters, "
            f"those within words with {PREFIX}, are {len(first):,} tokens, before any merge; give "
            "at least as many, or keep the most frequent characters only: --limit_alphabet=N"
        )
    return train_wordpiece(
        words.words,
        counts,
        first=first,
        vocab_size=options.vocab_size,
        min_frequency=options.min_frequency,
        max_token_length=options.max_token_length,
        special_tokens=specials,
        progress=progress,
    )


def tokenizer_json(trained: Trained, _: Histogram, options: TokenizerOptions) -> bytes:
    """The file's content: that of the published BERT, and its `[CLS] text [SEP]` if it can."""
    vocabulary = {token: i for i, token in enumerate(trained.tokens)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizer(lowercase=options.lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix=PREFIX)
    specials = options.specials()
    add_special_tokens(tokenizer, specials)
    if {"[CLS]", "[SEP]"} <= set(specials):
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
        )
    return tokenizer.to_str(pretty=True).encode()


def tokenizer_config(options: TokenizerOptions) -> dict[str, Any]:
    """What tokenizer_config.json says of this tokenizer."""
    return {
        **{role: token for role, token in _ROLES.items() if token in options.specials()},
        "do_lower_case": options.lowercase,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
    }
