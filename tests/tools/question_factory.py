"""Questions for tests, and the rows and sets that are made of them without Beam."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.tools.shard_factory import replace_file, write_set
from tests.tools.task_rows import make_shards, rows_of, segments_of
from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
from textmill.pipelines.readers.documents import Documents, Reject, batch_of
from textmill.pipelines.rows.evaluation import evaluation_file
from textmill.pipelines.shards.options import BuildOptions, SplitFlags
from textmill.pipelines.shards.schema import schema_of as schema_of_options
from textmill.pipelines.shards.steps import Shard, evaluation_of
from textmill.pipelines.tasks.qa import Qa
from textmill.schemas.format.metadata import Schema

Question = tuple[str, str, list[tuple[str, int]], str]  # question, context, answers, id
Columns = dict[str, np.ndarray]


def documents_of(questions: Sequence[Question]) -> Documents:
    """As a reader gives them."""
    columns: list[Any] = [[] for _ in range(4)]
    for question, context, answers, name in questions:
        columns[0].append(question)
        columns[1].append(context)
        columns[2].append([{"text": text, "start": start} for text, start in answers])
        columns[3].append(name)
    roles = Qa().roles()
    arrays = [pa.array(c, role.type) for c, role in zip(columns, roles, strict=True)]
    files = (("questions.jsonl", "record", len(questions)),)
    return Documents(batch_of(arrays, roles), 0, (), 0, files=files)


def schema_of(task: Qa, tokenizer: LoadedTokenizer, max_length: int) -> Schema:
    """The schema of a set with a train and a validation split."""
    options = BuildOptions(
        splitting=SplitFlags(train_input=("a",), validation_input=("b",)),
        tokenizer="tokenizer.json",
        output="set",
        task="qa",
        max_length=max_length,
        settings=task,
    )
    return schema_of_options(options, tokenizer, {})


def shard_of(
    documents: Documents, task: Qa, tokenizer: LoadedTokenizer, max_length: int, split: str
) -> tuple[Shard | None, tuple[Reject, ...]]:
    """The one shard that documents of a split give, and what was refused."""
    schema = schema_of(task, tokenizer, max_length)
    routed, shards = make_shards(documents, task, tokenizer, schema, split)
    return shards.get(split), routed.rejects


def write_qa_set(
    directory: Path,
    questions: Mapping[str, Sequence[Question]],
    task: Qa,
    tokenizer: LoadedTokenizer,
    max_length: int,
) -> dict[str, Columns]:
    """A whole small set of the questions of train and validation; returns its columns by split."""
    schema, lines = schema_of(task, tokenizer, max_length), []
    columns = {
        split: {f.name: np.zeros((0, *f.shape), f.dtype) for f in schema.features}
        for split in schema.splits
    }
    for split, asked in questions.items():
        shard, rejects = shard_of(documents_of(asked), task, tokenizer, max_length, split)
        assert shard is not None and not rejects
        columns[split] = rows_of(shard)
        lines += evaluation_of(shard.kept)
    write_set(directory, schema, columns)
    replace_file(directory, "tokenizer.json", tokenizer.json)
    for name, content in evaluation_file(lines, ids_differ=True).items():
        replace_file(directory, name, content)
    return columns


def said(rows: Columns, tokenizer: LoadedTokenizer) -> Iterator[tuple[bytes, bytes]]:
    """The prompt of each segment, and the answer that is learned, without its eos."""
    for ids, weights in segments_of(rows, "input_ids", "loss_weights"):
        spelt = [tokenizer.token_bytes[token] for token in ids]
        answer = len(ids) - sum(weights)
        yield b"".join(spelt[:answer]), b"".join(spelt[answer:-1])
