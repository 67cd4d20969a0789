"""Compares the documents of a shard's rows with the segments of the rows.

Legend: R rows, S segments.
"""

from collections.abc import Iterator

import numpy as np

from textmill.pipelines.rows.routing import Routes
from textmill.pipelines.tasks.task import Task, task_class
from textmill.schemas.commands.terminal import number_of
from textmill.schemas.errors import DataError
from textmill.schemas.format.metadata import Schema
from textmill.schemas.format.row_documents import RowDocuments, RowSegments
from textmill.schemas.format.statistics import ShardStatistics, split_of


def document_problems(
    path: str,
    name: str,
    schema: Schema,
    stats: ShardStatistics | None,
    count_R: np.ndarray,
    length_S: np.ndarray,
    hash_R: np.ndarray | None = None,
) -> Iterator[str]:
    """Yields each contradiction between a shard's rows and their documents, a sentence.

    Args:
      path: the file of the documents of the rows, whose damage is a problem, too.
      name: the shard's name.
      schema: the schema of the dataset.
      stats: the counts of the shard; None if unknown.
      count_R: int64, segments of each row.
      length_S: int64, tokens of each segment.
      hash_R: a hash of each row without masks, if there are several masked copies.
    """
    try:
        documents = RowDocuments(path)
        yield from _contradictions(documents, name, schema, stats, (count_R, length_S), hash_R)
    except DataError as error:
        yield str(error)


def _contradictions(
    documents: RowDocuments,
    name: str,
    schema: Schema,
    stats: ShardStatistics | None,
    segments: tuple[np.ndarray, np.ndarray],
    hash_R: np.ndarray | None,
) -> Iterator[str]:
    """Like `document_problems`; raises DataError for a damaged file."""
    count_R, length_S = segments
    path, rows, used = documents.path, len(count_R), len(documents.digests)
    if documents.rows != rows:
        yield f"{path} has the documents of {documents.rows:,} rows, but there are {rows:,}"
        return
    if stats is not None and used != stats.documents:
        yield f"{path} has {used:,} documents, but stats.json counts {stats.documents:,}"
    yield from _odd_digests(documents, name, schema)
    copies = schema.copies_of(split_of(name))
    if odd := list(_odd_copies(documents, copies, hash_R)):
        yield from odd
        return
    found = documents.documents_of(np.arange(rows))
    counts = np.bincount(found.row_S, minlength=rows)
    if (counts != count_R).any():
        row = int((counts != count_R).argmax())
        yield (
            f"{path}: row {row} has {number_of(counts[row], 'document')}, but "
            f"{number_of(count_R[row], 'segment')}"
        )
        return
    yield from _odd_segments(documents, found, length_S, copies)


def _odd_digests(documents: RowDocuments, name: str, schema: Schema) -> Iterator[str]:
    """Checks that digests differ, and that those that decide on the shard belong to this one."""
    digests, routes, task = documents.digests, Routes.of_schema(schema), task_class(schema.task)
    words = digests.view(">u8")
    order = np.lexsort(words.T)
    same = (words[order[1:]] == words[order[:-1]]).all(axis=1)
    if same.any():
        yield f"{documents.path} has {_name(digests, int(order[same.argmax()]))} twice"
    decides = task.routed_by is Task.routed_by
    if decides and name in routes.names():  # a shard that is not of the schema is reported
        split = split_of(name)
        own = routes.of_split(digests, split) if schema.splits_given else routes.of(digests)
        odd = own != routes.names().index(name)
        if odd.any():
            first = int(odd.argmax())
            right = routes.names()[own[first]]
            yield f"{documents.path} has {_name(digests, first)}, which belongs to {right}"


def _odd_copies(documents: RowDocuments, copies: int, hash_R: np.ndarray | None) -> Iterator[str]:
    """Checks that each list belongs to all masked copies of one row, and to no other row."""
    list_R = documents.lists_of(np.arange(documents.rows))
    times = np.bincount(list_R)
    if (times != copies).any():
        one = int((times != copies).argmax())
        yield (
            f"{documents.path}: list {one} has {number_of(times[one], 'row')}, not the "
            f"{number_of(copies, 'masked copy', 'masked copies')} of one"
        )
    elif hash_R is not None and copies > 1:
        order = np.argsort(list_R, kind="stable")
        differ = hash_R[order] != np.repeat(hash_R[order[::copies]], copies)
        if differ.any():
            row = int(order[differ.argmax()])
            yield f"{documents.path}: row {row} is not a masked copy of the row whose list it has"


def _odd_segments(
    documents: RowDocuments, found: RowSegments, length_S: np.ndarray, copies: int
) -> Iterator[str]:
    """Checks that the segments of a document, laid end to end, have the first tokens listed."""
    order = np.lexsort((found.first_S, found.document_S))[::copies]
    document, first = found.document_S[order], found.first_S[order]
    after = first + length_S[order]
    due = np.where(np.append(-1, document[:-1]) == document, np.append(0, after[:-1]), 0)
    odd = first != due
    if odd.any():
        at = int(odd.argmax())
        row, name = int(found.row_S[order[at]]), _name(documents.digests, document[at])
        yield (
            f"{documents.path}: row {row} has a segment of {name} "
            f"from token {first[at]:,} on, but the segments before it end at {due[at]:,}"
        )


def _name(digests: np.ndarray, document: int) -> str:
    return f"document {digests[document].tobytes().hex()}"
