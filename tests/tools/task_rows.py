"""Documents -> rows of any task, in memory: what a run does, without Beam and files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipelines.build.make_shard import RowMaker, Shard
from pipelines.build.options import parse_options
from pipelines.build.route_examples import RoutedExamples, route_examples
from pipelines.encoding.tokenizer import LoadedTokenizer
from pipelines.readers.documents import Documents, batch_of
from pipelines.rows.example_batch import ExampleBatch, keep
from pipelines.rows.routing import Routes
from schemas.metadata import Schema


@dataclass(frozen=True)
class Made:
    """What became of documents; columns and shards by split."""

    schema: Schema
    routed: RoutedExamples
    shards: dict[str, Shard]
    columns: dict[str, dict[str, np.ndarray]]


def make_rows(
    tokenizer: LoadedTokenizer,
    fields: Mapping[str, Sequence],
    *flags: str,
    splits: str = "train:1",
) -> Made:
    """Rows of documents.

    Args:
      tokenizer: of the set.
      fields: role to its values, in the task's order; roles that are left out are "".
      flags: of build_shards, with --task.
      splits: one shard each.
    """
    options, _ = parse_options(
        [
            "--input=none",
            "--tokenizer=none",
            "--output=none",
            "--num_shards=1",
            f"--splits={splits}",
            *flags,
        ]
    )
    schema = options.schema(tokenizer, {})
    roles = options.settings.roles()
    number = len(next(iter(fields.values())))
    columns = [pa.array(fields.get(role.name, [""] * number), role.type) for role in roles]
    documents = Documents(batch_of(columns, roles), 0, (), 0)
    routes = Routes(schema.splits, schema.shards)
    routed = route_examples(documents, options.settings, tokenizer, schema, "")
    maker = RowMaker(schema, options.settings, options.settings.finish(schema, tokenizer))
    shards, made = {}, {}
    for route, split in enumerate(routes.split_names()):
        batches = [block.batch for number, block in routed.batches if number == route]
        shard = (
            maker.make(keep(ExampleBatch(pa.concat_batches(batches))), split) if batches else None
        )
        if shard is not None:
            codec = schema.codec()
            chunks = [codec.decode(chunk) for chunk in shard.chunks()]
            made[split] = {
                name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]
            }
            shards[split] = shard
    return Made(schema, routed, shards, made)
