"""The directory of a tokenizer: its files, found finished, published whole or not at all."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenizers import AddedToken, Tokenizer

from pipelines.readers.sources import file_digests
from pipelines.runners.block_run import BlockReport
from pipelines.storage import store
from pipelines.train.fertility import Fertility
from pipelines.train.histogram import Histogram
from pipelines.train.merge_loop import Trained
from pipelines.writers.output_directory import TOKENIZER_REPORT, refuse_another
from pipelines.writers.rejects import REJECTS
from pipelines.writers.staging import STAGING, publish_files
from schemas.errors import DataError
from schemas.metadata import Inputs
from schemas.typed_json import from_json
from schemas.version import VERSION

TOKENIZER, HISTOGRAM, REPORT = "tokenizer.json", "histogram.parquet", TOKENIZER_REPORT
CONFIG = "tokenizer_config.json"
RUN = "config.yaml"  # the flags, to run it again
READ, SAMPLE = "read.json", "sample.json"  # in the staging folder only
_FILES = (HISTOGRAM, REJECTS, REPORT, CONFIG, RUN)  # beside tokenizer.json, the seal
FORMAT_VERSION = 1  # of report.json


# ---- report.json ----


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
      refused: reason to number of documents that were not counted, those of --filter too.
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


# ---- the files for Hugging Face ----


def add_special_tokens(tokenizer: Tokenizer, tokens: Sequence[str], takes_space: str = "") -> None:
    """Makes tokens of the vocabulary special; `takes_space` takes the space before it along."""
    tokenizer.add_special_tokens(
        [
            AddedToken(token, lstrip=token == takes_space, normalized=False, special=True)
            for token in tokens
        ]
    )


def config_json(settings: Mapping[str, Any]) -> bytes:
    """tokenizer_config.json: the roles of the special tokens and more, for `AutoTokenizer`."""
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **settings,
    }
    return (json.dumps(config, indent=2, sort_keys=True) + "\n").encode()


# ---- the directory ----


def finished_tokenizer(
    output: str, parameters: dict[str, Any], digest: Callable[[], str]
) -> Report | None:
    """The report of the tokenizer in `output`, if it is the one that is asked for.

    Args:
      output: the directory; it need not be there.
      parameters: asked for.
      digest: of the inputs; called only if nothing else differs, for it reads them all.

    Returns:
      None if the directory holds no tokenizer.

    Raises:
      UsageError: it holds another one; names what differs and how to go on.
    """
    if not store.exists(os.path.join(output, TOKENIZER)):
        return None
    histogram = os.path.join(output, HISTOGRAM)
    refuse_another(
        output,
        "another tokenizer",
        _differences(output, parameters, digest),
        f"; for the same text, --from_histogram={histogram} saves counting it again",
    )
    return _report(output)


def _differences(output: str, parameters: dict[str, Any], digest: Callable[[], str]) -> list[str]:
    try:
        report = _report(output)
        for name, sha256 in (
            (TOKENIZER, report.tokenizer_sha256),
            (HISTOGRAM, report.histogram_sha256),
        ):
            if store.sha256(os.path.join(output, name)) != sha256:
                return [f"its {name} is not the one that {REPORT} tells of"]
    except (DataError, OSError):
        return [f"without a whole {REPORT} and {HISTOGRAM} of this program"]
    there, here = report.parameters, parameters
    differing = [
        f"{name} {there.get(name)!r}, not {here.get(name)!r}"
        for name in {**here, **there}
        if there.get(name) != here.get(name)
    ]
    if ("document" in there) != ("document" in here):
        differing = ["trained from text and not from a histogram, or the reverse"]
    return differing or ([] if report.text.digest == digest() else ["made from other text"])


def _report(output: str) -> Report:
    path = os.path.join(output, REPORT)
    return from_json(Report, store.load_json(path), path)


def publish(output: str, run: str) -> None:
    """Publishes a tokenizer, whose files wait in OUTPUT/.staging."""
    staging = os.path.join(output, STAGING)
    sizes = {name: store.size(os.path.join(staging, name)) for name in _FILES}
    files = {name: (name, size) for name, size in sizes.items() if size is not None}
    content = store.read(os.path.join(staging, TOKENIZER))
    publish_files(output, run, TOKENIZER, content, files, _FILES)
