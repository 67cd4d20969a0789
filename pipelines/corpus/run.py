"""Runs build_corpus: finds a finished corpus or builds it, or plans the run."""

import time

from textmill.pipelines.corpus.ancestors import (
    stage_ancestors,
    warn_of_ancestors,
    warn_of_empty,
)
from textmill.pipelines.corpus.check import warnings_of
from textmill.pipelines.corpus.decontamination.targets import prepare_search
from textmill.pipelines.corpus.options import CorpusOptions
from textmill.pipelines.corpus.plan import CorpusPlan, plan_corpus
from textmill.pipelines.corpus.prepare import CorpusRun, prepare
from textmill.pipelines.corpus.wire import wire
from textmill.pipelines.readers.forget import stage_digests
from textmill.pipelines.readers.sources import describe_documents, has_blocks
from textmill.pipelines.runners.result import Result, Say
from textmill.pipelines.writers.output_directory import (
    differ_from,
    find_finished,
    find_or_make,
    handed_over,
)
from textmill.pipelines.writers.staging import Staging
from textmill.schemas.files.finished import Corpus, open_finished


def run(options: CorpusOptions, beam_arguments: list[str], *, say: Say) -> Result[Corpus] | None:
    """Builds the corpus unless it is finished already; None if a template's job will do it.

    Args:
      options: of the command.
      beam_arguments: Beam's flags.
      say: prints a line of progress.

    Raises:
      UsageError: the flags do not fit the inputs or the output directory.
      DataError: the inputs are damaged or empty.
    """
    began = time.monotonic()
    prepared = prepare(options, beam_arguments)
    differ = differ_from(prepared.schema, prepared.blocks)
    found = find_or_make(
        options.output,
        Corpus,
        lambda: find_finished(Corpus, options.output, differ),
        lambda staging: _build(prepared, staging, say),
        overwrite=options.overwrite,
        hands_over=prepared.flags.is_template,
    )
    if prepared.flags.is_template and found is None:
        say(handed_over(options.output))
        return None
    corpus = found or open_finished(Corpus, options.output)
    return Result(
        thing=corpus,
        seconds=None if found else time.monotonic() - began,
        documents=describe_documents(prepared.blocks, prepared.source),
        warnings=(*warn_of_empty(corpus, options.ancestors), *warnings_of(corpus)),
    )


def plan(options: CorpusOptions, beam_arguments: list[str], *, say: Say) -> CorpusPlan:
    """Estimates what `run` would need; takes and raises what it does, and writes nothing."""
    return plan_corpus(prepare(options, beam_arguments))


def _build(run: CorpusRun, staging: Staging, say: Say) -> None:
    """Runs the pipeline, whose last step publishes the corpus."""
    say(f"{run.facts}; shuffle: {run.shuffle}")
    run.prepare(staging, say)
    index = prepare_search(run.options.filters, run, staging, say)
    digests = stage_digests(run.options.forget, staging.folder)
    against = stage_ancestors(run.options.ancestors, run.options.near.parameters(), staging.folder)
    for warning in warn_of_ancestors(run.options.ancestors, run.options.near.parameters()):
        say(warning.line)
    run.execute(
        wire(run, staging, index, digests, against),
        staging,
        # Publishing removes the folder; a template's job has not begun.
        is_done=lambda: run.flags.is_template or not has_blocks(staging.folder),
    )
