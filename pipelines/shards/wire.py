"""The pipeline of a run, with the settings of its workers."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from textmill.pipelines.runners.plan import hinted_memory
from textmill.pipelines.shards.job import Job, share_tokenizer
from textmill.pipelines.shards.plan import TIMES_SHARD
from textmill.pipelines.shards.prepare import BuildRun
from textmill.pipelines.shards.schema import tokenizer_config
from textmill.pipelines.writers.staging import Staging
from textmill.schemas.commands.entry import import_later
from textmill.schemas.commands.flag_file import config_bytes
from textmill.schemas.typed_json import to_json

if TYPE_CHECKING:
    import apache_beam as beam

# Imports Beam, which takes a second.
_build_shards = import_later("textmill.pipelines.shards.transforms:BuildShards")


def wire(run: BuildRun, staging: Staging, forget: str = "") -> "Callable[[beam.Pipeline], None]":
    """Returns a function that adds the transforms to a pipeline; `forget` is a path of digests."""
    share_tokenizer(run.tokenizer)  # before workers are forked

    def build(pipeline: "beam.Pipeline") -> None:
        options = run.options
        job = run.job(
            Job,
            staging,
            schema=run.schema,
            task=options.settings,
            output=options.output,
            filter=options.filter,
            max_rejects=options.reading.max_rejects,
            config=config_bytes("pipelines.build_shards", options),
            tokenizer_config=to_json(tokenizer_config(run.schema, run.tokenizer)),
            resume=options.run.resume,
            forget=forget,
            memory=hinted_memory(run, TIMES_SHARD, sum(run.schema.shards.values())),
        )
        _ = pipeline | _build_shards(job)

    return build
