"""Documents -> rows of any task, in memory: what a run does, without Beam and files."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from textmill.pipelines.build_shards import BUILDER
from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
from textmill.pipelines.readers.documents import Documents, batch_of
from textmill.pipelines.rows.example_batch import ExampleBatch, keep
from textmill.pipelines.rows.routing import Routes
from textmill.pipelines.shards.schema import schema_of
from textmill.pipelines.shards.steps import RoutedExamples, RowMaker, Shard, route_examples
from textmill.pipelines.tasks.task import Task
from textmill.schemas.format.metadata import Schema


@dataclass(frozen=True)
class Made:
    """Rows and rejects of documents; columns and shards by split."""

    schema: Schema
    routed: RoutedExamples
    shards: dict[str, Shard]
    columns: dict[str, dict[str, np.ndarray]]


def make_rows(
    tokenizer: LoadedTokenizer, fields: Mapping[str, Sequence], *flags: str, splits: str = "train:1"
) -> Made:
    """Rows of documents whose fields are given by role (others are ""), in a shard a split."""
    options, _ = BUILDER.parse(
        [
            "--input=none",
            "--tokenizer=none",
            "--output=none",
            "--num_shards=1",
            f"--splits={splits}",
            *flags,
        ]
    )
    schema = schema_of(options, tokenizer, {})
    roles = options.settings.roles()
    number = len(next(iter(fields.values())))
    columns = [pa.array(fields.get(role.name, [""] * number), role.type) for role in roles]
    documents = Documents(batch_of(columns, roles), 0, (), 0)
    routed, shards = make_shards(documents, options.settings, tokenizer, schema)
    return Made(schema, routed, shards, {split: rows_of(shard) for split, shard in shards.items()})


def make_shards(
    documents: Documents, task: Task, tokenizer: LoadedTokenizer, schema: Schema, split: str = ""
) -> tuple[RoutedExamples, dict[str, Shard]]:
    """The shard of each split that gets documents; a split that is given gets all of them."""
    routed = route_examples(documents, task, tokenizer, schema, split)
    maker = RowMaker(schema, task, task.finish(schema, tokenizer))
    shards = {}
    for route, name in enumerate(Routes(schema.splits, schema.shards).split_names()):
        batches = [block.batch for to, block in routed.batches if to == route]
        if batches:
            shards[name] = maker.make(keep(ExampleBatch(pa.concat_batches(batches))), name)
    return routed, {name: shard for name, shard in shards.items() if shard is not None}


def rows_of(shard: Shard) -> dict[str, np.ndarray]:
    """All its rows, read back."""
    codec = shard.maker.schema.codec()
    chunks = [codec.decode(chunk) for chunk in shard.chunks()]
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}


def segments_of(columns: Mapping[str, np.ndarray], *names: str) -> Iterator[tuple[list[int], ...]]:
    """The values of each segment in some columns, in the order of rows."""
    for row, numbers in enumerate(columns["segment_ids"]):
        bounds = np.flatnonzero(np.diff(numbers, prepend=0, append=0)).tolist()
        for start, stop in pairwise(bounds):
            yield tuple(columns[name][row, start:stop].tolist() for name in names)


def restored(pair: Iterable[Sequence[int]], sentinels: Sequence[int], eos: int) -> list[int]:
    """The text of inputs and targets of span corruption: each sentinel gives way to its span."""
    inputs, targets = pair
    assert inputs[-1] == targets[-1] == eos
    spans: dict[int, list[int]] = {}
    for token in targets[:-1]:
        if token in sentinels:
            spans[token] = []
        else:
            spans[[*spans][-1]].append(token)
    assert [*spans] == list(sentinels[: len(spans)])
    text = []
    for token in inputs[:-1]:
        text += spans.pop(token) if token in sentinels else [token]
    assert not spans
    return text
