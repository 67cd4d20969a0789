"""Runs build_corpus from parsed options: finds the finished corpus, or builds it."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from textmill.pipelines.corpus.decontamination.report import warn_of_targets
from textmill.pipelines.corpus.decontamination.targets import prepare_search
from textmill.pipelines.corpus.filters import warn_of
from textmill.pipelines.corpus.job import CorpusJob
from textmill.pipelines.corpus.options import CorpusOptions
from textmill.pipelines.corpus.partition import SOURCE
from textmill.pipelines.corpus.plan import CorpusPlan, plan_corpus
from textmill.pipelines.corpus.short_pages import warn_of_hosts
from textmill.pipelines.readers.corpus_files import read_hosts
from textmill.pipelines.readers.sources import (
    Block,
    describe_documents,
    has_blocks,
    plan_blocks,
)
from textmill.pipelines.runners.block_run import BlockRun
from textmill.pipelines.runners.launch import choose_runner
from textmill.pipelines.runners.result import Result, Say
from textmill.pipelines.runners.sample import count_text_bytes
from textmill.pipelines.writers.output_directory import (
    CORPUS,
    find_or_make,
    other_inputs,
    refuse_another,
    refuse_others,
    refuse_own_inputs,
)
from textmill.pipelines.writers.staging import Staging
from textmill.schemas.commands.entry import import_later
from textmill.schemas.commands.flag_file import config_bytes
from textmill.schemas.errors import flag
from textmill.schemas.files.finished import Corpus, kind_of, open_finished
from textmill.schemas.format.corpus_metadata import FILLED, CorpusSchema
from textmill.schemas.format.manifest import DECONTAMINATION

if TYPE_CHECKING:
    import apache_beam as beam

# Imports Beam, which takes a second.
_build_corpus = import_later("textmill.pipelines.corpus.transforms:BuildCorpus")


def run(options: CorpusOptions, beam_arguments: list[str], *, say: Say) -> Result[Corpus]:
    """Builds the corpus unless it is finished already.

    Args:
      options: of the command.
      beam_arguments: flags of Beam.
      say: prints a line of progress.

    Raises:
      UsageError: the flags do not fit the inputs or the output directory.
      DataError: the inputs are damaged or empty.
    """
    began = time.monotonic()
    schema, on, _ = _prepare(options, beam_arguments)
    found = find_or_make(
        options.output,
        CORPUS,
        lambda: _find_finished(options, schema, on.blocks),
        lambda staging: _build(options, schema, on, staging, say),
        overwrite=options.overwrite,
    )
    corpus = found or open_finished(Corpus, options.output)
    return Result(
        thing=corpus,
        seconds=None if found else time.monotonic() - began,
        documents=describe_documents(on.blocks, on.source),
        warnings=tuple(_warnings(corpus)),
    )


def plan(options: CorpusOptions, beam_arguments: list[str]) -> CorpusPlan:
    """Estimates what `run` would need; raises as it does, and writes nothing."""
    return plan_corpus(options, *_prepare(options, beam_arguments))


def _prepare(
    options: CorpusOptions, beam_arguments: list[str]
) -> tuple[CorpusSchema, BlockRun, float]:
    """The schema, the run, and how much larger than the inputs --assume_bytes is."""
    refuse_others(options.output, CORPUS)
    source = options.source
    blocks = plan_blocks(source)
    if options.keep_source:  # names of files are content
        blocks = [
            replace(block, parts=tuple(replace(p, also_hashed=p.path) for p in block.parts))
            for block in blocks
        ]
    refuse_own_inputs(options.output, (part.path for block in blocks for part in block.parts))
    total = sum(block.bytes for block in blocks)
    assumed = options.assume_bytes or total
    text = int(count_text_bytes(source, blocks) * (assumed / total))
    beam_arguments, how = choose_runner(beam_arguments, assumed)
    return options.schema(text), run_of(options, blocks, beam_arguments, how), assumed / total


def run_of(
    options: CorpusOptions, blocks: list[Block], beam_arguments: list[str], how: str = ""
) -> BlockRun:
    """The run of these blocks on the runner that `beam_arguments` names."""
    return BlockRun(
        "build_corpus",
        options.source,
        blocks,
        beam_arguments,
        how,
        options.shuffle_by,
        options.filters.filter,
    )


def _find_finished(
    options: CorpusOptions, schema: CorpusSchema, blocks: list[Block]
) -> Corpus | None:
    """The corpus in the output directory; raises UsageError if it has other flags or inputs."""
    if kind_of(options.output) is not Corpus:
        return None
    corpus = open_finished(Corpus, options.output)
    differing = corpus.schema.differences(schema) or other_inputs(corpus.inputs, blocks)
    refuse_another(options.output, "a corpus with other settings or inputs", differing)
    return corpus


def _build(
    options: CorpusOptions, schema: CorpusSchema, on: BlockRun, staging: Staging, say: Say
) -> None:
    """Runs the pipeline, whose last step publishes the corpus."""
    say(f"{on.facts}; shuffle by {on.shuffle_by}")
    on.prepare(staging, say)
    index = prepare_search(options.filters, on, staging, say)
    on.execute(
        wire(options, schema, on, staging, index),
        staging,
        is_done=lambda: not has_blocks(staging.folder),  # publishing removes the folder
    )


def wire(
    options: CorpusOptions,
    schema: CorpusSchema,
    on: BlockRun,
    staging: Staging,
    index: str | None = None,
) -> "Callable[[beam.Pipeline], None]":
    """Returns the function that adds the transforms to a pipeline."""

    def build(pipeline: "beam.Pipeline") -> None:
        job = on.job(
            CorpusJob,
            staging,
            filters=options.filters,
            index=index,
            schema=schema,
            output=options.output,
            keep_source=options.keep_source,
            max_rejects=options.reading.max_rejects,
            config=config_bytes("pipelines.build_corpus", options),
            near=options.near.rule,
            paragraphs=options.duplicate_paragraphs,
        )
        _ = pipeline | _build_corpus(job)

    return build


def _warnings(corpus: Corpus) -> list[str]:
    """Warnings about rules that remove too much, texts not searched for, and empty fields."""
    stats = corpus.stats
    filled = stats.observed.get(FILLED, {})
    kept = [name for name in corpus.schema.columns[2:] if name not in SOURCE]
    empty = [name for name in kept if name not in filled]
    warnings = warn_of(stats.funnel, stats.observed)
    if corpus.lists(DECONTAMINATION):
        warnings += warn_of_targets(corpus.read(DECONTAMINATION), corpus.schema.parameters)
    warnings += warn_of_hosts(read_hosts(corpus))
    return warnings + [
        f"{flag('keep_fields')}: {name} is missing or empty in all documents: check the field's "
        "name"
        for name in empty
    ]
