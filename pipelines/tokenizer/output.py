"""The settings and reports of train_tokenizer's workers, and report.json."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from textmill.pipelines.readers.sources import file_digests
from textmill.pipelines.runners.block_run import BlockJob, BlockReport
from textmill.pipelines.tokenizer.fertility import FileGroups
from textmill.pipelines.tokenizer.histogram import Histogram, PreTokenization
from textmill.pipelines.tokenizer.merge_loop import TrainedVocabulary
from textmill.schemas.errors import DataError, flag
from textmill.schemas.format.metadata import Inputs
from textmill.schemas.format.tokenizer_report import (
    FORMAT_VERSION,
    Fertility,
    TokenizerReport,
    TokenizerText,
)
from textmill.schemas.version import VERSION

READ, SAMPLE = "read.json", "sample.json"  # only in the staging directory


@dataclass(frozen=True, kw_only=True)
class CountJob(BlockJob):
    """The settings of workers that count words.

    Attributes:
      cutting: how documents become words.
      filter: the user's function that filters documents; "" for none.
      max_rejects: a run with more rejected documents fails; below 0 for no limit.
      groups: how files form groups without --group_field.
    """

    cutting: PreTokenization
    filter: str
    max_rejects: int
    groups: FileGroups = FileGroups()


# ---- report.json ----


@dataclass(frozen=True, kw_only=True)
class Read(BlockReport):
    """A worker's report of the blocks that it read.

    Attributes:
      documents: documents whose words were counted.
      bytes: UTF-8 bytes of their text.
      normalized_bytes: bytes of their text after the tokenizer's normalizer.
      dropped: reason to number of documents that were rejected or filtered.
    """

    documents: int = 0
    bytes: int = 0
    normalized_bytes: int = 0
    dropped: dict[str, int] = field(default_factory=dict)


def check_read(read: Read, max_rejects: int) -> None:
    """Requires that documents are left, and that not too many were rejected.

    Raises:
      DataError: no document is left, or more than `max_rejects` were rejected.
    """
    read.rejects.refuse_too_many(max_rejects)
    if read.documents and not read.normalized_bytes:
        raise DataError(f"{flag('normalizer')} leaves no text of any document: train on other text")
    if not read.documents:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in read.dropped.items())
        raise DataError(
            "no document is left to train on: "
            f"{reasons or 'the inputs have only blank lines'}{read.rejects.describe_first()}; "
            f"check {flag('input')} and the field names"
        )


def text_of(read: Read) -> TokenizerText:
    """Summarizes the workers' reports."""
    inputs = file_digests(read.digests)
    return TokenizerText(
        digest=inputs_digest(inputs),
        files=len(inputs.files),
        documents=read.documents,
        bytes=read.bytes,
        refused=read.dropped,
    )


def inputs_digest(inputs: Inputs) -> str:
    """One hash of all inputs, regardless of their names and order."""
    return hashlib.sha256(json.dumps(inputs.content()).encode()).hexdigest()


def report_of(
    parameters: dict[str, Any],
    text: TokenizerText,
    histogram: Histogram,
    trained: TrainedVocabulary,
    fertility: tuple[Fertility, ...] = (),
) -> TokenizerReport:
    """Makes the report. Its counts are exact, since the tokens of every word are known."""
    counts = histogram.counts["count"].to_numpy()
    single = trained.word_tokens == 1
    words, tokens = int(counts.sum()), int(counts @ trained.word_tokens)
    return TokenizerReport(
        format_version=FORMAT_VERSION,
        code_version=VERSION,
        parameters=parameters,
        text=text,
        words=words,
        distinct_words=len(counts),
        vocab_size=len(trained.tokens),
        merges=len(trained.merges),
        tokens=tokens,
        bytes_per_token=histogram.origin.bytes / tokens,
        words_of_one_token=int(counts[single].sum()) / words,
        distinct_words_of_one_token=int(single.sum()) / len(counts),
        fertility=fertility,
    )
