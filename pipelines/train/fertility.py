"""How well a vocabulary serves each group of its text: tokens a word, bytes a token. Pure.

A word is what white space separates, as fertility is counted in the literature (Rust et al. 2021),
not what the splitting pattern cuts. In scripts without spaces such words are whole clauses, and
characters a token say more.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from rich.table import Table
from tokenizers import Tokenizer

from pipelines.encoding.tokenizer_files import failures_as_data_errors
from pipelines.filters.words import word_spans
from pipelines.rows.text_bytes import slices, utf8_bytes
from pipelines.train.group_sample import Group, GroupSample

_AT_ONCE = 1 << 20  # bytes of text: an Encoding with its places takes some hundred times as many
_LISTED = 20


@dataclass(frozen=True)
class Fertility:
    """What a tokenizer makes of a group of its text.

    Attributes:
      group: its name.
      documents: that it has.
      bytes: of their text.
      sampled_documents: that the rest is measured on.
      tokens_per_word: fertility, 1 at best but for tokens of several words.
      bytes_per_token: the compression.
      characters_per_token: the same, whatever the script's bytes a character.
      words_of_over_3_tokens: share of the words that are cut into more than three tokens.
    """

    group: str
    documents: int
    bytes: int
    sampled_documents: int
    tokens_per_word: float
    bytes_per_token: float
    characters_per_token: float
    words_of_over_3_tokens: float


def measure_fertility(sample: GroupSample, tokenizer: Tokenizer) -> tuple[Fertility, ...]:
    """Encodes each group's sample; the group with the most text is first."""
    by_size = sorted(sample.groups.items(), key=lambda item: (-item[1].text_bytes, item[0]))
    return tuple(_measure(name, group, tokenizer) for name, group in by_size)


def _measure(name: str, group: Group, tokenizer: Tokenizer) -> Fertility:
    texts = [group.texts[digest] for digest in sorted(group.texts)]
    tokens, words, long_words, characters = 0, 0, 0, 0
    for text in slices(pa.array(texts, pa.large_binary()).cast(pa.large_string()), _AT_ONCE):
        some, of_words = count_tokens(text, tokenizer)
        tokens += some
        words += len(of_words)
        long_words += int((of_words > 3).sum())
        characters += len(_character_places(utf8_bytes(text)[0]))
    return Fertility(
        group=name,
        documents=group.documents,
        bytes=group.text_bytes,
        sampled_documents=len(texts),
        tokens_per_word=tokens / max(words, 1),
        bytes_per_token=sum(map(len, texts)) / max(tokens, 1),
        characters_per_token=characters / max(tokens, 1),
        words_of_over_3_tokens=long_words / max(words, 1),
    )


def count_tokens(text: pa.LargeStringArray, tokenizer: Tokenizer) -> tuple[int, np.ndarray]:
    """How many tokens the documents have, and each of their words.

    A token counts for the word in which its first character lies that is no white space; one of
    white space alone counts for none: "a  lot" as `a`, two spaces and ` lot` gives 3, [1, 1].

    Args:
      text: documents, UTF-8; no nulls.
      tokenizer: encodes them, without special tokens.

    Raises:
      DataError: the tokenizer failed.
    """
    with failures_as_data_errors("the new tokenizer failed on its own text", "mend --pattern"):
        encodings = tokenizer.encode_batch(text.to_pylist(), add_special_tokens=False)
    data, bounds = utf8_bytes(text)
    characters = _character_places(data)
    places = [np.zeros((0, 2), np.int64)]
    for first, encoding in zip(np.searchsorted(characters, bounds), encodings, strict=False):
        places.append(first + np.array(encoding.offsets, np.int64).reshape(-1, 2))
    starts, stops = np.append(characters, len(data))[np.concatenate(places)].T
    word_starts, word_stops = word_spans(data, bounds)
    word = np.searchsorted(word_stops, starts, side="right")
    word = word[np.append(word_starts, len(data))[word] < stops]
    return len(starts), np.bincount(word, minlength=len(word_starts))


def _character_places(data: np.ndarray) -> np.ndarray:
    """Where characters begin in UTF-8."""
    return np.flatnonzero(data & 0xC0 != 0x80)


def fertility_table(groups: tuple[Fertility, ...]) -> Table:
    """The figures of groups, those with the most text first; all of many are in report.json."""
    table = Table(caption="measured on a sample of each group", caption_justify="left")
    table.add_column("group", overflow="fold")
    for head in (
        "share of\nthe text",
        "tokens\na word",
        "bytes\na token",
        "characters\na token",
        "words of over\n3 tokens",
    ):
        table.add_column(head, justify="right")
    total = sum(group.bytes for group in groups)
    for group in groups[:_LISTED]:
        table.add_row(
            group.group or "(none)",
            f"{group.bytes / max(total, 1):.1%}",
            f"{group.tokens_per_word:.2f}",
            f"{group.bytes_per_token:.2f}",
            f"{group.characters_per_token:.2f}",
            f"{group.words_of_over_3_tokens:.1%}",
        )
    if len(groups) > _LISTED:
        table.add_row(f"and {len(groups) - _LISTED:,} more", *[""] * 5)
    return table
