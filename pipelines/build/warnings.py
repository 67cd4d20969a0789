"""What a person should know of a finished set before he trains on it, each with what to do."""

import io
import os
from collections.abc import Iterator

import numpy as np

from pipelines.encoding.tokenizer import LoadedTokenizer
from pipelines.storage import store
from pipelines.writers.token_counts import TOKEN_COUNTS
from schemas.drops import FILTERED, drop_of
from schemas.sidecar import SetInfo
from schemas.terminal import number_of

_RETURNS, _LONG, _RULE = 0.005, 0.05, 0.1  # shares of a set's tokens or text that are much
_LONG_BIN = 16  # of the histogram of lengths: documents of 32,768 tokens and more


def set_warnings(info: SetInfo, tokenizer: LoadedTokenizer) -> Iterator[str]:
    """Line ends of Windows, paragraphs that are books, and rules that take much.

    Args:
      info: the set.
      tokenizer: its own.

    Raises:
      DataError: a file of the set cannot be read.
    """
    total = info.stats.total()
    content = store.read(os.path.join(info.directory, TOKEN_COUNTS))
    counts = np.load(io.BytesIO(content), allow_pickle=False)
    used = np.flatnonzero(counts).tolist()
    returns = [token for token in used if b"\r" in tokenizer.token_bytes[token]]
    share = counts[returns].sum() / max(counts.sum(), 1)
    if share > _RETURNS:
        yield (
            f"{share:.1%} of all tokens hold a carriage return, as files of Windows end lines: "
            "remove them (sed -i 's/\\r$//' FILE) and build the set again"
        )
    books, tokens = (
        sum(bins[_LONG_BIN:]) for bins in (total.length_histogram, total.length_tokens)
    )
    if info.schema.parameters.get("document") == "paragraph" and tokens > _LONG * total.tokens:
        yield (
            f"{number_of(books, 'document')} of 32,768 tokens and more "
            f"{'has' if books == 1 else 'have'} {tokens / total.tokens:.0%} of all tokens: text "
            "without blank lines is one paragraph. Give such files with --document=line or file"
        )
    yield from _hungry_rules(info)


def _hungry_rules(info: SetInfo) -> Iterator[str]:
    funnel = info.stats.funnel
    if funnel is not None:
        taken = {reason: removed.text_bytes for reason, removed in funnel.removed.items()}
        given, what = funnel.text_bytes, "text"
    else:
        taken, given, what = info.stats.all_dropped(), info.stats.documents_read, "documents"
    for reason, size in sorted(taken.items()):
        if drop_of(reason).title == FILTERED and size > _RULE * given:
            yield (
                f"the rule {reason} takes {size / given:.0%} of all {what}: look at what it takes "
                f"({'samples stand in report.html' if funnel else 'add --explain=always'}), and "
                "loosen it or leave it out if that should stay"
            )
