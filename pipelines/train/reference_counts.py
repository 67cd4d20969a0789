"""Counts words by `tokenizers` alone: for splitting patterns that are not compiled here.

Its trainers keep the counts of the words that they were fed, so a training of the simplest model
counts at that library's speed, on all its threads.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from pipelines.encoding.tokenizer_files import failures_as_data_errors
from pipelines.host.console import Console
from pipelines.train.word_counts import SCHEMA
from schemas.errors import DataError
from schemas.terminal import call_if_slow
from schemas.tokenizer_bounds import LONGEST_TEXT
from schemas.tokenizer_trial import failure_of_patterns

_PATIENCE = 60  # seconds until it is said that a text takes long
_REMEDY = "write it without a repeat within a repeat, or give one of the named patterns"


def count_by_tokenizers(text: pa.LargeStringArray, pattern: str) -> pa.Table:
    """The words of documents, and how often each occurs.

    Args:
      text: documents without nulls.
      pattern: a regular expression; what it matches is a word, and what lies between two matches.

    Raises:
      DataError: the expression fails on the text, as one that runs away does.
    """
    trainer = trainers.WordLevelTrainer(show_progress=False, special_tokens=[])
    tokenizer = Tokenizer(models.WordLevel())
    with (
        _warn_if_slow(pattern, text.nbytes),
        failures_as_data_errors(f"--pattern={pattern} fails on the text", _REMEDY),
    ):
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
        tokenizer.train_from_iterator(text.to_pylist(), trainer)
    words: dict[str, int] = json.loads(trainer.__getstate__())["WordLevelTrainer"]["words"]
    counts = pa.array(words.values(), pa.int64())
    return pa.table([pa.array(words, pa.large_string()).cast("large_binary"), counts], SCHEMA)


def fault_of(pattern: str) -> str | None:
    """Why a regular expression is of no use to `tokenizers`, or would end a run; None if it is."""
    if len(pattern) > LONGEST_TEXT:
        return f"it has {len(pattern):,} characters, and no tokenizer.json more than {LONGEST_TEXT}"
    try:
        with failures_as_data_errors("it is no regular expression of `tokenizers`", _REMEDY):
            Regex(pattern)
    except DataError as error:
        return str(error)
    return failure_of_patterns([pattern])


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
