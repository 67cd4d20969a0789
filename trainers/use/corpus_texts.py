"""Documents of a corpus by their hash, found by bisection: a corpus is sorted by hash."""

from __future__ import annotations

import bisect
import importlib.util
import json
from typing import Any, Callable, Dict, Iterable, Iterator, Sequence

import numpy as np

from textmill.schemas.errors import DataError, UsageError, flag, one_line
from textmill.schemas.files.finished import Corpus, open_finished
from textmill.schemas.format.corpus_metadata import partition_of
from textmill.schemas.format.digests import DIGEST_BYTES
from textmill.schemas.format.manifest import ManifestFile

Fields = Dict[str, Any]


class CorpusTexts:
    """The documents of a corpus, with the fields that it kept."""

    def __init__(self, directory: str):
        """Opens the corpus without reading its documents.

        Raises:
          DataError: it is not a finished corpus.
          UsageError: the package that reads it is not installed.
        """
        if importlib.util.find_spec("pyarrow") is None:
            raise UsageError(
                f"{flag('corpus', directory)}: the package pyarrow is not installed: pip install "
                "pyarrow"
            )
        self._corpus = open_finished(Corpus, directory, verify=False)

    def find(self, digests: Iterable[bytes]) -> dict[bytes, Fields]:
        """The text and the other fields of those documents that the corpus has.

        Raises:
          DataError: a file cannot be read or is damaged.
        """
        files = self._corpus.documents
        of_file: dict[int, list[str]] = {}
        wanted = sorted(set(digests))
        hashes = np.frombuffer(b"".join(wanted), np.uint8).reshape(-1, DIGEST_BYTES)
        for digest, number in zip(wanted, partition_of(hashes, len(files)).tolist()):
            of_file.setdefault(number, []).append(digest.hex())
        found: dict[bytes, Fields] = {}
        for number, ids in of_file.items():
            for fields in self._find_in(files[number], ids):
                found[bytes.fromhex(fields.pop("id"))] = fields
        return found

    def _find_in(self, file: ManifestFile, ids: Sequence[str]) -> list[Fields]:
        is_parquet = self._corpus.schema.file_format == "parquet"
        find: Callable[..., Iterator[Fields]] = _find_in_parquet if is_parquet else _find_in_lines
        with self._corpus.open_temporarily(file.path) as path:
            try:
                return list(find(path, ids))
            except (OSError, ValueError) as error:  # Arrow's errors are of these
                raise DataError(
                    f"{path}: {one_line(error)}; copy or build the corpus again"
                ) from error


def _find_in_parquet(path: str, ids: Sequence[str]) -> Iterator[Fields]:
    # 40 MB, which only those with a corpus have.
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, memory_map=True, page_checksum_verification=True) as file:
        groups = range(file.num_row_groups)

        def last_id(group: int) -> str:
            column = file.schema_arrow.names.index("id")
            statistics = file.metadata.row_group(group).column(column).statistics
            if statistics is not None and statistics.has_min_max:
                return str(statistics.max)
            return file.read_row_group(group, columns=["id"])["id"][-1].as_py()

        last_ids = [last_id(group) for group in groups]
        of_group: dict[int, list[str]] = {}
        for name in ids:
            of_group.setdefault(bisect.bisect_left(last_ids, name), []).append(name)
        for group, names in of_group.items():
            if group in groups:
                table = file.read_row_group(group)
                own = table["id"].to_pylist()
                for name in names:
                    at = bisect.bisect_left(own, name)
                    if at < len(own) and own[at] == name:
                        yield table.slice(at, 1).to_pylist()[0]


def _find_in_lines(path: str, ids: Sequence[str]) -> Iterator[Fields]:
    # See above; a file of JSON Lines is read up to the last of the documents.
    import pyarrow as pa

    wanted = {*ids}
    with pa.input_stream(path, compression="zstd") as raw:
        for line in _lines_of(raw):
            fields = json.loads(line)
            if fields["id"] in wanted:
                yield fields
            if fields["id"] >= ids[-1]:
                return


def _lines_of(raw: Any) -> Iterator[bytes]:
    rest = b""
    while piece := raw.read(1 << 20):
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
