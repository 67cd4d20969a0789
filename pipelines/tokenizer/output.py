"""The settings and reports of train_tokenizer's workers, report.json, and the output directory."""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from textmill.pipelines.readers.sources import file_digests
from textmill.pipelines.runners.block_run import BlockJob, BlockReport
from textmill.pipelines.tokenizer.fertility import Fertility, FileGroups
from textmill.pipelines.tokenizer.histogram import Cutting, Histogram
from textmill.pipelines.tokenizer.merge_loop import TrainedVocabulary
from textmill.pipelines.writers.output_directory import (
    TOKENIZER_FILES,
    TOKENIZER_REPORT,
    refuse_another,
)
from textmill.pipelines.writers.staging import STAGING, publish_files
from textmill.schemas.errors import DataError, flag
from textmill.schemas.files import store
from textmill.schemas.format.metadata import Inputs
from textmill.schemas.typed_json import from_json, parse_json, to_json
from textmill.schemas.version import VERSION

TOKENIZER, HISTOGRAM, REPORT = "tokenizer.json", "histogram.parquet", TOKENIZER_REPORT
READ, SAMPLE = "read.json", "sample.json"  # only in the staging directory
FORMAT_VERSION = 1  # of report.json


@dataclass(frozen=True, kw_only=True)
class CountJob(BlockJob):
    """The settings of workers that count words.

    Attributes:
      cutting: how documents become words.
      filter: the user's function that filters documents; "" for none.
      max_rejects: a run with more rejected documents fails; below 0 for no limit.
      groups: how files form groups without --group_field.
    """

    cutting: Cutting
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


@dataclass(frozen=True)
class Text:
    """The text of a tokenizer.

    Attributes:
      digest: sha256 of the inputs' sizes and hashes, regardless of their names and order; with
        --from_histogram, of that file.
      files: number of input files; 0 with --from_histogram.
      documents: documents whose words were counted.
      bytes: UTF-8 bytes of their text.
      refused: reason to number of documents that were rejected or filtered.
    """

    digest: str
    files: int
    documents: int
    bytes: int
    refused: dict[str, int]


@dataclass(frozen=True)
class Report:
    """The content of report.json.

    Attributes:
      parameters: the options that decide the tokenizer besides the text, see `TokenizerOptions`.
      words: occurrences of words in the text.
      distinct_words: number of distinct words.
      vocab_size: size of the vocabulary; below --vocab_size if no pair was left to merge.
      merges: number of merges; one that spells a special token adds no token.
      tokens: tokens of the text, without special tokens.
      bytes_per_token: bytes of the text per token.
      words_of_one_token: share of the occurrences of words that are one token: the coverage.
      distinct_words_of_one_token: share of the distinct words that are one token.
      fertility: metrics of each group, the one with the most text first; empty with
        --from_histogram.
    """

    format_version: int
    code_version: str
    parameters: dict[str, Any]
    text: Text
    words: int
    distinct_words: int
    vocab_size: int
    merges: int
    tokens: int
    bytes_per_token: float
    words_of_one_token: float
    distinct_words_of_one_token: float
    tokenizer_sha256: str
    histogram_sha256: str
    fertility: tuple[Fertility, ...] = ()


@dataclass(frozen=True)
class FinishedTokenizer:
    """A tokenizer in its directory.

    Attributes:
      directory: with tokenizer.json, histogram.parquet and report.json.
      facts: the content of report.json.
    """

    directory: str
    facts: Report

    @property
    def report(self) -> dict[str, Any]:
        """The content of report.json as plain values."""
        return json.loads(to_json(self.facts))


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


def text_of(read: Read) -> Text:
    """Summarizes the workers' reports."""
    inputs = file_digests(read.digests)
    return Text(
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
    text: Text,
    histogram: Histogram,
    trained: TrainedVocabulary,
    *,
    tokenizer_sha256: str,
    histogram_sha256: str,
    fertility: tuple[Fertility, ...] = (),
) -> Report:
    """Makes the report. Its counts are exact, since the tokens of every word are known."""
    counts = histogram.counts["count"].to_numpy()
    single = trained.word_tokens == 1
    words, tokens = int(counts.sum()), int(counts @ trained.word_tokens)
    return Report(
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
        tokenizer_sha256=tokenizer_sha256,
        histogram_sha256=histogram_sha256,
        fertility=fertility,
    )


# ---- the directory ----


def find_tokenizer(
    output: str, parameters: dict[str, Any], digest: Callable[[], str]
) -> Report | None:
    """The report of the tokenizer in `output`, if it has the same parameters and inputs.

    Args:
      output: the directory; it need not exist.
      parameters: the parameters of this run.
      digest: returns the digest of the inputs; called only if all else is equal, since it reads
        all inputs.

    Returns:
      None if the directory has no tokenizer.

    Raises:
      UsageError: it has a different tokenizer; the message lists the differences and remedies.
    """
    if not store.exists(os.path.join(output, TOKENIZER)):
        return None
    histogram = os.path.join(output, HISTOGRAM)
    refuse_another(
        output,
        "another tokenizer",
        _differences(output, parameters, digest),
        f"; for the same text, {flag('from_histogram', histogram)} avoids counting its words again",
    )
    return _report(output)


def _differences(output: str, parameters: dict[str, Any], digest: Callable[[], str]) -> list[str]:
    try:
        report = _report(output)
        for name, sha256 in (
            (TOKENIZER, report.tokenizer_sha256),
            (HISTOGRAM, report.histogram_sha256),
        ):
            if not store.has_sha256(os.path.join(output, name), sha256):
                return [f"its {name} does not match the sha256 in {REPORT}"]
    except (DataError, OSError):
        return [f"it has no valid {REPORT} and {HISTOGRAM}"]
    there, here = report.parameters, parameters
    differing = [
        f"{name} {there.get(name)!r}, not {here.get(name)!r}"
        for name in {**here, **there}
        if there.get(name) != here.get(name)
    ]
    if ("document" in there) != ("document" in here):
        differing = ["one is trained from text, the other from a histogram"]
    return differing or ([] if report.text.digest == digest() else ["it is made from other text"])


def _report(output: str) -> Report:
    path = os.path.join(output, REPORT)
    return from_json(Report, parse_json(store.read(path), path), path)


def publish(output: str, run: str) -> None:
    """Publishes the files of a tokenizer from OUTPUT/.staging."""
    staging = os.path.join(output, STAGING)
    sizes = {name: store.size(os.path.join(staging, name)) for name in TOKENIZER_FILES}
    files = {name: (name, size) for name, size in sizes.items() if size is not None}
    content = store.read(os.path.join(staging, TOKENIZER))
    publish_files(output, run, TOKENIZER, content, files, TOKENIZER_FILES)
