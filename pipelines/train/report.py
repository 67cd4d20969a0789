"""What a tokenizer was made from and how well it does: report.json. Pure."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from pipelines.readers.sources import file_digests
from pipelines.runners.block_run import BlockReport
from pipelines.train.bpe import Trained
from pipelines.train.fertility import Fertility
from pipelines.train.histogram import Histogram
from schemas.errors import DataError
from schemas.sidecar import Inputs
from schemas.version import VERSION

FORMAT_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Read(BlockReport):
    """What workers read.

    Attributes:
      documents: that were counted.
      bytes: of their text.
      normalized_bytes: of it as the tokenizer's normalizer writes it.
      dropped: reason to number of all that were left out.
    """

    documents: int = 0
    bytes: int = 0
    normalized_bytes: int = 0
    dropped: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Text:
    """What a tokenizer was trained on.

    Attributes:
      digest: sha256 of the inputs' sizes and hashes, whatever their names and order; of the
        histogram file if it was trained from one.
      files: input files; 0 if it was trained from a histogram.
      documents: that were counted.
      bytes: of their text.
      refused: reason to number of documents that were not counted, those dropped by filters too.
    """

    digest: str
    files: int
    documents: int
    bytes: int
    refused: dict[str, int]


@dataclass(frozen=True)
class Report:
    """report.json.

    Attributes:
      parameters: what decides the tokenizer besides the text, see `TokenizerOptions`.
      words: occurrences of words in the text.
      distinct_words: different ones.
      vocab_size: tokens found; fewer than asked for if no pair was left to merge.
      merges: found; one that spells a special token adds none to the vocabulary.
      tokens: the text's, without special tokens.
      bytes_per_token: of the text.
      words_of_one_token: share of the words' occurrences, the coverage.
      distinct_words_of_one_token: share of the different words.
      fertility: of each group, the one with the most text first; none without text.
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


def check_read(read: Read, max_rejects: int) -> None:
    """Refuses a text that is empty, or of which too much was refused.

    Raises:
      DataError: says which.
    """
    read.rejects.refuse_too_many(max_rejects)
    if not read.documents:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in read.dropped.items())
        raise DataError(
            f"no document is left to train on; refused: {reasons or 'none, there were blank lines'}"
        )


def text_of(read: Read) -> Text:
    """The report of what was read."""
    inputs = file_digests(read.digests)
    return Text(
        digest=inputs_digest(inputs),
        files=len(inputs.files),
        documents=read.documents,
        bytes=read.bytes,
        refused=read.dropped,
    )


def inputs_digest(inputs: Inputs) -> str:
    """One hash of all inputs, whatever their names and order."""
    return hashlib.sha256(json.dumps(inputs.content()).encode()).hexdigest()


def report_of(
    parameters: dict[str, Any],
    text: Text,
    histogram: Histogram,
    trained: Trained,
    *,
    tokenizer_sha256: str,
    histogram_sha256: str,
    fertility: tuple[Fertility, ...] = (),
) -> Report:
    """Counts what the tokenizer makes of the text; exact, for every word's tokens are known."""
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
