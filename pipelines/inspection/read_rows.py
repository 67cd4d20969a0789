"""Rows of a dataset, decoded: of a finished one, and samples of one that is being published.

Whole documents are rows too, as long as the longest of a batch.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, closing
from itertools import islice

import numpy as np
from tokenizers import Tokenizer

from pipelines.writers.document_formats.document_format import document_rows, open_documents
from schemas.errors import DataError, UsageError
from schemas.features import segment_name, unmask
from schemas.manifest import ManifestFile, check_unchanged
from schemas.metadata import Schema, SetInfo
from schemas.records import open_rows

Columns = dict[str, np.ndarray]
SAMPLE_ROWS = 1024  # a split; a thousand rows of 128 are 20,000 masked tokens


def read_rows(
    info: SetInfo, shard: ManifestFile, rows: range, *, keep: bool = False
) -> Iterator[tuple[int, Columns]]:
    """Yields the number of the first row of some, and their columns.

    Args:
      info: the dataset.
      shard: one of its files.
      rows: which: range(0, 5000, 1024) gives those rows by 1,024.
      keep: whether a file that comes from an object store stays in the cache for later readers.

    Raises:
      DataError: the file was changed, or its rows are damaged or of another dataset.
    """
    listed = {file.path: file for file in info.manifest.files}
    with ExitStack() as stack:

        def locate(path: str) -> str:
            located = info.locate(path) if keep else stack.enter_context(info.borrow(path))
            check_unchanged(located, listed[path])
            return located

        yield from _decode(info.schema, shard.path, rows, locate)


def sample_rows(
    schema: Schema, files: Iterable[ManifestFile], locate: Callable[[str], str]
) -> dict[str, Columns]:
    """Split to the columns of the first SAMPLE_ROWS rows of its first shard that has rows.

    A shard has its rows in the order of a hash of their content, so that these are a fair sample
    and the same ones for any way to run.

    Files that are no shards are ignored; `locate` gives the path of a file on this machine.

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
            except DataError as error:
                place = "" if str(error).startswith(path) else f"{path}: "
                raise DataError(f"{place}{error}; copy the set again or build it anew") from error
            yield start, columns


def sequences(schema: Schema) -> dict[str, str]:
    """The features that are text, and those that hold their segments.

    {"input_ids": "segment_ids"}, with a second stream {..., "target_ids": "target_segment_ids"}.
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
    """For each row the texts of the segments of a sequence, unmasked, without special tokens."""
    ids_BxL = unmask(columns) if ids_name == "input_ids" else columns[ids_name]
    segments, counts = [], []
    for ids, segment_ids in zip(ids_BxL, columns[sequences(schema)[ids_name]], strict=True):
        count = int(segment_ids.max(initial=0))
        segments += [ids[segment_ids == number + 1].tolist() for number in range(count)]
        counts.append(count)
    texts = iter(tokenizer.decode_batch(segments, skip_special_tokens=True))
    return [list(islice(texts, count)) for count in counts]


def find_split(info: SetInfo, wanted: str | None) -> str:
    """Gives the split that is meant; by default the first that has rows."""
    rows = {split: info.stats.split(split).rows for split in sorted(info.schema.splits)}
    if wanted is None:
        # "train" comes before "validation", and so does whatever has rows.
        return next((split for split, count in rows.items() if count), next(iter(rows)))
    if wanted not in rows:
        raise UsageError(
            f"--split={wanted}: {info.directory} has no such split, only {', '.join(rows)}"
        )
    return wanted
