"""Checks the metadata files of a dataset, and derives from them what its rows must be."""

import json
import os
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import zip_longest

import numpy as np

from textmill.pipelines.encoding.tokenizer import LoadedTokenizer
from textmill.pipelines.inspection.checks.listed_files import ListedFiles
from textmill.pipelines.inspection.checks.shard_check import ExpectedRows
from textmill.pipelines.rows.evaluation import EVALUATION, evaluation_names
from textmill.pipelines.tasks.task import task_class
from textmill.pipelines.writers.tfds_info import tfds_files
from textmill.pipelines.writers.token_counts import TOKEN_COUNTS, count_problems
from textmill.schemas.errors import DataError
from textmill.schemas.files import store
from textmill.schemas.files.finished import SetInfo
from textmill.schemas.files.set_files import SetFiles
from textmill.schemas.format.agreement import disagreements
from textmill.schemas.format.manifest import MANIFEST
from textmill.schemas.format.metadata import METADATA_FILES, Schema
from textmill.schemas.tokenizers.tokenizer_json import TOKENIZER_CONFIG, odd_settings
from textmill.schemas.typed_json import load_json, quote, read_bounded


class MetadataCheck:
    """The metadata files of a dataset.

    Attributes:
      problems: contradictions between them.
    """

    def __init__(self, files: SetFiles, listed: ListedFiles):
        """Takes the files, which are compared with the manifest before they are read."""
        self.problems: list[str] = []
        self._files, self._listed = files, listed

    def load_tokenizer(self) -> LoadedTokenizer:
        """Loads the tokenizer, which takes a while."""
        path = self._files.fetch("tokenizer.json")
        if not os.path.isfile(path):
            raise DataError(f"{path} is missing, and not listed in {MANIFEST}")
        return LoadedTokenizer(read_bounded(path))

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
                info = SetInfo.load(self._files)
                self.problems += disagreements(schema, info.stats, info.manifest)
                shards = info.stats.shards
                if self._listed.has(TOKEN_COUNTS):
                    self.problems += count_problems(info)
                self.problems += self._tfds_problems(info)
        if self._listed.is_whole("tokenizer.json"):
            with self._noting():
                surroundings = self._surroundings(schema, tokenizer)
        has_ids = any(feature.name == "example_id" for feature in schema.features)
        if self._listed.is_whole(EVALUATION) and has_ids:
            with self._noting():  # a dataset without evaluation questions has no such file
                evaluation = np.zeros(0, np.uint64)
                if EVALUATION in self._listed.by_path:
                    evaluation = None
                    evaluation = evaluation_names(self._files.fetch(EVALUATION))
        return ExpectedRows(schema, shards, *surroundings, evaluation)

    def _tfds_problems(self, info: SetInfo) -> Iterator[str]:
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

    def _surroundings(
        self, schema: Schema, loading: Future[LoadedTokenizer]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns the ids before and after each segment; raises DataError for another tokenizer."""
        tokenizer = loading.result().with_roles(schema.special_ids)
        path = self._files.fetch("tokenizer.json")
        if store.sha256(path) != schema.tokenizer_sha256:
            return (), ()  # `disagreements` reports this
        for name in ("vocab_size", "special_ids", "all_special_ids"):
            found, due = getattr(tokenizer, name), getattr(schema, name)
            if found != due:
                raise DataError(
                    f"{path} has the {name} {quote(found)}, but schema.json has {quote(due)}"
                )
        self._check_tokenizer_config(schema, tokenizer)
        if schema.golden != tokenizer.golden:
            pairs = zip_longest(tokenizer.golden, schema.golden)
            [found, due] = next((now, stated) for now, stated in pairs if now != stated)
            raise DataError(
                f"{path} gives the golden text and ids {quote(found)}, but schema.json has "
                f"{quote(due)}"
            )
        task = task_class(schema.task)
        found = task.surroundings(schema, tokenizer)
        due = tuple(tuple(schema.parameters.get(n, ())) for n in ("prefix_ids", "suffix_ids"))
        if task.wraps_segments and due != found:
            raise DataError(f"{path} puts {found} around a text, but schema.json has {due}")
        return found

    def _check_tokenizer_config(self, schema: Schema, tokenizer: LoadedTokenizer) -> None:
        """Notes roles that transformers would find and that are not the schema's."""
        if not self._listed.has(TOKENIZER_CONFIG):
            return
        path = self._files.fetch(TOKENIZER_CONFIG)
        settings = load_json(path)
        if not isinstance(settings, dict):
            self.problems.append(f"{path} holds a {type(settings).__name__}, not an object")
            return
        for name in odd_settings(settings, tokenizer.ids, schema.special_ids):
            given = quote(settings.get(name))
            self.problems.append(f"{path}: {name} is {given}, schema.json has another")
