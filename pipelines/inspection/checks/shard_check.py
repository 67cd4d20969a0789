"""Reads one shard in all its formats and finds its problems."""

import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from textmill.pipelines.inspection.checks.documents_check import document_problems
from textmill.pipelines.inspection.checks.row_checks import (
    COUNTED,
    Columns,
    count,
    example_names,
    hash_rows,
    row_problems,
    segment_lengths,
)
from textmill.pipelines.rows.evaluation import EVALUATION, example_name
from textmill.pipelines.rows.ragged import Ragged
from textmill.pipelines.tasks.task import task_class
from textmill.pipelines.writers.document_formats import document_codec, open_documents
from textmill.pipelines.writers.highway_hash import highway_hash
from textmill.schemas.commands.terminal import number_of
from textmill.schemas.errors import DataError
from textmill.schemas.format.codec import RowCodec
from textmill.schemas.format.manifest import ROW_DOCUMENTS, ManifestFile
from textmill.schemas.format.metadata import Schema
from textmill.schemas.format.records import RowReader, open_rows
from textmill.schemas.format.statistics import ShardStatistics, split_of

_BATCH_ROWS = 2048  # some hundred kB per column, which fit the CPU cache
_BATCH_TOKENS = 1 << 20  # of tokenized documents


@dataclass(frozen=True)
class ExpectedRows:
    """The values that rows are compared with.

    Attributes:
      schema: the schema of the dataset.
      stats: counts by shard; empty if stats.json is damaged.
      prefix: ids that the tokenizer puts before a text.
      suffix: ids that the tokenizer puts after a text.
      evaluation: uint64, names of the lines of evaluation.jsonl; None if unknown.
    """

    schema: Schema
    stats: dict[str, ShardStatistics]
    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    evaluation: np.ndarray | None = None


class ShardCheck:
    """Reads one shard.

    Attributes:
      problems: sentences that name file, row and value.
      counts: COUNTED and `trained` in the rows read; tokenized documents count as rows.
      examples: uint64, by batch, the lines of evaluation.jsonl that the rows name.
    """

    def __init__(
        self,
        name: str,
        files: list[ManifestFile],
        expected: ExpectedRows,
        on_bytes: Callable[[int], None],
    ):
        """Prepares the check of a shard, "train-00000-of-00004".

        `files` has it in each format, and the documents of its rows.
        """
        self.problems: list[str] = []
        self.counts: Counter[str] = Counter()
        self.examples: list[np.ndarray] = []
        self._name, self._files = name, [file for file in files if file.is_shard]
        self._expected, self._schema = expected, expected.schema
        self._on_bytes = on_bytes
        self._labels: Counter[str] = Counter()
        self._segments: list[tuple[np.ndarray, np.ndarray]] = []  # by batch, see `segment_lengths`
        self._row_hashes: list[np.ndarray] = []

    def run(self, stop: threading.Event, located: Mapping[str, str]) -> None:
        """Reads the located files of the shard until the end or until `stop` is set."""
        if self._schema.holds_documents:
            self._check_documents(stop, located)
        else:
            self._check_rows(stop, located, self._schema.codec())

    def _check_rows(
        self, stop: threading.Event, located: Mapping[str, str], codec: RowCodec
    ) -> None:
        readers = self._open_rows(located, codec)
        all_counted = bool(readers)
        try:
            rows = max((len(reader) for reader in readers.values()), default=0)
            for start in range(0, rows, _BATCH_ROWS):
                if stop.is_set():
                    return
                all_counted &= self._check_batch(readers, codec, start)
            if all_counted:
                self._check_counts()
                self._check_copies()
                self._check_row_documents(located)
        finally:
            for reader in readers.values():
                reader.close()

    def _open_rows(self, located: Mapping[str, str], codec: RowCodec) -> dict[str, RowReader]:
        readers = {}
        for file in self._files:
            if file.path not in located:
                continue  # hashing has reported it
            try:
                reader = open_rows(located[file.path], codec.stride, highway_hash)
            except DataError as error:
                self.problems.append(str(error))
                continue
            if len(reader) != file.rows:
                self.problems.append(
                    f"{file.path} has {len(reader):,} rows, not the {file.rows:,} of the manifest"
                )
            readers[file.path] = reader
        return readers

    def _check_batch(self, readers: dict[str, RowReader], codec: RowCodec, start: int) -> bool:
        """Checks rows of the first file that decodes, and compares the other files with it.

        Removes a file that cannot be read from `readers`.

        Returns:
          Whether a file decodes.
        """
        first: tuple[str, np.ndarray] | None = None
        for path, reader in list(readers.items()):
            stop = min(start + _BATCH_ROWS, len(reader))
            try:
                rows = reader.read_range(min(start, stop), stop)
            except DataError as error:
                self.problems.append(str(error))
                readers.pop(path).close()
                continue
            self._on_bytes(rows.nbytes)
            if first is not None:
                self._compare(first, (path, rows), start)
                continue
            try:
                columns = codec.decode(rows, first_row=start)
            except DataError as error:
                self.problems.append(f"{path}: {error}")
                continue
            first = path, rows
            self._check_columns(path, columns, start)
        return first is not None

    def _compare(
        self, one: tuple[str, np.ndarray], two: tuple[str, np.ndarray], start: int
    ) -> None:
        """Compares rows [B, stride] or tokens [B] of two formats, from row or token `start` on."""
        common = min(len(one[1]), len(two[1]))
        differ = one[1][:common] != two[1][:common]
        differ = differ.any(axis=1) if differ.ndim == 2 else differ
        if differ.any():
            kind = "token" if self._schema.holds_documents else "row"
            row = start + int(differ.argmax())
            self.problems.append(f"{two[0]}: {kind} {row} differs from {one[0]}")

    def _check_columns(self, path: str, columns: Columns, start: int) -> None:
        expected = self._expected
        problems = row_problems(
            columns,
            self._schema,
            split=split_of(self._name),
            prefix=expected.prefix,
            suffix=expected.suffix,
            evaluation=expected.evaluation,
        )
        self.problems += [f"{path}: row {start + p.row}: {p.message}" for p in problems]
        self.counts.update(count(columns))
        if task_class(self._schema.task).chooses_tokens:
            self.counts["trained"] += int(columns["loss_weights"].sum())
        if "label" in columns:
            classes = self._schema.parameters["classes"]
            labels = np.bincount(columns["label"], minlength=len(classes)).tolist()
            # `row_problems` reports labels beyond the classes.
            self._labels.update(dict(zip(classes, labels, strict=False)))
        if expected.evaluation is not None:
            self.examples.append(example_names(columns))
        if not problems:
            self._segments.append(segment_lengths(columns["segment_ids"]))
        if self._schema.mask_copies > 1 and not problems:
            self._row_hashes.append(hash_rows(columns))

    def _check_counts(self) -> None:
        stats = self._expected.stats.get(self._name)
        if stats is None:
            return
        for name, due in stats.labels.items():
            if self._labels[name] != due:
                self.problems.append(
                    f"{self._name}: stats.json counts {due:,} documents with label {name!r}, but "
                    f"{self._labels[name]:,} rows have it"
                )
        for name in (*COUNTED, "trained"):
            if self.counts[name] != getattr(stats, name):
                self.problems.append(
                    f"{self._name}: {name} is {getattr(stats, name):,} in stats.json, but "
                    f"{self.counts[name]:,} in the rows"
                )

    def _check_copies(self) -> None:
        """Checks that each row, unmasked, occurs once in each of the split's masked copies."""
        copies = self._schema.copies_of(split_of(self._name))
        if not self._row_hashes or self.problems:
            return
        hashes = np.concatenate(self._row_hashes)
        rows, times = np.unique(hashes, return_counts=True)
        odd = times % copies != 0
        if odd.any():
            row = int(np.flatnonzero(hashes == rows[odd.argmax()])[0])
            self.problems.append(
                f"{self._name}: row {row}, unmasked, occurs {times[odd.argmax()]} times, but "
                f"its split has {number_of(copies, 'masked copy', 'masked copies')}"
            )

    def _check_row_documents(self, located: Mapping[str, str]) -> None:
        """Compares the documents of the rows with the rows, if these have no problem."""
        path = located.get(f"{self._name}.{ROW_DOCUMENTS}")
        if path and self._segments and not self.problems:
            count_R, length_S = map(np.concatenate, zip(*self._segments, strict=True))
            self.problems += document_problems(
                path,
                self._name,
                self._schema,
                self._expected.stats.get(self._name),
                count_R,
                length_S,
                np.concatenate(self._row_hashes) if self._row_hashes else None,
            )

    def _check_documents(self, stop: threading.Event, located: Mapping[str, str]) -> None:
        """Checks each format whose files are complete, and that all formats have equal tokens."""
        due = {file.path: file.bytes for file in self._files}
        whole = {
            path for path in due.keys() & located if os.path.getsize(located[path]) == due[path]
        }
        first: tuple[str, np.ndarray] | None = None
        for file_format in self._schema.file_formats:
            paths = [f"{self._name}.{ending}" for ending in self._schema.endings(file_format)]
            if not whole >= set(paths):
                continue  # hashing has reported missing files and other sizes
            try:
                documents = open_documents(self._schema, paths[0], located.__getitem__)
            except DataError as error:
                self.problems.append(str(error))
                continue
            where, ids = f"{self._name} as {file_format}", documents.values
            self._check_bounds(where, documents, document_codec(file_format).holds_ends)
            for start in range(0, len(ids), _BATCH_TOKENS):
                if stop.is_set():
                    return
                tokens = ids[start : start + _BATCH_TOKENS]
                self._on_bytes(tokens.nbytes)
                if first is not None:
                    other = first[1][start : start + _BATCH_TOKENS]
                    self._compare((first[0], other), (where, tokens), start)
            first = first or (where, ids)
        one_each = np.ones(self._files[0].rows or 0, np.int64)
        self._segments.append((one_each, one_each))  # a document's length does not matter
        self._check_row_documents(located)

    def _check_bounds(self, where: str, documents: Ragged, exact: bool) -> None:
        """Checks the number of documents and tokens, the largest id, and the ids at document edges.

        Args:
          where: the shard and the format, for messages.
          documents: its documents, or pieces of documents.
          exact: whether they are whole documents. There are at least as many pieces as documents,
            and only the first begins and the last ends as a document does.
        """
        ids, bounds = documents.values, documents.offsets
        due, found = self._files[0].rows or 0, len(bounds) - 1
        if not self.counts:  # the first format
            self.counts.update(rows=due, tokens_in_rows=len(ids))
        stats = self._expected.stats.get(self._name)
        tokens = stats.tokens_in_rows if stats else self.counts["tokens_in_rows"]
        if len(ids) != tokens:
            source = "stats.json" if stats else "a different format"
            self.problems.append(f"{where} has {len(ids):,} tokens, not the {tokens:,} of {source}")
        if found != due and (exact or found < due):
            self.problems.append(
                f"{where} has {found:,} documents, not the {due:,} of the manifest"
            )
        if len(ids) and int(ids.max()) >= self._schema.vocab_size:
            self.problems.append(
                f"{where} has an id {int(ids.max())}, not below the vocabulary's "
                f"{self._schema.vocab_size}"
            )
        if not exact:
            bounds = bounds[[0, -1]]
        for name, at, what in (
            ("prefix_ids", bounds[:-1], "begins"),
            ("suffix_ids", bounds[1:] - 1, "ends"),
        ):
            for due in self._schema.parameters[name] if len(ids) else ():
                odd = np.flatnonzero(ids[at] != due)
                if len(odd):
                    self.problems.append(
                        f"{where}: document {int(odd[0])} {what} with id {int(ids[at[odd[0]]])}, "
                        f"not {due}"
                    )


def find_lines_without_rows(expected: ExpectedRows, checks: list[ShardCheck]) -> list[str]:
    """Problems of the lines of evaluation.jsonl to which no row of the shards belongs."""
    if expected.evaluation is None:
        return []
    named = [names for check in checks for names in check.examples]
    lines = np.setdiff1d(expected.evaluation, np.concatenate(named or [expected.evaluation[:0]]))
    return [f"{EVALUATION}: no row belongs to {example_name(int(line))}" for line in lines]
