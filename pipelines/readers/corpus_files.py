"""Opens a corpus as an input: the files of documents, their columns and the fingerprint.

A directory with a manifest and files such as documents-00000-of-00016.parquet is a corpus. Its
other files, such as filtered documents, are not read as input.
"""

import glob
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from textmill.pipelines.readers.corpus_metadata import read_corpus
from textmill.pipelines.readers.documents import Role
from textmill.schemas.errors import UsageError
from textmill.schemas.files import store
from textmill.schemas.files.store import is_url
from textmill.schemas.format.manifest import MANIFEST, ManifestFile

_FILE = re.compile(r"documents-[0-9]{5}-of-[0-9]{5}\.(parquet|jsonl\.zst)")


@dataclass(frozen=True)
class CorpusFiles:
    """A corpus, for readers.

    Attributes:
      directory: the directory as --input names it.
      files: the files of documents, with sizes and sha256.
      columns: columns of the documents.
      fingerprint: fingerprint of the schema.
      normalize: Unicode form of the texts: none, nfc or nfkc.
    """

    directory: str
    files: tuple[ManifestFile, ...]
    columns: tuple[str, ...]
    fingerprint: str
    normalize: str

    def path(self, file: ManifestFile) -> str:
        """The path or URL of a file."""
        return os.path.join(self.directory, file.path)

    def check_roles(self, roles: Iterable[Role]) -> None:
        """Checks that the corpus has the required fields.

        Raises:
          UsageError: a field is missing; names the flag and the fields of the corpus.
        """
        for role in roles:
            names = {role.field, role.field.partition(".")[0]}  # of a column `a.b`, or b in a
            if not names & {*self.columns} and not role.optional:
                raise UsageError(
                    f"--{role.name}_field={role.field}: the corpus {self.directory} has no such "
                    f"field; it has {', '.join(self.columns)}"
                )


def is_corpus(directory: str) -> bool:
    """Whether a directory or URL holds a corpus, by the names of its files."""
    if not store.exists(os.path.join(directory, MANIFEST)):
        return False
    try:
        names = store.sizes(directory) if is_url(directory) else os.listdir(directory)
    except OSError:  # opening it later fails with the cause
        return False
    return any(map(_FILE.fullmatch, names))


def find_corpus(pattern: str, *, follow_links: bool = False) -> CorpusFiles | None:
    """The corpus that --input names; None if it names anything else.

    For `follow_links` see `read_corpus`.

    Checks all that `read_corpus` checks; workers check each sha256 when they read the file.

    Raises:
      DataError: a file is missing or was changed, leads out of the directory, or contradicts
        another; names the file.
    """
    is_file = os.path.splitext(pattern)[1] if is_url(pattern) else not os.path.isdir(pattern)
    if is_file or glob.has_magic(pattern) and not os.path.isdir(pattern) or not is_corpus(pattern):
        return None
    corpus = read_corpus(pattern, follow_links=follow_links)
    return CorpusFiles(
        pattern,
        tuple(corpus.documents),
        corpus.schema.columns,
        corpus.schema.fingerprint,
        corpus.schema.parameters.get("normalize", "none"),
    )


def corpus_parameters(patterns: Iterable[str], *, follow_links: bool = False) -> dict[str, Any]:
    """Parameters of a fingerprint that corpora among the inputs decide; {} without a corpus.

    `normalize` is the Unicode form of all inputs, which a model's later input needs too; it is
    absent if some have another form or are no corpora.

    Raises:
      DataError: as `find_corpus`.
    """
    inputs = [find_corpus(pattern, follow_links=follow_links) for pattern in patterns]
    corpora = {corpus.fingerprint for corpus in inputs if corpus}
    if not corpora:
        return {}
    forms = {corpus.normalize if corpus else "none" for corpus in inputs}
    normal = {"normalize": forms.pop()} if len(forms) == 1 and forms != {"none"} else {}
    return {"corpus": sorted(corpora), **normal}
