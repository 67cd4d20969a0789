"""A corpus as an input: the files that its manifest lists, its columns and its fingerprint.

A directory with a manifest and files such as documents-00000-of-00016.parquet is a corpus. Of its
other files, such as what rules dropped, none is read.
"""

import glob
import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pipelines.readers.documents import Role
from pipelines.storage import store
from pipelines.storage.store import is_url
from schemas.errors import DataError, UsageError
from schemas.manifest import MANIFEST, ManifestFile, parse_manifest
from schemas.typed_json import parse_json

CORPUS = "corpus"  # what the schema.json of a corpus says it is of
DOCUMENTS = "documents"  # what its files of documents are called, as a split names shards
_SCHEMA = "schema.json"
_FILE = re.compile(r"documents-[0-9]{5}-of-[0-9]{5}\.(parquet|jsonl\.zst)")
_REMEDY = "copy the corpus again or build it anew"


@dataclass(frozen=True)
class CorpusFiles:
    """What readers need to know of a corpus.

    Attributes:
      directory: as it was named.
      files: of documents, with sizes and sha256.
      columns: of the documents.
      fingerprint: of its schema.
      normalize: the Unicode form of its texts.
    """

    directory: str
    files: tuple[ManifestFile, ...]
    columns: tuple[str, ...]
    fingerprint: str
    normalize: str

    def path(self, file: ManifestFile) -> str:
        """Where a file is."""
        return os.path.join(self.directory, file.path)

    def check_roles(self, roles: Iterable[Role]) -> None:
        """Refuses a field that no document of the corpus has.

        Raises:
          UsageError: names the flag, and the fields that there are.
        """
        for role in roles:
            if role.field.partition(".")[0] not in self.columns and not role.optional:
                raise UsageError(
                    f"--{role.name}_field={role.field}: the corpus {self.directory} has no such "
                    f"field; it has {', '.join(self.columns)}"
                )


def is_corpus(directory: str) -> bool:
    """Whether a directory, or a URL, holds a corpus, by the names of its files."""
    if not store.exists(os.path.join(directory, MANIFEST)):
        return False
    try:
        names = store.sizes(directory) if is_url(directory) else os.listdir(directory)
    except OSError:  # not to be listed: who opens it reports why
        return False
    return any(map(_FILE.fullmatch, names))


def find_corpus(pattern: str) -> CorpusFiles | None:
    """The corpus that --input names; None if it names anything else.

    Sizes of all files are checked here; workers check each sha256 when they read the file.

    Raises:
      DataError: the corpus is not as it was published; names the file.
    """
    is_file = os.path.splitext(pattern)[1] if is_url(pattern) else not os.path.isdir(pattern)
    if is_file or glob.has_magic(pattern) and not os.path.isdir(pattern) or not is_corpus(pattern):
        return None
    place = os.path.join(pattern, MANIFEST)
    manifest = parse_manifest(store.read(place), place)
    listed = {file.path: file for file in manifest.files}
    schema = _read_schema(pattern, listed.get(_SCHEMA))
    if schema["fingerprint"] != manifest.fingerprint:
        raise DataError(f"{place} and {_SCHEMA} have different fingerprints: {_REMEDY}")
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


def check_size(directory: str, file: ManifestFile) -> None:
    """Refuses a file of a corpus that is missing, or has another size than its manifest says.

    Raises:
      DataError: names the file.
    """
    path = os.path.join(directory, file.path)
    size = store.size(path)
    if size != file.bytes:
        what = "is missing" if size is None else f"has {size:,} bytes, not {file.bytes:,}"
        raise DataError(f"{path} {what}: {_REMEDY}")


def _read_schema(directory: str, file: ManifestFile | None) -> dict[str, Any]:
    path = os.path.join(directory, _SCHEMA)
    content = store.read(path)
    if file is None or hashlib.sha256(content).hexdigest() != file.sha256:
        raise DataError(f"{path} is not the one that {MANIFEST} lists: {_REMEDY}")
    values = parse_json(content, path)
    fields = {"columns": list, "fingerprint": str, "parameters": dict}
    for name, kind in fields.items():
        if not isinstance(values.get(name), kind):
            raise DataError(f"{path}: {name} is missing or of another type: {_REMEDY}")
    return values


def refuse_changed(path: str, sha256: str) -> None:
    """Reads a file of a corpus, and refuses one that was changed after it was published.

    Raises:
      DataError: names the file.
    """
    if store.sha256(path) != sha256:
        raise DataError(
            f"{path} was changed after the corpus was published: its sha256 is not the one in "
            f"{MANIFEST}; {_REMEDY}"
        )


def corpus_parameters(patterns: Iterable[str]) -> dict[str, Any]:
    """What decides of the corpora among inputs, by name, for a fingerprint; {} without any.

    `normalize` is the form of all their texts, which texts that a model sees later need too.

    Raises:
      DataError: as `find_corpus`.
    """
    found = [corpus for corpus in map(find_corpus, patterns) if corpus]
    if not found:
        return {}
    forms = {corpus.normalize for corpus in found} - {"none"}
    normal = {"normalize": forms.pop()} if len(forms) == 1 else {}
    return {"corpus": sorted({corpus.fingerprint for corpus in found}), **normal}
