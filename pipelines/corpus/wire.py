"""Wires the pipeline of a run of build_corpus. Imports Beam when the pipeline is built."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from textmill.pipelines.corpus.job import CorpusJob
from textmill.pipelines.corpus.plan import times_partition
from textmill.pipelines.corpus.prepare import CorpusRun
from textmill.pipelines.runners.plan import hinted_memory
from textmill.pipelines.writers.staging import Staging
from textmill.schemas.commands.entry import import_later
from textmill.schemas.commands.flag_file import config_bytes

if TYPE_CHECKING:
    import apache_beam as beam

# Imports Beam, which takes a second.
_build_corpus = import_later("textmill.pipelines.corpus.transforms:BuildCorpus")


def wire(
    run: CorpusRun, staging: Staging, index: str | None = None, forget: str = "", against: str = ""
) -> "Callable[[beam.Pipeline], None]":
    """Returns the function that adds the transforms to a pipeline.

    `index` is the path of the n-grams of evaluation texts, `forget` that of digests, `against`
    that of the list of older corpora.
    """
    options = run.options

    def build(pipeline: "beam.Pipeline") -> None:
        job = run.job(
            CorpusJob,
            staging,
            filters=options.filters,
            index=index,
            schema=run.schema,
            output=options.output,
            keep_source=options.keep_source,
            max_rejects=options.reading.max_rejects,
            config=config_bytes("pipelines.build_corpus", options),
            near=options.near.rule,
            paragraphs=options.duplicate_paragraphs,
            forget=forget,
            memory=hinted_memory(run, times_partition(options), run.schema.files),
            against=against,
        )
        _ = pipeline | _build_corpus(job)

    return build
