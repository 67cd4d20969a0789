"""Prepares a run of build_corpus before its pipeline: inputs, schema, runner."""

from dataclasses import dataclass, replace

from textmill.pipelines.corpus.options import CorpusOptions
from textmill.pipelines.readers.sources import Block, plan_blocks
from textmill.pipelines.runners.block_run import BlockRun
from textmill.pipelines.runners.launch import choose_runner
from textmill.pipelines.runners.sample import count_text_bytes
from textmill.pipelines.writers.output_directory import refuse_others, refuse_own_inputs
from textmill.schemas.files.finished import Corpus
from textmill.schemas.format.corpus_metadata import CorpusSchema


@dataclass(frozen=True, kw_only=True)
class CorpusRun(BlockRun):
    """A run before its pipeline starts.

    Attributes:
      options: of the command.
      schema: of the corpus.
      times: how much larger the inputs are assumed to be.
    """

    options: CorpusOptions
    schema: CorpusSchema
    times: float = 1.0

    @staticmethod
    def of(
        options: CorpusOptions,
        blocks: list[Block],
        beam_arguments: list[str],
        how: str = "",
        times: float = 1.0,
    ) -> "CorpusRun":
        """Makes the run of a command whose runner is chosen; reads a sample of the inputs."""
        text_bytes = int(count_text_bytes(options.source, blocks) * times)
        return CorpusRun(
            "build_corpus",
            options.source,
            blocks,
            beam_arguments,
            how,
            options.shuffle_by,
            options.filters.filter,
            options=options,
            schema=options.schema(text_bytes),
            times=times,
        )


def prepare(options: CorpusOptions, beam_arguments: list[str]) -> CorpusRun:
    """Finds the inputs and the runner of a command.

    Raises:
      UsageError: the inputs or the output directory do not fit the options.
      DataError: the inputs are damaged.
    """
    refuse_others(options.output, Corpus)
    blocks = plan_blocks(options.source)
    if options.keep_source:  # names of files are content
        blocks = [
            replace(block, parts=tuple(replace(p, also_hashed=p.path) for p in block.parts))
            for block in blocks
        ]
    older = (corpus.path(file) for corpus in options.ancestors for file in corpus.documents)
    read = (part.path for block in blocks for part in block.parts)
    refuse_own_inputs(options.output, (*read, *older))
    total = sum(block.bytes for block in blocks)
    assumed = options.assume_bytes or total
    beam_arguments, how = choose_runner(beam_arguments, assumed)
    return CorpusRun.of(options, blocks, beam_arguments, how, assumed / total)
