"""Reads the texts of evaluation sets: fields of files, and splits of datasets."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from textmill.pipelines.corpus.decontamination.ngram_index import Targets
from textmill.pipelines.corpus.rules.decontamination import (
    Decontamination,
    TargetFile,
    target_files,
)
from textmill.pipelines.encoding.reference import Tokenizer
from textmill.pipelines.inspection.read_rows import read_rows, segment_texts, sequences
from textmill.pipelines.readers.documents import Role
from textmill.pipelines.readers.sources import Block, Source, plan_blocks, read_block
from textmill.schemas.errors import DataError, FieldError
from textmill.schemas.files import store
from textmill.schemas.files.finished import DatasetInfo, read_dataset
from textmill.schemas.format.features import is_training
from textmill.schemas.format.manifest import EVALUATION, ManifestFile

Texts = Iterator[tuple[str, int, str]]  # field, number of the record, text
_ROWS = 1024  # rows decoded at a time
_TEXT, _QUESTION = ("text",), ("question",)
_FLAT = ("text", "csv", "tsv")  # formats whose fields are strings, never lists or objects


def read_targets(flags: Decontamination, tell: Callable[[str], None] | None = None) -> Targets:
    """Reads all texts, the first of equal ones. `tell` takes a note about files that are not read.

    Raises:
      UsageError: a file has no text in the fields, or a dataset no split but train.
      DataError: a file is damaged, or has a bad record.
    """
    files = target_files(flags.decontaminate, tell)
    named = flags.decontaminate_fields
    places: dict[str, tuple[int, str, int]] = {}
    for number, file in enumerate(files):
        before = len(places)
        for field, record, text in _texts_of(file, named):
            places.setdefault(text, (number, field, record))
        if len(places) == before and not any(True for _ in _texts_of(file, named)):
            raise FieldError(
                "decontaminate",
                file.path,
                f"no record has text in {' or '.join(named) or 'text (of SQuAD JSON: question)'}: "
                "name the fields with text, decontaminate_fields=question,answer",
            )
    fields = sorted({field for _, field, _ in places.values()})
    return Targets(
        tuple((file.path, file.sha256) for file in files),
        tuple(fields),
        pa.array(places, pa.large_string()),
        np.array([file for file, _, _ in places.values()]),
        np.array([fields.index(field) for _, field, _ in places.values()]),
        np.array([record for _, _, record in places.values()]),
    )


def _texts_of(file: TargetFile, fields: tuple[str, ...]) -> Texts:
    return _set_texts(file.path, fields) if file.is_set else _file_texts(file.path, fields)


def _file_texts(path: str, fields: tuple[str, ...]) -> Texts:
    """Strings in fields of a file's records, at any depth of lists and objects."""
    name = _plan(path, "text", "json")[0][0].parts[0].format
    kind = "string" if name in _FLAT else "json"
    for field in _TEXT if name == "text" else fields or (_QUESTION if name == "squad" else _TEXT):
        blocks, source = _plan(path, field, kind)
        record = 0
        for documents in (piece for block in blocks for piece in read_block(block, source)):
            for reject in documents.rejects:
                raise DataError(
                    f"{reject.place}: {reject.reason}, {reject.detail}; correct the record, so "
                    "that its evaluation text is searched for"
                )
            for value in documents.text.to_pylist():
                texts = (value,) if kind == "string" else _strings(json.loads(value))
                yield from ((field, record, text) for text in texts)
                record += 1


def _plan(path: str, field: str, kind: str) -> tuple[list[Block], Source]:
    roles = (Role("decontaminate", kind, field, optional=True),)
    source = Source((path,), "line", roles=roles, field="decontaminate")
    return plan_blocks(source), source


def _strings(value: Any) -> Iterator[str]:
    """All strings inside a JSON value that are not blank."""
    if isinstance(value, str):
        if value.strip():
            yield value
    elif isinstance(value, (list, dict)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


def _set_texts(path: str, fields: tuple[str, ...]) -> Texts:
    """Texts of a dataset: fields of its evaluation.jsonl, or its decoded evaluation splits."""
    info = read_dataset(path)
    if fields or info.schema.task == "qa":
        if not any(file.path == EVALUATION for file in info.manifest.files):
            raise FieldError(
                "decontaminate",
                path,
                f"the dataset has no {EVALUATION}, in which decontaminate_fields are looked up: "
                "remove that flag",
            )
        with info.open_temporarily(EVALUATION) as local:
            yield from _file_texts(local, fields or _QUESTION)
        return
    splits = [split for split in sorted(info.schema.splits) if not is_training(split)]
    if not splits:
        raise FieldError("decontaminate", path, "the dataset has no evaluation split, only train")
    tokenizer = Tokenizer.from_str(store.read(info.locate("tokenizer.json")).decode())
    for split in splits:
        shards = info.manifest.shards(split, info.schema.read_ending)
        texts = (text for shard in shards for text in _row_texts(info, shard, tokenizer))
        yield from ((split, number, text) for number, text in enumerate(texts))


def _row_texts(info: DatasetInfo, shard: ManifestFile, tokenizer: Tokenizer) -> Iterator[str]:
    """Texts of a shard's segments, unmasked and without special tokens."""
    for _, columns in read_rows(info, shard, range(0, shard.rows or 0, _ROWS)):
        for name in sequences(info.schema):
            for texts in segment_texts(columns, info.schema, tokenizer, name):
                yield from texts
