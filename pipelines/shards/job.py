"""The settings that each worker of build_shards gets, and the report that it gives back."""

import os
from dataclasses import dataclass, field

import numpy as np

from textmill.pipelines.encoding.tokenizer import LoadedTokenizer, tokenizer_of_json
from textmill.pipelines.readers.forget import load_digests
from textmill.pipelines.rows.evaluation import EvaluationLine
from textmill.pipelines.rows.routing import Routes
from textmill.pipelines.runners.block_run import BlockJob, BlockReport
from textmill.pipelines.tasks.task import Task
from textmill.pipelines.writers.token_counts import NO_COUNTS, add_token_counts
from textmill.schemas.errors import DataError
from textmill.schemas.files import store
from textmill.schemas.format.digests import Digests
from textmill.schemas.format.manifest import ManifestFile
from textmill.schemas.format.metadata import Schema
from textmill.schemas.format.statistics import Statistics


@dataclass(frozen=True, kw_only=True)
class Job(BlockJob):
    """The settings of a run, which go to each worker."""

    schema: Schema
    task: Task
    filter: str  # names the user's function that chooses documents; "" for none
    output: str  # the dataset's directory, which holds the staging folder
    max_rejects: int  # rejected documents above which the run fails; below 0 for no limit
    config: bytes  # content of config.yaml, which repeats the run
    tokenizer_config: bytes  # content of tokenizer_config.json
    resume: bool = False  # whether to record finished shards, and reuse an earlier run's

    def locate(self, name: str) -> str:
        """The path of a file: staged, or already published if publishing is retried."""
        staged = os.path.join(self.staging, name)
        return staged if store.exists(staged) else os.path.join(self.output, name)

    @property
    def keys(self) -> int:
        """The shards of all splits."""
        return sum(self.schema.shards.values())

    @property
    def routes(self) -> Routes:
        """The splits and shards, from which a document's hash chooses."""
        return Routes.of_schema(self.schema)

    def listed(self) -> Digests | None:
        """The documents that --forget lists."""
        return load_digests(self.forget)

    def tokenizer(self) -> LoadedTokenizer:
        """The dataset's copy of the tokenizer.

        Raises:
          DataError: the file has changed since the run began.
        """
        sha256 = self.schema.tokenizer_sha256
        if sha256 not in _loaded_tokenizers:
            path = self.locate("tokenizer.json")
            tokenizer = tokenizer_of_json(store.read(path))
            if tokenizer.sha256 != sha256:
                raise DataError(f"{path} changed during the run: run build_shards again")
            share_tokenizer(tokenizer.with_roles(self.schema.special_ids))
        return _loaded_tokenizers[sha256]


# Once per process: parsing takes 0.4 s, and the first encode another 0.5 s.
_loaded_tokenizers: dict[str, LoadedTokenizer] = {}


def share_tokenizer(tokenizer: LoadedTokenizer) -> None:
    """Lets workers in this process use a loaded tokenizer."""
    _loaded_tokenizers[tokenizer.sha256] = tokenizer


@dataclass(frozen=True, kw_only=True)
class DatasetReport(BlockReport):
    """The report on a bundle of blocks or on a shard."""

    ADDED = {"token_counts": add_token_counts}

    statistics: Statistics = field(default_factory=Statistics)
    files: tuple[ManifestFile, ...] = ()
    evaluation: tuple[EvaluationLine, ...] = ()
    token_counts: np.ndarray = field(default_factory=lambda: NO_COUNTS, compare=False)
