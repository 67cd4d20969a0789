"""Opens a corpus as an input: the files of documents, their columns and the fingerprint.

A directory with a manifest and files such as documents-00000-of-00016.parquet is a corpus. Its
other files, such as filtered documents, are not read as input.
"""

import glob
import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pipelines import store
from pipelines.readers.documents import Role
from pipelines.store import is_url
from schemas.errors import DataError, UsageError
from schemas.manifest import MANIFEST, Manifest, ManifestFile, parse_manifest
from schemas.typed_json import parse_json

CORPUS = "corpus"  # `kind` in the schema.json of a corpus
DOCUMENTS = "documents"  # split of the files of documents in the manifest
REMEDY = "copy the corpus again or rebuild it"
_SCHEMA = "schema.json"
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


def find_corpus(pattern: str) -> CorpusFiles | None:
    """The corpus that --input names; None if it names anything else.

    Checks the sizes of all files; workers check each sha256 when they read the file.

    Raises:
      DataError: a file is missing or was changed; names the file.
    """
    is_file = os.path.splitext(pattern)[1] if is_url(pattern) else not os.path.isdir(pattern)
    if is_file or glob.has_magic(pattern) and not os.path.isdir(pattern) or not is_corpus(pattern):
        return None
    manifest = read_manifest(pattern)
    path = os.path.join(pattern, _SCHEMA)
    schema = parse_json(read_listed(pattern, manifest, _SCHEMA), path)
    for name, kind in {"columns": list, "fingerprint": str, "parameters": dict}.items():
        if not isinstance(schema.get(name), kind):
            raise DataError(f"{path}: {name} is missing or of another type: {REMEDY}")
    if schema["fingerprint"] != manifest.fingerprint:
        raise DataError(f"{pattern}: the fingerprints in {MANIFEST} and {_SCHEMA} differ; {REMEDY}")
    files = tuple(file for file in manifest.files if file.split == DOCUMENTS)
    for file in files:
        check_size(pattern, file)
    return CorpusFiles(
        pattern,
        files,
        tuple(schema["columns"]),
        manifest.fingerprint,
        str(schema["parameters"].get("normalize", "none")),
    )


def read_manifest(directory: str) -> Manifest:
    """Reads the MANIFEST.json of a corpus.

    Raises:
      DataError: the file is missing or damaged.
    """
    path = os.path.join(directory, MANIFEST)
    if not store.exists(path):
        raise DataError(f"{directory} holds no corpus: it has no {MANIFEST}")
    return parse_manifest(store.read(path), path)


def read_listed(directory: str, manifest: Manifest, name: str) -> bytes:
    """Reads a file of a corpus, and checks its size and sha256.

    Raises:
      DataError: the file is missing, not in the manifest, or was changed; names the file.
    """
    path = os.path.join(directory, name)
    for file in manifest.files:
        if file.path == name:
            check_size(directory, file)
            content = store.read(path)
            _check_sha256(path, hashlib.sha256(content).hexdigest(), file.sha256)
            return content
    raise DataError(f"{os.path.join(directory, MANIFEST)} does not list {name}: {REMEDY}")


def check_size(directory: str, file: ManifestFile) -> None:
    """Checks that a file of a corpus has the size in the manifest.

    Raises:
      DataError: it is missing or has another size; names the file.
    """
    path = os.path.join(directory, file.path)
    size = store.size(path)
    if size != file.bytes:
        what = "is missing" if size is None else f"has {size:,} bytes, not {file.bytes:,}"
        raise DataError(f"{path} {what}: {REMEDY}")


def refuse_changed(path: str, sha256: str) -> None:
    """Checks that a file of a corpus has the sha256 in the manifest.

    Raises:
      DataError: it was changed; names the file.
    """
    _check_sha256(path, store.sha256(path), sha256)


def _check_sha256(path: str, actual: str, listed: str) -> None:
    if actual != listed:
        raise DataError(
            f"{path} was changed after the corpus was published: its sha256 is not the one in "
            f"{MANIFEST}; {REMEDY}"
        )


def corpus_parameters(patterns: Iterable[str]) -> dict[str, Any]:
    """Parameters of a fingerprint that corpora among the inputs decide; {} without a corpus.

    `normalize` is the Unicode form of all inputs, which a model's later input needs too; it is
    absent if some have another form or are no corpora.

    Raises:
      DataError: as `find_corpus`.
    """
    inputs = [find_corpus(pattern) for pattern in patterns]
    corpora = {corpus.fingerprint for corpus in inputs if corpus}
    if not corpora:
        return {}
    forms = {corpus.normalize if corpus else "none" for corpus in inputs}
    normal = {"normalize": forms.pop()} if len(forms) == 1 and forms != {"none"} else {}
    return {"corpus": sorted(corpora), **normal}
