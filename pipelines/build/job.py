"""What every worker of build_shards needs to know, and what it reports when it is done."""

import os
from dataclasses import dataclass, field

import numpy as np

from pipelines.encoding.tokenizer import LoadedTokenizer
from pipelines.rows.evaluation import EvaluationLine
from pipelines.rows.routing import Routes
from pipelines.runners.block_run import BlockJob, BlockReport
from pipelines.storage import store
from pipelines.tasks.task import Task
from pipelines.writers.token_counts import NO_COUNTS, add_token_counts
from schemas.errors import DataError
from schemas.manifest import ManifestFile
from schemas.metadata import Schema
from schemas.statistics import Statistics


@dataclass(frozen=True, kw_only=True)
class Job(BlockJob):
    """What every worker needs to know."""

    schema: Schema
    task: Task
    filter: str  # the user's function, which chooses documents; "" for none
    output: str  # the dataset's directory, which holds the staging folder
    max_rejects: int  # a run with more fails; below 0 for no limit
    config: bytes  # the file that repeats the run
    tokenizer_config: bytes
    resume: bool = False  # whether finished shards are noted, and taken from an earlier run

    def locate(self, name: str) -> str:
        """Where a file of the set lies: staged, or in place, if this is a retry of publishing."""
        staged = os.path.join(self.staging, name)
        return staged if store.exists(staged) else os.path.join(self.output, name)

    @property
    def routes(self) -> Routes:
        """Splits and shards, which tell where a document goes."""
        return Routes.of_schema(self.schema)

    def tokenizer(self) -> LoadedTokenizer:
        """The tokenizer as the set carries it."""
        sha256 = self.schema.tokenizer_sha256
        if sha256 not in _loaded_tokenizers:
            path = self.locate("tokenizer.json")
            tokenizer = LoadedTokenizer(store.read(path))
            if tokenizer.sha256 != sha256:
                raise DataError(f"{path} is not the tokenizer that the run began with: run again")
            share_tokenizer(tokenizer.with_roles(self.schema.special_ids))
        return _loaded_tokenizers[sha256]


# Parsing one takes 0.4 s and the first encode another 0.5: once a process is enough.
_loaded_tokenizers: dict[str, LoadedTokenizer] = {}


def share_tokenizer(tokenizer: LoadedTokenizer) -> None:
    """Lets workers in this process use a tokenizer that is loaded already."""
    _loaded_tokenizers[tokenizer.sha256] = tokenizer


@dataclass(frozen=True, kw_only=True)
class SetReport(BlockReport):
    """What a bundle of blocks or a shard reports."""

    ADDED = {"token_counts": add_token_counts}

    statistics: Statistics = field(default_factory=Statistics)
    files: tuple[ManifestFile, ...] = ()
    evaluation: tuple[EvaluationLine, ...] = ()
    token_counts: np.ndarray = field(default_factory=lambda: NO_COUNTS, compare=False)
