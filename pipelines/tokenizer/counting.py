"""The words of a tokenizer's text: counted by a pipeline, or read from an earlier run's file."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from textmill.pipelines.encoding.patterns import name_of
from textmill.pipelines.readers.sources import Block, hash_inputs
from textmill.pipelines.runners.block_run import BlockRun
from textmill.pipelines.runners.launch import choose_runner
from textmill.pipelines.tokenizer.check import notes_on_pattern, refuse_pattern
from textmill.pipelines.tokenizer.fertility import file_groups
from textmill.pipelines.tokenizer.histogram import Histogram, read_histogram
from textmill.pipelines.tokenizer.options import BPE, TokenizerOptions
from textmill.pipelines.tokenizer.output import READ, CountJob, inputs_digest
from textmill.pipelines.writers.staging import Staging
from textmill.schemas.commands.entry import import_later
from textmill.schemas.errors import UsageError, flag
from textmill.schemas.files import store
from textmill.schemas.format.manifest import HISTOGRAM
from textmill.schemas.format.tokenizer_report import TokenizerText
from textmill.schemas.typed_json import from_json, parse_json

if TYPE_CHECKING:
    import apache_beam as beam

# Importing Beam takes a second; training from a histogram does not need it.
_count_words = import_later("textmill.pipelines.tokenizer.transforms:CountWords")


def read_words(options: TokenizerOptions, path: str) -> tuple[Histogram, TokenizerText]:
    """The words of --from_histogram.

    Raises:
      UsageError: this command would cut the text in a different way.
    """
    histogram = read_histogram(path)
    origin, theirs, ours = histogram.origin, histogram.origin.cutting, options.cutting
    refuse_pattern(theirs.pattern, path)
    for name in options.bpe.parameters():
        old, new = (str(getattr(cutting, name)) for cutting in (theirs, ours))
        follows = options.model == BPE and getattr(options.bpe, name) is None
        if old != new and not follows:
            raise UsageError(
                f"{path} was counted with {flag(name, name_of(old))}, but this command has "
                f"{name_of(new)}: use the same value, or count the text again with {flag('input')}"
            )
    return histogram, TokenizerText(store.sha256(path), 0, origin.documents, origin.bytes, {})


def digest_text(options: TokenizerOptions, blocks: list[Block]) -> str:
    """The digest of the text, or of --from_histogram; reads all of it."""
    if options.from_histogram:
        read_histogram(options.from_histogram)  # raises if it is not a histogram
        return store.sha256(options.from_histogram)
    return inputs_digest(hash_inputs(blocks))


def count_words(
    options: TokenizerOptions,
    blocks: list[Block],
    beam_arguments: list[str],
    staging: Staging,
    say: Callable[[str], None],
) -> tuple[Histogram, TokenizerText]:
    """Runs the pipeline that counts words; histogram.parquet is in the staging folder then.

    Raises:
      DataError: the text is damaged or empty, or the run failed.
    """
    beam_arguments, how = choose_runner(beam_arguments, sum(block.bytes for block in blocks))
    run = run_of(options, blocks, beam_arguments, how)
    say(f"counting words: {run.facts}")
    for note in notes_on_pattern(options.cutting.pattern):
        say(note)
    run.prepare(staging, say)
    path = os.path.join(staging.folder, READ)
    wiring = wire_counting(options, run, staging)
    run.execute(wiring, staging, is_done=lambda: store.exists(path))
    text = from_json(TokenizerText, parse_json(store.read(path), path), path)
    return read_histogram(os.path.join(staging.folder, HISTOGRAM)), text


def run_of(
    options: TokenizerOptions, blocks: list[Block], beam_arguments: list[str], how: str = ""
) -> BlockRun:
    """The run that counts words, with a runner that is already chosen."""
    source, name = options.source, options.reading.filter
    return BlockRun("train_tokenizer", source, blocks, beam_arguments, how, filter=name)


def wire_counting(
    options: TokenizerOptions, run: BlockRun, staging: Staging
) -> "Callable[[beam.Pipeline], None]":
    """Returns a function that adds the transforms to a pipeline."""

    def build(pipeline: "beam.Pipeline") -> None:
        job = run.job(
            CountJob,
            staging,
            cutting=options.cutting,
            filter=options.reading.filter,
            max_rejects=options.reading.max_rejects,
            groups=file_groups(run.blocks),
        )
        _ = pipeline | _count_words(job)

    return build
