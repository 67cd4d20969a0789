"""Splits by patterns that Textmill does not compile.

`tokenizers` splits in a process with limited time and memory: trying an expression beforehand does
not show that it is harmless for all texts.
"""

import marshal
from collections import Counter

import pyarrow as pa

from textmill.pipelines.encoding.reference import Regex, failures_as_data_errors, pre_tokenizers
from textmill.pipelines.tokenizer.histogram import SCHEMA
from textmill.schemas.errors import DataError, flag
from textmill.schemas.limited_process import LimitedProcess, LimitExceeded
from textmill.schemas.tokenizers.tokenizer_json import (
    LONGEST_TEXT,
    failure_of_patterns,
    may_backtrack,
)

_CHILD = LimitedProcess(f"from {__name__} import answer", seconds=60)
_REMEDY = "write it without nested repetitions, or use a named pattern"


def count_by_tokenizers(text: pa.LargeStringArray, pattern: str) -> pa.Table:
    """Counts the words of documents by `tokenizers`.

    Raises:
      DataError: the pattern fails on the text, or takes too long.
    """
    texts = text.to_pylist()
    try:
        why, words = marshal.loads(_CHILD.ask(marshal.dumps((pattern, texts))))
    except LimitExceeded as error:
        words = {}
        why = (
            f"it {error} for {sum(map(len, texts)):,} characters, {max(map(len, texts)):,} of them "
            f"in the longest document; {_REMEDY}"
        )
    if why:
        raise DataError(f"{flag('pattern', pattern)} fails on the text: {why}")
    keys = pa.array(words, pa.large_string()).cast(pa.large_binary())
    return pa.table([keys, pa.array(words.values(), pa.int64())], SCHEMA)


def answer(request: bytes) -> bytes:
    """Counts the words of some documents; runs in the child process.

    Args:
      request: marshal of (pattern, documents).

    Returns:
      marshal of ("" or the reason of a failure, word to number of occurrences).
    """
    pattern, texts = marshal.loads(request)
    words: Counter[str] = Counter()
    try:
        with failures_as_data_errors("it fails", _REMEDY):
            split = pre_tokenizers.Split(Regex(pattern), "isolated")  # pyright: ignore[reportArgumentType]
            for text in texts:
                words.update(word for word, _ in split.pre_tokenize_str(text))
    except DataError as error:
        return marshal.dumps((str(error).removeprefix("it fails: "), {}))
    return marshal.dumps(("", dict(words)))


def fault_of(pattern: str) -> str | None:
    """Why `tokenizers` cannot use a regular expression, or it would end a run; None if it can."""
    if len(pattern) > LONGEST_TEXT:
        return f"it has {len(pattern):,} characters; a tokenizer.json may have {LONGEST_TEXT}"
    if may_backtrack(pattern):  # compiling it may backtrack, too
        return failure_of_patterns([pattern])
    try:
        with failures_as_data_errors("it is not a regular expression of `tokenizers`", _REMEDY):
            Regex(pattern)
    except DataError as error:
        return str(error)
    return None
