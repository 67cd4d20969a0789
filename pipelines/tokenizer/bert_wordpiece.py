"""WordPiece with BERT's normalizer and words, trained from word counts.

The vocabulary is that of `tokenizers`' WordPieceTrainer, which is BPE by counts: a word is made of
its characters, `x` at its beginning and `##x` after it, and the most frequent pair is merged.
The behaviour of that trainer, found by comparison and kept here:

- Ids: special tokens, the characters in the order of their code points, those that occur within
  words (`##x`), one id per merge.
- With a limit of n characters, the n most frequent are kept. Words are merged as if the others did
  not exist, but are encoded as [UNK].

In that trainer a hash that differs from run to run decides the order of `##x`, which of equally
frequent characters are kept and, by the order, ties between pairs. Textmill orders `##x` by code
point and keeps the smaller of equally frequent code points. All else is equal: for the order of
one of its runs, every token and id is the same.
"""

# pyright: reportAttributeAccessIssue=false
# (pyarrow.compute makes its functions at import, where pyright cannot see them.)
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from textmill.pipelines.encoding.reference import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from textmill.pipelines.rows.text_bytes import utf8_bytes
from textmill.pipelines.tokenizer.histogram import SCHEMA, Histogram
from textmill.pipelines.tokenizer.merge_loop import TrainedVocabulary, merge_words
from textmill.pipelines.tokenizer.options import TokenizerOptions
from textmill.pipelines.tokenizer.special_roles import add_special_tokens
from textmill.pipelines.tokenizer.word_counter import add_counts, sort_by_word
from textmill.schemas.errors import DataError, UsageError, flag

PREFIX = "##"
UNKNOWN = "[UNK]"
_CODE_POINTS = 0x110000
_ENCODED = 1 << 14  # words at once
_ALWAYS = np.iinfo(np.int64).max
_AT_ONCE = 1 << 9  # words that are normalized at once, which is fastest
_BETWEEN = "|"  # separates these words; only the word `|` itself has it


def normalizer(*, lowercase: bool) -> normalizers.Normalizer:
    """BERT's normalizer, as published with its uncased and cased models."""
    return normalizers.BertNormalizer(lowercase=lowercase)


# ---- words ----


def normalized_words(counts: pa.Table, *, lowercase: bool) -> pa.Table:
    """Applies BERT's normalizer and pre-tokenizer to words; returns counts, sorted by word.

    Args:
      counts: a table of counts of words that `bert_words` cut.
      lowercase: see `normalizer`.
    """
    text = pc.utf8_ltrim(counts["word"].cast(pa.large_string()), characters=" ")
    numbers = counts["count"]
    # A word of printable ASCII is not split further, and only its capitals change.
    plain = pc.match_substring_regex(text, "^[!-~]+$")
    asciis = text.filter(plain)
    tables = [(pc.ascii_lower(asciis) if lowercase else asciis, numbers.filter(plain))]
    others, times = text.filter(pc.invert(plain)), numbers.filter(pc.invert(plain))
    for start in range(0, len(others), _AT_ONCE):
        chunk = slice(start, start + _AT_ONCE)
        tables.append(_normalize(others[chunk], times[chunk], lowercase))
    words = (pa.table([text.cast(pa.large_binary()), n], schema=SCHEMA) for text, n in tables)
    return sort_by_word(add_counts(words))


def _normalize(
    words: pa.ChunkedArray, counts: pa.ChunkedArray, lowercase: bool
) -> tuple[pa.Array, pa.Array]:
    """Normalizes and splits words, without adding up equal ones: `Été|là` -> ete, la."""
    text = normalizer(lowercase=lowercase).normalize_str(_BETWEEN.join(words.to_pylist()))
    pieces = pa.array(
        [piece for piece, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str(text)],
        pa.large_string(),
    )
    between = pc.equal(pieces, _BETWEEN).to_numpy(zero_copy_only=False)
    numbers = counts.to_numpy()[np.cumsum(between)]
    return pieces.filter(pa.array(~between)), pa.array(numbers[~between])


# ---- vocabulary ----


def first_tokens(
    words: pa.LargeBinaryArray,
    counts: np.ndarray,
    *,
    special_tokens: Sequence[str],
    limit_alphabet: int | None = None,
    initial_alphabet: str = "",
) -> list[str]:
    """The vocabulary before any merge.

    Args:
      words: see `train_wordpiece`.
      counts: int64[len(words)].
      special_tokens: the tokens with the first ids.
      limit_alphabet: the number of characters that are kept, the most frequent ones.
      initial_alphabet: characters that are always kept, whether or not the text has them.
    """
    offsets, points = _code_points(words)
    times = np.bincount(points, np.repeat(counts, np.diff(offsets)), _CODE_POINTS).astype(np.int64)
    times[[ord(character) for character in initial_alphabet]] = _ALWAYS
    by_times = np.argsort(-times, kind="stable")[: np.count_nonzero(times)]
    alphabet = [chr(point) for point in np.sort(by_times[:limit_alphabet])]
    within = np.ones(len(points), bool)
    within[offsets[:-1]] = False
    whole = dict.fromkeys([*special_tokens, *alphabet])
    inner = (chr(point) for point in np.unique(points[within]))
    return list(dict.fromkeys([*whole, *(PREFIX + c for c in inner if c in whole)]))


def train_wordpiece(
    words: pa.LargeBinaryArray,
    counts: np.ndarray,
    *,
    first: Sequence[str],
    **limits: Any,
) -> TrainedVocabulary:
    """Trains a WordPiece vocabulary on words that occur `counts` times.

    Args:
      words: distinct words, UTF-8, not empty, without nulls; their order has no effect.
      counts: int64[len(words)], each at least 1.
      first: the result of `first_tokens`.
      **limits: arguments of `merge_words`; `##` does not count as symbols.
    """
    offsets, symbols = _symbols(words, {token: i for i, token in enumerate(first)})
    ids = np.arange(len(first), dtype=np.int32)
    trained = merge_words(
        offsets, symbols, counts, ids=ids, first=first, continuing_prefix=PREFIX, **limits
    )
    return replace(trained, word_tokens=_encoded_lengths(words, trained.tokens))


def _code_points(words: pa.LargeBinaryArray) -> tuple[np.ndarray, np.ndarray]:
    """The characters of all words, joined, and where each word begins among them."""
    data, offsets = utf8_bytes(words)
    before = np.concatenate([[0], np.cumsum((data & 0xC0) != 0x80)])
    points = np.frombuffer(data.tobytes().decode().encode("utf-32-le"), "<u4")
    return before[offsets], points


def _symbols(words: pa.LargeBinaryArray, ids: Mapping[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """The ids of the characters that have one, and where each word begins among them."""
    offsets, points = _code_points(words)
    distinct = np.unique(points)
    characters = [chr(point) for point in distinct]
    where = np.searchsorted(distinct, points)
    begins = np.array([ids.get(c, -1) for c in characters], np.int32)
    continues = np.array([ids.get(PREFIX + c, -1) for c in characters], np.int32)
    symbols = np.where(begins[where] < 0, -1, continues[where])
    symbols[offsets[:-1]] = begins[where[offsets[:-1]]]
    kept = symbols >= 0
    return np.concatenate([[0], np.cumsum(kept)])[offsets], symbols[kept]


def _encoded_lengths(words: pa.LargeBinaryArray, tokens: Sequence[str]) -> np.ndarray:
    """The number of tokens of each word: WordPiece takes the longest match, not the merges."""
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=UNKNOWN))

    def lengths() -> Iterator[int]:
        for start in range(0, len(words), _ENCODED):
            chunk = words[start : start + _ENCODED].cast(pa.large_string()).to_pylist()
            yield from map(len, tokenizer.encode_batch_fast(chunk))

    return np.fromiter(lengths(), np.int64, len(words))


ROLES = {  # transformers' names for the special tokens of BERT
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "unk_token": UNKNOWN,
    "mask_token": "[MASK]",
}


def words_of(histogram: Histogram, options: TokenizerOptions) -> Histogram:
    """Applies BERT's normalizer and pre-tokenizer to the words.

    Raises:
      DataError: no word is left.
    """
    words = normalized_words(histogram.counts, lowercase=options.wordpiece.lowercase)
    if not words.num_rows:
        raise DataError("no words are left after BERT's normalizer: train on other text")
    return replace(histogram, counts=words)


def train(words: Histogram, options: TokenizerOptions, progress: np.ndarray) -> TrainedVocabulary:
    """See `train_wordpiece`.

    Raises:
      UsageError: --vocab_size is too small for the characters.
    """
    counts = words.counts["count"].to_numpy()
    first = first_tokens(
        words.words,
        counts,
        special_tokens=options.specials,
        limit_alphabet=options.wordpiece.limit_alphabet,
        initial_alphabet=options.wordpiece.initial_alphabet,
    )
    if options.vocab_size < len(first):
        raise UsageError(
            f"{flag('vocab_size', options.vocab_size)}: the special tokens and the text's "
            f"characters, also with {PREFIX}, are {len(first):,} tokens before any merge; use at "
            "least as many, or keep only the N most frequent characters with "
            f"{flag('limit_alphabet', 'N')}"
        )
    limits = options.limits()
    return train_wordpiece(words.words, counts, first=first, **limits, progress=progress)


def tokenizer_of(trained: TrainedVocabulary, _: Histogram, options: TokenizerOptions) -> Tokenizer:
    """The tokenizer, with BERT's `[CLS] text [SEP]` if it has these tokens."""
    vocabulary = {token: i for i, token in enumerate(trained.tokens)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizer(lowercase=options.wordpiece.lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix=PREFIX)
    add_special_tokens(tokenizer, options)
    if {"[CLS]", "[SEP]"} <= {*options.specials}:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
        )
    return tokenizer


def tokenizer_config(options: TokenizerOptions) -> dict[str, Any]:
    """The settings for tokenizer_config.json besides roles."""
    return {
        "do_lower_case": options.wordpiece.lowercase,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
    }
