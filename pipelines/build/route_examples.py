"""Documents -> example batches: tokenizes and hashes them, and sorts them by route. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pipelines.encoding.tokenizer import LoadedTokenizer
from pipelines.host.arrow import pc
from pipelines.readers.documents import Documents, Reject, count_reasons
from pipelines.rows.example_batch import COPIES, MARK, ExampleBatch, without_repeats
from pipelines.rows.ragged import Ragged
from pipelines.rows.routing import Routes, joint_digests
from pipelines.tasks.task import Examples, Task
from schemas.drops import mark_of, total_counts
from schemas.features import is_training
from schemas.metadata import Schema


@dataclass(frozen=True)
class RoutedExamples:
    """The examples of some documents, and those that gave none."""

    batches: list[tuple[int, ExampleBatch]]  # (route, batch); a route may occur more than once
    rejects: tuple[Reject, ...] = ()  # documents that the task rejected
    dropped: Mapping[str, int] = field(default_factory=dict)  # documents without an example
    guarded: int = 0  # documents that the reference tokenizer encoded


def route_examples(
    documents: Documents, task: Task, tokenizer: LoadedTokenizer, schema: Schema, split: str
) -> RoutedExamples:
    """Makes examples of documents and sorts them by route.

    Documents go to `split`; if it is "", a hash of each chooses its split.
    """
    count = len(documents.text)
    if not count:
        return RoutedExamples([])
    routes = Routes.of_schema(schema)
    digests = joint_digests([documents.columns[name] for name in task.identity()])
    routing = digests
    if task.routed_by() != task.identity():
        routing = joint_digests([documents.columns[name] for name in task.routed_by()])
    route_D = routes.of_split(routing, split) if split else routes.of(routing)
    made = task.examples(documents, tokenizer, schema, _is_trained(routes)[route_D])
    whole = _example_batch(_text_bytes(documents.columns, task), made, digests)
    has_ids_E = np.diff(made.ragged["ids"][1]) > 0
    route_E = np.where(has_ids_E, route_D[made.document_E], -1)
    gone = np.ones(count, bool)
    gone[made.document_E[has_ids_E]] = False
    gone[list(made.rejects)] = False
    if "evaluation" in made.ragged:
        whole = _clear(whole, "evaluation", _is_trained(routes)[route_E])
    whole, kept = without_repeats(whole)
    batches = _by_route(whole, route_E[kept])
    if split and not is_training(split):
        held_out = _held_out(digests, made)
        for other in filter(is_training, routes.splits):
            batches += _by_route(held_out, routes.of_split(routing, other))
    rejects = tuple(
        documents.reject(number, reason, detail)
        for number, (reason, detail) in sorted(made.rejects.items())
    )
    dropped = total_counts({"no_tokens": int(gone.sum())}, count_reasons(rejects))
    return RoutedExamples(batches, rejects, dropped, made.guarded)


def _is_trained(routes: Routes) -> np.ndarray:
    """Whether each route belongs to a training split: bool [routes]."""
    return np.array([is_training(name) for name in routes.split_names()])


def _text_bytes(columns: pa.RecordBatch, task: Task) -> np.ndarray:
    """UTF-8 bytes of each document's text roles: int64 [n].

    Ids do not count, since they may differ between equal documents.
    """
    total = np.zeros(len(columns), np.int64)
    for role in task.roles():
        if role.values.is_text or role.values.is_json:
            total += pc.binary_length(columns[role.name]).to_numpy()
    return total


def _example_batch(text_bytes: np.ndarray, made: Examples, digests: np.ndarray) -> ExampleBatch:
    scalars = dict(made.scalars)
    is_first = scalars["part"] == 0 if "part" in scalars else True
    scalars[MARK] = np.zeros(len(made.document_E), np.uint8)
    return ExampleBatch.of(
        digests[made.document_E],
        np.where(is_first, text_bytes[made.document_E], 0),
        made.ragged,
        scalars,
    )


def _by_route(whole: ExampleBatch, route_E: np.ndarray) -> list[tuple[int, ExampleBatch]]:
    """Slices of the examples by route, in its order; a route below 0 drops the example."""
    order = np.argsort(route_E, kind="stable")
    order = order[np.count_nonzero(route_E < 0) :]
    present, starts = np.unique(route_E[order], return_index=True)
    stops = np.append(starts, len(order))[1:]
    taken = whole.take(order)
    return [
        (int(route), taken.slice(int(start), int(stop)))
        for route, start, stop in zip(present, starts, stops, strict=True)
    ]


def _clear(whole: ExampleBatch, name: str, where_E: np.ndarray) -> ExampleBatch:
    """Empties a ragged column in some examples."""
    batch = whole.batch
    none = pa.scalar(b"", pa.large_binary())
    column = pc.if_else(pa.array(where_E), none, batch[name])
    return ExampleBatch(batch.set_column(batch.schema.get_field_index(name), name, column))


def _held_out(digests: np.ndarray, made: Examples) -> ExampleBatch:
    """Batches with each document's hash alone, in the columns of the examples."""
    zeros = np.zeros(len(digests), np.int64)
    ragged = {
        name: Ragged(values[:0], np.zeros(len(digests) + 1, np.int64))
        for name, (values, _) in made.ragged.items()
    }
    scalars = {name: zeros.astype(values.dtype) for name, values in made.scalars.items()}
    scalars[MARK] = np.full(len(digests), mark_of("held_out"), np.uint8)
    scalars[COPIES] = zeros.astype(np.uint32)
    return ExampleBatch.of(digests, zeros, ragged, scalars)
