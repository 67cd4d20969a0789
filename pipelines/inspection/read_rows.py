"""Decodes rows of a finished dataset, and samples of one that is being published.

Tokenized documents become rows too, padded to the longest of a batch.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, closing
from itertools import islice

import numpy as np

from textmill.pipelines.encoding.reference import Tokenizer
from textmill.pipelines.writers.document_formats import document_rows, open_documents
from textmill.schemas.errors import DataError, UsageError, flag
from textmill.schemas.files.finished import DatasetInfo
from textmill.schemas.format.features import segment_name, unmask
from textmill.schemas.format.manifest import ROW_DOCUMENTS, ManifestFile, check_unchanged
from textmill.schemas.format.metadata import Schema
from textmill.schemas.format.records import open_rows
from textmill.schemas.format.row_documents import RowDocuments

Columns = dict[str, np.ndarray]
SAMPLE_ROWS = 1024  # per split; a thousand rows of 128 have 20,000 masked tokens


def read_rows(
    info: DatasetInfo, shard: ManifestFile, rows: range, *, keep: bool = False
) -> Iterator[tuple[int, Columns]]:
    """Yields batches of rows: the index of the first, and their columns.

    Args:
      info: the dataset.
      shard: one of its files.
      rows: range(0, 5000, 1024) yields rows 0 to 4,999 in batches of 1,024.
      keep: whether a file downloaded from a bucket stays in the cache.

    Raises:
      DataError: the file has changed, or its rows are damaged or of a different dataset.
    """
    listed = {file.path: file for file in info.manifest.files}
    with ExitStack() as stack:

        def locate(path: str) -> str:
            located = (
                info.locate(path) if keep else stack.enter_context(info.open_temporarily(path))
            )
            check_unchanged(located, listed[path])
            return located

        yield from _decode(info.schema, shard.path, rows, locate)


def read_row_documents(info: DatasetInfo, shard: ManifestFile) -> RowDocuments:
    """Reads the documents of a shard's rows; a downloaded file stays in the cache.

    Raises:
      DataError: the file has changed, or is damaged.
    """
    path = f"{shard.path.split('.', 1)[0]}.{ROW_DOCUMENTS}"
    [listed] = [file for file in info.manifest.files if file.path == path]
    located = info.locate(path)
    check_unchanged(located, listed)
    return RowDocuments(located)


def sample_rows(
    schema: Schema, files: Iterable[ManifestFile], locate: Callable[[str], str]
) -> dict[str, Columns]:
    """Reads the first SAMPLE_ROWS rows of each split, from its first shard that has rows.

    The rows of a shard are sorted by a hash of their content, so that these are a random sample,
    and the same one on every runner. `locate` returns the local path of a file. Files that are not
    shards are ignored.

    Raises:
      DataError: a shard is damaged.
    """
    sampled: dict[str, Columns] = {}
    for file in sorted(files, key=lambda file: file.path):
        is_shard = file.split and file.rows and file.path.endswith("." + schema.read_ending)
        if is_shard and file.split not in sampled:
            count = min(file.rows or 0, SAMPLE_ROWS)
            with closing(_decode(schema, file.path, range(0, count, count), locate)) as chunks:
                _, sampled[str(file.split)] = next(chunks)
    return sampled


def _decode(
    schema: Schema, name: str, rows: range, locate: Callable[[str], str]
) -> Generator[tuple[int, Columns], None, None]:
    if schema.holds_documents:
        yield from document_rows(open_documents(schema, name, locate), rows)
        return
    codec, path = schema.codec(), locate(name)
    with closing(open_rows(path, codec.stride)) as reader:
        for start in rows:
            stop = min(start + rows.step, rows.stop)
            try:
                columns = codec.decode(reader.read_range(start, stop), first_row=start)
                _check_positions(columns, schema.max_length, start)
            except DataError as error:
                where = "" if str(error).startswith(path) else f"{path}: "
                raise DataError(f"{where}{error}; copy or build the dataset again") from error
            yield start, columns


def _check_positions(columns: Columns, max_length: int, first_row: int) -> None:
    """Raises DataError for a masked position outside its row: `unmask` would write there."""
    if "masked_positions" in columns:
        outside = (columns["masked_positions"] >= max_length).any(axis=1)
        if outside.any():
            row = first_row + int(outside.argmax())
            raise DataError(f"row {row} has a masked position beyond its {max_length} tokens")


def sequences(schema: Schema) -> dict[str, str]:
    """Returns the features of token ids, each with the feature of its segments.

    {"input_ids": "segment_ids"}; with a second stream {..., "target_ids": "target_segment_ids"}.
    """
    if schema.holds_documents:
        return {"tokens": "segment_ids"}
    names = [feature.name for feature in schema.features]
    found = {"input_ids": "segment_ids"}
    for name in names:
        if name.endswith("_ids") and segment_name(name) in names:
            found[name] = segment_name(name)
    return found


def segment_texts(
    columns: Columns, schema: Schema, tokenizer: Tokenizer, ids_name: str
) -> list[list[str]]:
    """Returns the texts of each row's segments, unmasked and without special tokens."""
    ids_BxL = unmask(columns) if ids_name == "input_ids" else columns[ids_name]
    segments, counts = [], []
    for ids, segment_ids in zip(ids_BxL, columns[sequences(schema)[ids_name]], strict=True):
        count = int(segment_ids.max(initial=0))
        segments += [ids[segment_ids == number + 1].tolist() for number in range(count)]
        counts.append(count)
    texts = iter(tokenizer.decode_batch(segments, skip_special_tokens=True))
    return [list(islice(texts, count)) for count in counts]


def find_split(info: DatasetInfo, wanted: str | None) -> str:
    """Returns the requested split; by default the first that has rows."""
    rows = {split: info.stats.split(split).rows for split in sorted(info.schema.splits)}
    if wanted is None:
        # Sorted, "train" comes before "validation".
        return next((split for split, count in rows.items() if count), next(iter(rows)))
    if wanted not in rows:
        raise UsageError(
            f"{flag('split', wanted)}: {info.directory} has no such split; it has {', '.join(rows)}"
        )
    return wanted
