"""The older corpora of --against, and the new documents that they already have.

A corpus that was built against others is a delta: its schema.json names them, its ancestors, by
their identities, and no document of them is in it. Workers read their list from the staging folder.
"""

import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from textmill.pipelines.corpus.partition import read_rows
from textmill.pipelines.readers.corpus_files import find_corpus
from textmill.pipelines.readers.documents import Role
from textmill.pipelines.readers.sources import MOST_DOCUMENT_BYTES, Source, plan_blocks, read_block
from textmill.pipelines.rows.example_batch import DIGEST_BYTES
from textmill.pipelines.rows.routing import content_digests
from textmill.schemas.commands.terminal import number_of
from textmill.schemas.errors import Caution, DataError, FieldError, flag
from textmill.schemas.files import store
from textmill.schemas.files.finished import Corpus
from textmill.schemas.format.corpus_metadata import OLDER_DUPLICATES, CorpusStatistics
from textmill.schemas.typed_json import from_json, parse_json, to_json

_STAGED = "against.json"
_KEY = f"S{DIGEST_BYTES}"


@dataclass(frozen=True)
class OlderFile:
    """A file of documents of an older corpus.

    Attributes:
      path: path or URL.
      rows: number of documents.
      signatures: path of the file with their signatures; "" for none.
    """

    path: str
    rows: int
    signatures: str = ""


@dataclass(frozen=True)
class Older:
    """The files of older corpora, for workers.

    Attributes:
      corpora: the files of each corpus, in the order of ids.
    """

    corpora: tuple[tuple[OlderFile, ...], ...] = ()

    @property
    def files(self) -> list[OlderFile]:
        """All files; places of older documents hold OLDER and the number of the file."""
        return [file for files in self.corpora for file in files]

    def overlapping(self, number: int, partitions: int) -> Iterator[OlderFile]:
        """The files whose range of hashes overlaps that of a partition.

        With 2 partitions, partition 1 overlaps files 1 and 2 of a corpus of 3 files.
        """
        for files in self.corpora:
            first = number * len(files) // partitions
            stop = -(-(number + 1) * len(files) // partitions)
            yield from files[first:stop]


def open_ancestors(
    against: Iterable[str], normalize: str, *, follow_links: bool
) -> tuple[Corpus, ...]:
    """Opens the corpora of --against, sorted by identity, each once.

    Args:
      against: values of the flag; commas separate directories.
      normalize: Unicode form of the new documents.
      follow_links: see `open_finished`.

    Raises:
      UsageError: one is not a corpus, has a different Unicode form, or is a delta without its
        ancestors.
      DataError: one is damaged.
    """
    corpora: dict[str, Corpus] = {}
    for path in (path.strip() for value in against for path in value.split(",")):
        corpus = find_corpus(path, follow_links=follow_links) if path else None
        if corpus is None:
            reason = (
                "it is not a corpus: give finished outputs of build_corpus, separated by commas"
            )
            raise FieldError("against", path, reason)
        if corpus.schema.normalize != normalize:
            form = flag("normalize", corpus.schema.normalize)
            raise FieldError("against", path, f"its texts are normalized otherwise: give {form}")
        corpora[corpus.identity] = corpus
    for corpus in corpora.values():
        if missing := sorted({*corpus.schema.ancestors} - {*corpora}):
            raise FieldError(
                "against",
                corpus.directory,
                "it was itself built against a corpus that is not given (identity "
                f"{missing[0][:12]}): give that one, too, separated by a comma",
            )
    return tuple(corpora[identity] for identity in sorted(corpora))


def has_signatures(corpus: Corpus, near: Mapping[str, Any]) -> bool:
    """Whether a corpus has signatures of the same shingles and bands; `near` are their flags."""
    parameters = corpus.schema.parameters
    is_same = all(parameters.get(name) == near[name] for name in ("shingle", "bands"))
    return is_same and corpus.lists(corpus.schema.signature_names()[0])


def warn_of_ancestors(corpora: Iterable[Corpus], near: Mapping[str, Any]) -> Iterator[Caution]:
    """Yields a warning about each corpus whose texts a search for near-duplicates must read."""
    for corpus in corpora:
        if near and not has_signatures(corpus, near):
            yield Caution(
                f"{corpus.directory} has no signatures of {flag('shingle', near['shingle'])} and "
                f"{flag('bands', near['bands'])}: all its texts are read and signed again, "
                "which takes longer; build it with these flags next time"
            )


def count_known(statistics: CorpusStatistics) -> tuple[int, int]:
    """Numbers of documents that older corpora have, and of near-duplicates of their documents."""
    near = statistics.observed.get("near_duplicates", {}).get("for_older", 0)
    return statistics.dropped.get(OLDER_DUPLICATES, 0), near


def warn_of_empty(delta: Corpus, older: Sequence[Corpus]) -> Iterator[Caution]:
    """Yields a warning about a delta without a document; `older` are its ancestors."""
    stats = delta.stats
    if stats.total().documents:
        return
    equal, near = count_known(stats)
    others = stats.documents_read - equal - near
    counts = {
        f"{equal:,} {'has' if equal == 1 else 'have'} the text of an older one": equal,
        f"{near:,} {'is a near-duplicate' if near == 1 else 'are near-duplicates'} of an older one "
        f"({flag('near_duplicates', delta.schema.parameters.get('near_duplicates'))})": near,
        f"{others:,} {'was' if others == 1 else 'were'} dropped for other reasons": others,
    }
    yield Caution(
        f"no document is new, so {delta.directory} is empty: of "
        f"{number_of(stats.documents_read, 'document')}, compared with "
        f"{', '.join(one.directory for one in older)}, "
        f"{', '.join(text for text, count in counts.items() if count)}; other commands accept the "
        "empty delta beside the older corpora"
    )


def stage_ancestors(corpora: Iterable[Corpus], near: Mapping[str, Any], staging: str) -> str:
    """Writes the list of files for workers; returns its path, "" without a corpus.

    `near` are the flags of near-duplicates; {} without.
    """
    listed = []
    for corpus in corpora:
        is_signed = bool(near) and has_signatures(corpus, near)
        names = corpus.schema.signature_names() if is_signed else [""] * len(corpus.documents)
        signatures = (name and f"{corpus.directory}/{name}" for name in names)
        pairs = zip(corpus.documents, signatures, strict=True)
        listed.append(tuple(OlderFile(corpus.path(f), f.rows or 0, name) for f, name in pairs))
    older = Older(tuple(listed))
    if not older.corpora:
        return ""
    staged = os.path.join(staging, _STAGED)
    store.write_file(staged, to_json(older))
    return staged


@functools.lru_cache(2)
def load_older(staged: str) -> Older:
    """The list that `stage_ancestors` wrote, read once a process; an empty one for ""."""
    return from_json(Older, parse_json(store.read(staged), staged), staged) if staged else Older()


def find_known(digests: np.ndarray, number: int, partitions: int, older: Older) -> np.ndarray:
    """Which documents of a partition older corpora have: uint8 [n, 16] -> bool [n].

    Raises:
      DataError: a file of an older corpus cannot be read.
    """
    wanted = np.ascontiguousarray(digests).view(_KEY).reshape(-1)
    known = np.zeros(len(wanted), bool)
    for file in older.overlapping(number, partitions) if len(wanted) else ():
        ids = read_ids(file.path, file.rows)
        if len(ids):
            places = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
            known |= ids[places] == wanted
    return known


def read_ids(path: str, rows: int, column: str = "id") -> np.ndarray:
    """The hashes of the documents of a file of a corpus, in its order: S16 [n].

    Numpy strips the last zero bytes of an element that is read alone.

    Raises:
      DataError: the file cannot be read, or has a different number of documents.
    """
    parts = []
    for documents in read_rows(path, rows, (column,)):
        ids = documents.columns[column]
        _, offsets, data = ids.buffers()
        bounds = np.frombuffer(offsets, np.int64)[ids.offset :][: len(ids) + 1]
        parts.append(data[int(bounds[0]) : int(bounds[-1])].to_pybytes() if len(ids) else b"")
    try:
        content = bytes.fromhex(b"".join(parts).decode())
    except ValueError as error:
        raise DataError(f"{path}: an id is not a hash: copy the corpus again") from error
    if len(content) != rows * DIGEST_BYTES:
        count = len(content) // DIGEST_BYTES
        raise DataError(f"{path} has {count:,} ids, not {rows:,}: copy the corpus again")
    return np.frombuffer(content, _KEY)


def read_documents(file: OlderFile, rows: np.ndarray) -> pa.RecordBatch:
    """Reads documents of an older corpus; only row groups that have one of them.

    Args:
      file: file of the corpus.
      rows: int64 [n], ascending, each once.

    Returns:
      A batch with the columns id and text.

    Raises:
      DataError: the file is damaged, or a text has a different hash than its id.
    """
    roles = Role("id", "string", "id"), Role("text", "field", "text")
    source = Source((file.path,), roles=roles, max_document_bytes=MOST_DOCUMENT_BYTES)
    blocks = plan_blocks(source) if len(rows) else []
    parts = [part for block in blocks for part in block.parts]
    stops = [part.record for part in parts[1:]] + [file.rows]
    found = [pa.record_batch([pa.array([], pa.large_string())] * 2, ["id", "text"])]
    for part, stop in zip(parts, stops, strict=True):
        wanted = rows[(rows >= part.record) & (rows < stop)]
        first, block = part.record, replace(blocks[0], parts=(part,))
        for documents in read_block(block, source) if len(wanted) else ():
            columns = documents.columns
            own = wanted[(wanted >= first) & (wanted < first + len(columns))] - first
            found.append(columns.select(["id", "text"]).take(pa.array(own)))
            first += len(columns)
    batch = pa.concat_batches(found)
    due = np.frombuffer(bytes.fromhex("".join(batch["id"].to_pylist())), np.uint8)
    if len(batch) != len(rows) or not np.array_equal(content_digests(batch["text"]).ravel(), due):
        raise DataError(f"{file.path}: texts differ from their ids: copy the corpus again")
    return batch
