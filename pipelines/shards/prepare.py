"""Prepares a run of build_shards before its pipeline: inputs, tokenizer, schema, runner."""

from collections import Counter
from dataclasses import dataclass, replace

from textmill.pipelines.encoding.tokenizer import LoadedTokenizer, load_tokenizer
from textmill.pipelines.readers.label_values import find_labels
from textmill.pipelines.readers.sources import Block, describe_documents
from textmill.pipelines.runners.block_run import BlockRun
from textmill.pipelines.runners.launch import choose_runner
from textmill.pipelines.runners.result import Say
from textmill.pipelines.shards.options import BuildOptions
from textmill.pipelines.shards.schema import schema_of
from textmill.pipelines.writers.output_directory import refuse_others, refuse_own_inputs
from textmill.schemas.files.finished import DatasetInfo
from textmill.schemas.format.metadata import Schema


@dataclass(frozen=True, kw_only=True)
class BuildRun(BlockRun):
    """A run before its pipeline starts.

    Attributes:
      options: complete, see `complete`.
      schema: of the dataset.
      tokenizer: of the dataset.
      times: how much larger the inputs are assumed to be.
    """

    options: BuildOptions
    schema: Schema
    tokenizer: LoadedTokenizer
    times: float = 1.0

    @staticmethod
    def of(
        options: BuildOptions,
        tokenizer: LoadedTokenizer,
        blocks: list[Block],
        beam_arguments: list[str],
        how: str = "",
        times: float = 1.0,
    ) -> "BuildRun":
        """Makes the run of a command whose runner is chosen.

        Raises:
          UsageError: the tokenizer does not fit the task, or a row does not hold its specials.
        """
        bytes_of: Counter[str] = Counter()
        for block in blocks:
            bytes_of[block.split] += int(block.bytes * times)
        return BuildRun(
            "build_shards",
            options.source,
            blocks,
            beam_arguments,
            how,
            options.run.shuffle_by,
            options.filter,
            options=options,
            schema=schema_of(options, tokenizer, bytes_of),
            tokenizer=tokenizer,
            times=times,
        )

    @property
    def documents(self) -> str:
        """How the inputs are split into documents."""
        return describe_documents(self.blocks, self.source)

    def load_encoder(self) -> str:
        """Loads what encodes inputs of this size, and names it."""
        return self.tokenizer.load_backend(int(self.total_bytes * self.times))


def prepare(options: BuildOptions, beam_arguments: list[str], say: Say) -> BuildRun:
    """Finds the inputs, the tokenizer and the runner of a command.

    Raises:
      UsageError: the inputs, the tokenizer or the output directory do not fit the options.
      DataError: the inputs are damaged.
    """
    refuse_others(options.output, DatasetInfo)  # before all inputs are planned
    blocks = options.blocks()
    refuse_own_inputs(options.output, (part.path for block in blocks for part in block.parts))
    describe_documents(blocks, options.source)  # refuses a unit that no input has
    options = complete(options, blocks, say)
    tokenizer = load_tokenizer(options.tokenizer)
    options = replace(options, tokenizer=tokenizer.recorded)  # with the commit of a Hub's name
    total = sum(block.bytes for block in blocks)
    assumed = options.run.assume_bytes or total
    beam_arguments, how = choose_runner(beam_arguments, assumed)
    return BuildRun.of(options, tokenizer, blocks, beam_arguments, how, times=assumed / total)


def complete(options: BuildOptions, blocks: list[Block], say: Say) -> BuildOptions:
    """Adds to the options the facts of the inputs that the task needs before the run.

    `blocks` are all inputs. `say` prints a line if they have to be read.
    """
    source = options.source
    settings = options.settings.complete(lambda role: find_labels(blocks, source, role, say))
    return replace(options, settings=settings)
