"""Checks a finished dataset for what harms training; each warning has a remedy."""

import io
import os
from collections.abc import Iterator

import numpy as np

from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
from textmill.pipelines.shards.split_shares import find_far_shares
from textmill.pipelines.writers.token_counts import TOKEN_COUNTS
from textmill.schemas.commands.terminal import number_of
from textmill.schemas.errors import Caution, flag
from textmill.schemas.files import store
from textmill.schemas.files.finished import DatasetInfo
from textmill.schemas.format.drops import FILTERED, drop_of

_RETURNS, _LONG, _RULE = 0.005, 0.05, 0.1  # shares of tokens or documents that warn
_RETURN = ord("\r")
_LONG_BIN = 16  # in the histogram of lengths, the first of documents of 32,768 tokens and more


def warnings_of(info: DatasetInfo, tokenizer: LoadedTokenizer, documents: str) -> Iterator[Caution]:
    """Warns of Windows line ends, paragraphs as long as books, odd splits and greedy filters.

    Args:
      info: a finished dataset.
      tokenizer: of the dataset.
      documents: how the input was split into documents, from `describe_documents`.

    Raises:
      DataError: a file of the dataset cannot be read.
    """
    total = info.stats.total()
    content = store.read(os.path.join(info.directory, TOKEN_COUNTS))
    counts = np.load(io.BytesIO(content), allow_pickle=False)
    spelt, bounds = tokenizer.spelt
    has_return = np.zeros(tokenizer.vocab_size, bool)
    has_return[np.searchsorted(bounds, np.flatnonzero(spelt == _RETURN), "right") - 1] = True
    # Without documents there are no counts.
    share = counts[has_return[: len(counts)]].sum() / max(counts.sum(), 1)
    if share > _RETURNS:
        yield Caution(
            f"{share:.1%} of all tokens contain a carriage return, from Windows line ends: remove "
            "them (sed -i 's/\\r$//' FILE) and build the dataset again"
        )
    books, tokens = (
        sum(bins[_LONG_BIN:]) for bins in (total.length_histogram, total.length_tokens)
    )
    if info.schema.parameters.get("document") == "paragraph" and tokens > _LONG * total.tokens:
        yield Caution(
            f"{number_of(books, 'document')} of 32,768 tokens and more "
            f"{'has' if books == 1 else 'have'} {tokens / total.tokens:.0%} of all tokens: text "
            "without blank lines is one paragraph. Read such files with "
            f"{flag('document', 'line')} or file"
        )
    yield from _odd_splits(info, documents)
    yield from _warn_filter_drops_most(info)


def _odd_splits(info: DatasetInfo, documents: str) -> Iterator[Caution]:
    """Warns of splits that are empty, or whose share of the tokens is far from that of --splits."""
    stats, asked = info.stats, info.schema.splits
    total = stats.total().documents
    if info.schema.parameters.get("corpus"):  # a corpus fixes what a document is
        smaller = f"build the corpus again with {flag('document', 'paragraph')}, or "
    else:
        is_by_file = documents.endswith(f"({flag('document', 'file')})")
        smaller = f"use {flag('document', 'paragraph')}, or " * is_by_file
    why = (
        f"a hash of a document's text chooses its split, and {number_of(total, 'document')} "
        f"{'was' if total == 1 else 'were'} kept"
    )
    named = f"name the files of each split ({flag('train_input')}, ...)"
    empty = [split for split in asked if not stats.split(split).rows]
    for split in empty:
        if not asked[split]:
            yield Caution(
                f"the split {split} is empty: no document of {flag(f'{split}_input')} was kept "
                "(those that an evaluation split has too are removed from train); name other files"
            )
        else:
            yield Caution(f"the split {split} is empty: {why}; {smaller}{named}")
    if empty or not any(asked.values()):
        return
    tokens = {split: stats.split(split).tokens for split in asked}
    if far := find_far_shares(asked, tokens, total):
        shares = (
            f"{split} has {100 * got:.3g} % instead of {100 * asked[split]:.3g} %"
            for split, got in far.items()
        )
        yield Caution(
            f"shares of the tokens are far from those of {flag('splits')} ({', '.join(shares)}): "
            f"{why}, so single long documents decide; {smaller}give more documents, or {named}"
        )


def _warn_filter_drops_most(info: DatasetInfo) -> Iterator[Caution]:
    read = info.stats.documents_read
    for reason, number in sorted(info.stats.all_dropped().items()):
        if drop_of(reason).title == FILTERED and number > _RULE * read:
            yield Caution(
                f"{flag('filter')} drops {number / read:.0%} of all documents as {reason}: check "
                "what it drops, and change the function if it drops too much"
            )
