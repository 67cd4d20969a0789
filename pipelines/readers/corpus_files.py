"""Opens a corpus as an input.

A directory with a manifest and files such as documents-00000-of-00016.parquet is a corpus. Its
other files, such as filtered documents, are not read as input.
"""

import glob
import os
from collections.abc import Iterable
from typing import Any, TypeVar

from textmill.pipelines.readers.documents import Role
from textmill.pipelines.readers.page_hosts import PageHosts
from textmill.schemas.errors import UsageError, flag
from textmill.schemas.files.finished import Corpus, kind_of, open_finished
from textmill.schemas.files.store import is_url
from textmill.schemas.format.manifest import HOSTS
from textmill.schemas.typed_json import from_json, parse_json

T = TypeVar("T")


def find_corpus(pattern: str, *, follow_links: bool = False) -> Corpus | None:
    """The corpus that --input names; None if it names anything else.

    Arguments and errors are those of `open_finished`. Workers check each sha256 when they read the
    file.
    """
    is_file = os.path.splitext(pattern)[1] if is_url(pattern) else not os.path.isdir(pattern)
    if is_file or glob.has_magic(pattern) and not os.path.isdir(pattern):
        return None
    if kind_of(pattern) is not Corpus:
        return None
    return open_finished(Corpus, pattern, follow_links=follow_links)


def check_roles(corpus: Corpus, roles: Iterable[Role]) -> None:
    """Checks that a corpus has the required fields.

    Raises:
      UsageError: a field is missing; names the flag and the fields of the corpus.
    """
    columns = corpus.schema.columns
    for role in roles:
        names = {role.field, role.field.partition(".")[0]}  # of a column `a.b`, or b in a
        if not names & {*columns} and not role.optional:
            raise UsageError(
                f"{flag(f'{role.name}_field', role.field)}: the corpus {corpus.directory} has no "
                f"such field; it has {', '.join(columns)}"
            )


def read_hosts(corpus: Corpus) -> PageHosts:
    """Reads the web pages of a corpus by host.

    Raises:
      DataError: the file is missing or was changed.
    """
    return read_values(corpus, HOSTS, PageHosts)


def read_values(corpus: Corpus, name: str, kind: type[T]) -> T:
    """Reads a JSON file of a corpus; one without values if the corpus has no such file.

    Raises:
      DataError: the file is missing or was changed.
    """
    if not corpus.lists(name):
        return kind()
    path = f"{corpus.directory}/{name}"
    return from_json(kind, parse_json(corpus.read(name), path), path)


def corpus_parameters(patterns: Iterable[str], *, follow_links: bool = False) -> dict[str, Any]:
    """Parameters of a fingerprint that corpora among the inputs decide; {} without a corpus.

    `normalize` is the Unicode form of all inputs, which a model's later input needs too; it is
    absent if some have a different form or are not corpora.

    Raises:
      DataError: as `find_corpus`.
    """
    inputs = [find_corpus(pattern, follow_links=follow_links) for pattern in patterns]
    corpora = {corpus.schema.fingerprint for corpus in inputs if corpus}
    if not corpora:
        return {}
    forms = {corpus.schema.normalize if corpus else "none" for corpus in inputs}
    normal = {"normalize": forms.pop()} if len(forms) == 1 and forms != {"none"} else {}
    return {"corpus": sorted(corpora), **normal}
