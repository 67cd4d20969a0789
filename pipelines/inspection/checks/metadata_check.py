"""Checks the metadata files of a dataset, and derives from them what its rows must be."""

import json
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import numpy as np

from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
from textmill.pipelines.inspection.checks.listed_files import ListedFiles
from textmill.pipelines.inspection.checks.set_tokenizer import (
    Surroundings,
    check_ids,
    config_problems,
    find_surroundings,
)
from textmill.pipelines.inspection.checks.shard_check import ExpectedRows
from textmill.pipelines.rows.evaluation import EVALUATION, evaluation_names
from textmill.pipelines.writers.tfds_info import tfds_files
from textmill.pipelines.writers.token_counts import TOKEN_COUNTS, count_problems
from textmill.schemas.errors import DataError
from textmill.schemas.files import store
from textmill.schemas.files.finished import DatasetInfo
from textmill.schemas.files.set_files import FinishedFiles
from textmill.schemas.format.agreement import disagreements
from textmill.schemas.format.metadata import METADATA_FILES, Schema
from textmill.schemas.tokenizers.tokenizer_json import TOKENIZER_CONFIG
from textmill.schemas.typed_json import load_json


class MetadataCheck:
    """The metadata files of a dataset.

    Attributes:
      problems: contradictions between them.
    """

    def __init__(self, files: FinishedFiles, listed: ListedFiles):
        """Takes the files, which are compared with the manifest before they are read."""
        self.problems: list[str] = []
        self._files, self._listed = files, listed

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except DataError as error:
            self.problems.append(str(error))

    def expected_rows(self, tokenizer: Future[LoadedTokenizer]) -> ExpectedRows | None:
        """Collects expectations from undamaged metadata files; None without a schema.json."""
        schema, shards, surroundings, evaluation = None, {}, ((), ()), None
        if self._listed.is_whole("schema.json"):
            with self._noting():
                path = self._files.fetch("schema.json")
                schema = Schema.from_dict(load_json(path), path)
        if schema is None:
            return None
        if self._listed.is_whole(*METADATA_FILES):
            with self._noting():
                info = DatasetInfo.load(self._files)
                self.problems += disagreements(schema, info.stats, info.manifest)
                shards = info.stats.shards
                if self._listed.has(TOKEN_COUNTS):
                    self.problems += count_problems(info)
                self.problems += self._tfds_problems(info)
        if self._listed.is_whole("tokenizer.json"):
            with self._noting():
                surroundings = self._surroundings(schema, tokenizer.result())
        has_ids = any(feature.name == "example_id" for feature in schema.features)
        if self._listed.is_whole(EVALUATION) and has_ids:
            with self._noting():  # a dataset without evaluation questions has no such file
                evaluation = np.zeros(0, np.uint64)
                if EVALUATION in self._listed.by_path:
                    evaluation = None
                    evaluation = evaluation_names(self._files.fetch(EVALUATION))
        return ExpectedRows(schema, shards, *surroundings, evaluation)

    def _tfds_problems(self, info: DatasetInfo) -> Iterator[str]:
        """Finds files for TensorFlow Datasets that do not describe the rows."""
        for name, content in tfds_files(info.schema, info.manifest.files, info.stats).items():
            if not self._listed.has(name):
                continue
            found, due = load_json(self._files.fetch(name)), json.loads(content)
            text = str(found.get("description")) if isinstance(found, dict) else ""
            if "description" in due and f" {info.schema.code_version}: " in text:
                due["description"] = text  # prose, which may differ between versions
            if found != due:
                yield f"{name} does not describe the rows of schema.json and stats.json"

    def _surroundings(self, schema: Schema, tokenizer: LoadedTokenizer) -> Surroundings:
        """Checks the tokenizer; returns the ids before and after each segment."""
        tokenizer = tokenizer.with_roles(schema.special_ids)
        path = self._files.fetch("tokenizer.json")
        if store.sha256(path) != schema.tokenizer_sha256:
            return (), ()  # `disagreements` reports this
        check_ids(path, schema, tokenizer)
        if self._listed.has(TOKENIZER_CONFIG):
            config = self._files.fetch(TOKENIZER_CONFIG)
            self.problems += config_problems(config, schema, tokenizer)
        return find_surroundings(path, schema, tokenizer)
