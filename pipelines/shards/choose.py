"""The documents that become examples in build_shards: those neither forgotten nor filtered out."""

from collections.abc import Mapping
from dataclasses import replace

from textmill.pipelines.readers.documents import Documents
from textmill.pipelines.readers.forget import REASON, find_documents, without
from textmill.pipelines.rows.routing import joint_digests
from textmill.pipelines.tasks.task import Task
from textmill.pipelines.user_filter import Chosen, choose_documents
from textmill.schemas.format.digests import Digests
from textmill.schemas.format.drops import total_counts


def choose(
    documents: Documents, task: Task, user_filter: str, listed: Digests | None
) -> tuple[Chosen, Mapping[str, int]]:
    """Skips the documents that --forget lists, and asks the user's filter about the others.

    Args:
      documents: as they were read.
      task: knows the fields that identify a document.
      user_filter: MODULE:FUNCTION, or "".
      listed: the list of --forget, or None.

    Returns:
      The documents that are left, with the counts of all others; forgotten documents by digest.

    Raises:
      UsageError, DataError: see `ask_filter`.
    """
    if listed is None:
        return choose_documents(user_filter, documents), {}
    columns = [documents.columns[name] for name in task.identity()]
    found = find_documents(listed, joint_digests(columns))
    if not found.numbers:
        return choose_documents(user_filter, documents), {}
    chosen = choose_documents(user_filter, without(documents, found.numbers))
    dropped = total_counts(chosen.dropped, {REASON: len(found.numbers)})
    return replace(chosen, dropped=dropped), found.digests
