"""Prepares decontamination before a run: reads evaluation texts and indexes their n-grams.

A separate job finds the n-grams that are common language; it reads the input once more.
"""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from textmill.pipelines.corpus.decontamination.finders import COMMON, stage_index
from textmill.pipelines.corpus.decontamination.gram_index import (
    GramIndex,
    Targets,
    find_phrases,
    index_targets,
)
from textmill.pipelines.corpus.decontamination.job import GramJob
from textmill.pipelines.corpus.decontamination.report import describe_targets
from textmill.pipelines.corpus.filters import Filters
from textmill.pipelines.corpus.rules.decontamination import (
    Decontamination,
    TargetFile,
    target_files,
)
from textmill.pipelines.encoding.normal_text import apply_form
from textmill.pipelines.encoding.reference import Tokenizer
from textmill.pipelines.inspection.read_rows import read_rows, segment_texts, sequences
from textmill.pipelines.readers.documents import Role
from textmill.pipelines.readers.sources import Block, Source, plan_blocks, read_block
from textmill.pipelines.runners.block_run import BlockRun
from textmill.pipelines.runners.launch import with_beam
from textmill.pipelines.writers.staging import Staging
from textmill.schemas.commands.entry import import_later
from textmill.schemas.commands.terminal import number_of
from textmill.schemas.errors import DataError, FieldError
from textmill.schemas.files import store
from textmill.schemas.files.finished import SetInfo, read_set
from textmill.schemas.format.features import is_training
from textmill.schemas.format.manifest import DECONTAMINATION, EVALUATION, ManifestFile

# Imports Beam, which takes a second.
_count_grams = import_later("textmill.pipelines.corpus.decontamination.transforms:CountGrams")
Texts = Iterator[tuple[str, int, str]]  # field, number of the record, text
_ROWS = 1024  # rows decoded at a time
_TEXT, _QUESTION = ("text",), ("question",)
_FLAT = ("text", "csv", "tsv")  # formats whose fields are strings, never lists or objects


def find_targets(filters: Filters, say: Callable[[str], None]) -> GramIndex:
    """Reads the targets in the normal form of documents, and prints how many n-grams they have.

    Raises:
      UsageError: all texts are too short to search for; or see `read_targets`.
      DataError: see `read_targets`.
    """
    flags, targets = filters.decontamination, read_targets(filters.decontamination, say)
    index = index_targets(
        replace(targets, text=apply_form(targets.text, filters.normalize)),
        ngram=flags.decontaminate_ngram,
        least=flags.decontaminate_min_words,
        share=flags.decontaminate_share,
    )
    texts, short = len(index.short_T), int(index.short_T.sum())
    if texts == short:
        raise FieldError(
            "decontaminate",
            flags.decontaminate[0],
            f"none of {number_of(texts, 'text')} has {flags.decontaminate_min_words} words, so "
            "there is nothing to search for: name other decontaminate_fields, or lower "
            "decontaminate_min_words",
        )
    say(
        f"decontamination: searching for {number_of(len(index.hash_G), 'n-gram')} of "
        f"{number_of(texts - short, 'text')}"
        + f"; skipping {number_of(short, 'text')} with fewer than "
        f"{flags.decontaminate_min_words} words" * (short > 0)
    )
    return index


def prepare_search(
    filters: Filters, run: BlockRun, staging: Staging, say: Callable[[str], None]
) -> str | None:
    """Returns the path of the n-gram index for workers; None without evaluation texts.

    Writes the index and decontamination.json into the staging folder, where the run's blocks are.

    Raises:
      UsageError, DataError: see `find_targets`; or the job that counts n-grams failed.
    """
    flags, folder = filters.decontamination, staging.folder
    if not flags.decontaminate:
        return None
    index = find_targets(filters, say)
    kept, common = index, np.zeros(0, np.int64)
    if limit := flags.decontaminate_max_documents:
        common = _count(filters, run, stage_index(index, folder), staging)
        kept = leave_out(index, common, flags.decontaminate_min_words)
        ignored, whole = len(index.hash_G) - len(kept.hash_G), int(kept.whole_T.sum())
        say(
            f"decontamination: ignoring {number_of(ignored, 'n-gram')} found in more than "
            f"{limit:,} documents"
            + f"; searching for {number_of(whole, 'text')} without others as a whole"
            * (whole > 0)
        )
    store.write_file(os.path.join(folder, DECONTAMINATION), describe_targets(index, kept, common))
    return stage_index(kept, folder)


def leave_out(index: GramIndex, common: np.ndarray, least: int) -> GramIndex:
    """The index without common n-grams; a text without others is searched for as a whole.

    The whole of a text in many documents is no common language but a leak, unless its words are few
    or short.

    Args:
      index: the n-grams of all texts.
      common: int64, numbers of the n-grams in too many documents.
      least: minimum number of words of a text.
    """
    no_text_T = np.zeros(len(index.short_T), bool)
    is_lost_T = ~index.short_T & (index.without(common, no_text_T).total_T == 0)
    return index.without(common, is_lost_T & ~find_phrases(index.targets.text, least))


def _count(filters: Filters, run: BlockRun, index: str, staging: Staging) -> np.ndarray:
    """Runs the pipeline that finds common n-grams: int64, their numbers."""
    staging = replace(staging, local=os.path.join(staging.local, "counting"))  # its own progress
    os.makedirs(staging.local, exist_ok=True)
    with_beam()
    limit = filters.decontamination.decontaminate_max_documents
    filters = replace(filters, decontamination=Decontamination(), filter="")
    run = replace(run, command="counting n-grams", filter="")
    job = run.job(GramJob, staging, filters=filters, index=index, limit=limit)
    path = os.path.join(staging.folder, COMMON)
    run.execute(
        lambda pipeline: pipeline | _count_grams(job), staging, is_done=lambda: store.exists(path)
    )
    return np.frombuffer(store.read(path), np.int64)


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
    info = read_set(path)
    if fields or info.schema.task == "qa":
        if not any(file.path == EVALUATION for file in info.manifest.files):
            raise FieldError(
                "decontaminate",
                path,
                f"the dataset has no {EVALUATION}, in which decontaminate_fields are looked up: "
                "remove that flag",
            )
        with info.borrow(EVALUATION) as local:
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


def _row_texts(info: SetInfo, shard: ManifestFile, tokenizer: Tokenizer) -> Iterator[str]:
    """Texts of a shard's segments, unmasked and without special tokens."""
    for _, columns in read_rows(info, shard, range(0, shard.rows or 0, _ROWS)):
        for name in sequences(info.schema):
            for texts in segment_texts(columns, info.schema, tokenizer, name):
                yield from texts
