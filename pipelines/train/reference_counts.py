"""Counts words by `tokenizers` alone: for splitting patterns that are not compiled here.

Its trainers keep the counts of the words that they were fed, so a training of the simplest model
counts at that library's speed, on all its threads. It does so in a process of limited time and
memory: no expression that is tried beforehand is known to be harmless for all texts.
"""

import json
import marshal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import pyarrow as pa
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from pipelines.encoding.tokenizer_files import failures_as_data_errors
from pipelines.host.console import Console
from pipelines.train.word_counts import SCHEMA, buffers_of
from schemas.commands.terminal import call_if_slow
from schemas.errors import DataError
from schemas.untrusted.limited_process import LimitedProcess, LimitExceeded
from schemas.untrusted.tokenizer_bounds import (
    LONGEST_TEXT,
    failure_of_patterns,
    may_run_away,
)

_CHUNK = 1 << 20  # bytes of documents that are cut at once
_CHILD = LimitedProcess(f"from {__name__} import answer", seconds=60)
_PATIENCE = 60  # seconds until it is said that a text takes long
_REMEDY = "write it without a repeat within a repeat, or give one of the named patterns"


def count_by_tokenizers(text: pa.LargeStringArray, pattern: str) -> Iterator[pa.Table]:
    """The words of documents, and how often each occurs: a table for some documents at a time.

    Args:
      text: documents without nulls.
      pattern: a regular expression; what it matches is a word, and what lies between two matches.

    Raises:
      DataError: the expression fails on the text, or takes too long, as one that runs away does.
    """
    with _warn_if_slow(pattern, text.nbytes):
        for texts in _chunks(text):
            try:
                why, words = marshal.loads(_CHILD.ask(marshal.dumps((pattern, texts))))
            except LimitExceeded as error:
                size, longest = sum(map(len, texts)), max(map(len, texts))
                words = {}
                why = (
                    f"it {error} for {size:,} characters, of which the longest text has "
                    f"{longest:,}; {_REMEDY}"
                )
            if why:
                raise DataError(f"--pattern={pattern} fails on the text: {why}")
            counts = pa.array(words.values(), pa.int64())
            keys = pa.array(words, pa.large_string()).cast("large_binary")
            yield pa.table([keys, counts], SCHEMA)


def _chunks(text: pa.LargeStringArray) -> Iterator[list[str]]:
    """Documents of `_CHUNK` bytes together, or of one more."""
    offsets, _ = buffers_of(text)
    number = (offsets[:-1] - offsets[0]) // _CHUNK
    firsts = np.flatnonzero(np.diff(number, prepend=-1))
    for first, stop in pairwise([*firsts.tolist(), len(text)]):
        yield text[first:stop].to_pylist()


def answer(request: bytes) -> bytes:
    """Counts the words of some documents: what the child does.

    Args:
      request: marshal of (pattern, documents).

    Returns:
      marshal of (why it fails or "", words and how often each occurs).
    """
    pattern, texts = marshal.loads(request)
    trainer = trainers.WordLevelTrainer(show_progress=False, special_tokens=[])
    tokenizer = Tokenizer(models.WordLevel())
    try:
        with failures_as_data_errors("it fails", _REMEDY):
            tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
            tokenizer.train_from_iterator(texts, trainer)
    except DataError as error:
        return marshal.dumps((str(error).removeprefix("it fails: "), {}))
    return marshal.dumps(("", json.loads(trainer.__getstate__())["WordLevelTrainer"]["words"]))


def fault_of(pattern: str) -> str | None:
    """Why a regular expression is of no use to `tokenizers`, or would end a run; None if it is."""
    if len(pattern) > LONGEST_TEXT:
        return f"it has {len(pattern):,} characters, and no tokenizer.json more than {LONGEST_TEXT}"
    if may_run_away(pattern):  # what compiles it may do so
        return failure_of_patterns([pattern])
    try:
        with failures_as_data_errors("it is no regular expression of `tokenizers`", _REMEDY):
            Regex(pattern)
    except DataError as error:
        return str(error)
    return None


@contextmanager
def _warn_if_slow(pattern: str, size: int) -> Iterator[None]:
    def say() -> None:
        Console(stderr=True).print(
            f"warning: --pattern={pattern} has been cutting {size / 1e6:.1f} MB for {_PATIENCE} s; "
            f"if it runs away on this text, end the run (Ctrl-C) and {_REMEDY}",
            soft_wrap=True,
        )

    with call_if_slow(_PATIENCE, say):
        yield
