"""The plan of a run, which `build_shards --dry_run` prints."""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass

from rich.filesize import decimal

from textmill.pipelines.readers.sources import BLOCK_BYTES
from textmill.pipelines.runners.plan import Needs, RunPlan
from textmill.pipelines.runners.shuffle import count_elements
from textmill.pipelines.shards.estimate import Estimate
from textmill.pipelines.shards.prepare import BuildRun
from textmill.pipelines.writers.output_directory import other_sizes
from textmill.schemas.errors import Caution, DataError, flag
from textmill.schemas.files import store
from textmill.schemas.files.finished import DatasetInfo, open_finished
from textmill.schemas.format.manifest import MANIFEST

# Measured: a worker's memory for a block (text, ids, example batches) and for a shard (example
# batches, segments, a chunk of rows), in multiples of its bytes of text.
_TIMES_BLOCK, TIMES_SHARD = 6, 3
# Limits of a shard in a cluster's shuffle: Beam's messages have at most 2 GiB, and Flink keeps a
# key in memory.
_MOST_KEY_BYTES, _GOOD_KEY_BYTES = 2_000_000_000, 200_000_000


@dataclass(frozen=True)
class BuildPlan:
    """A run and its estimate."""

    run: BuildRun
    estimate: Estimate

    @property
    def output(self) -> str:
        """The dataset's directory."""
        return self.run.options.output

    def needs(self) -> RunPlan:
        """The disk, memory, time and shuffles of the run."""
        estimate, schema = self.estimate, self.run.schema
        shards = sum(schema.shards.values())
        blocks = max(1, math.ceil(estimate.text_bytes / BLOCK_BYTES))
        needs = Needs(
            whole=estimate.whole,
            sampled_bytes=estimate.sampled_bytes,
            text_bytes=estimate.text_bytes,
            cpu_seconds=estimate.cpu_seconds,
            slowdown=max(1.0, estimate.passed / max(sum(estimate.cpu_seconds.values()), 1e-9)),
            output_bytes=estimate.shard_bytes,
            shuffled_bytes=estimate.scratch_bytes,
            scratch_bytes=estimate.scratch_bytes,
            block_bytes=_TIMES_BLOCK * min(BLOCK_BYTES, estimate.text_bytes),
            key_bytes=TIMES_SHARD * estimate.text_bytes / shards,
            shuffles=1,
            elements=count_elements(estimate.scratch_bytes, estimate.documents, blocks, shards)
            * (self.run.shuffle_by == "runner" or self.run.times != 1),
            blocks=blocks,
            keys=shards,
        )
        return RunPlan(self.run, self.output, "shards", needs, self.run.times)

    def warnings(self) -> Iterator[Caution]:
        """Reasons why the run may fail or be slow, a line each."""
        yield from self.needs().warnings()
        estimate, shards = self.estimate, self.run.schema.shards
        # Hashes distribute documents, so the shards of a split differ by only a few percent.
        share = max(estimate.rows.get(name, 0) / n for name, n in shards.items())
        largest = estimate.scratch_bytes * share / sum(estimate.rows.values())
        if self.run.shuffle_by == "runner" and largest > _MOST_KEY_BYTES:
            more = 1 << int(sum(shards.values()) * largest / _GOOD_KEY_BYTES).bit_length()
            yield Caution(
                f"the largest shard takes {decimal(int(largest))} in the shuffle, more than the "
                f"limit of {decimal(_MOST_KEY_BYTES)}: use {flag('num_shards', min(more, 99_999))}"
            )

    def output_state(self) -> str:
        """The content of the output directory, and how the run would treat it."""
        if not store.exists(os.path.join(self.output, MANIFEST)):
            return "no dataset: the run builds it"
        overwrite = self.run.options.run.overwrite
        replaced = f"the run replaces it ({flag('overwrite', True)})"
        try:
            found = open_finished(DatasetInfo, self.output)
        except DataError as error:
            return f"a damaged dataset: {replaced if overwrite else f'the run would fail: {error}'}"
        if overwrite:
            return f"a dataset, fingerprint {found.schema.fingerprint[:12]}: {replaced}"
        differing = found.schema.differences(self.run.schema)
        if differing := differing or other_sizes(found.inputs, self.run.blocks):
            return (
                f"a different dataset ({'; '.join(differing)}): the run needs "
                f"{flag('overwrite', True)}"
            )
        return (
            "a dataset of these settings, from inputs of these sizes: if their content is the "
            "same too, the run has nothing to do"
        )
