"""Prepares decontamination before a run: indexes target n-grams, without common language.

A separate job finds the n-grams that are common language; it reads the input once more.
"""

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import numpy as np

from pipelines.corpus.decontamination.finders import put_index
from pipelines.corpus.decontamination.gram_index import GramIndex, index_targets
from pipelines.corpus.filters import Filters
from pipelines.corpus.normalization import apply_form
from pipelines.corpus.rules.decontamination import Decontamination
from pipelines.corpus.targets.read_targets import read_targets
from pipelines.runners.block_run import BlockRun
from pipelines.runners.launch import with_beam
from pipelines.storage import store
from pipelines.writers.staging import Staging
from schemas.commands.terminal import number_of
from schemas.errors import UsageError
from schemas.manifest import DECONTAMINATION
from schemas.typed_json import to_json

_SHOWN = 100  # common n-grams shown in decontamination.json


@dataclass(frozen=True)
class TargetReport:
    """Counts of a target (decontamination.json).

    Attributes:
      path: path of the file or dataset.
      sha256: sha256 of the file, or of the dataset's manifest.
      texts: number of texts in the chosen fields that are not in an earlier target.
      too_short: number of texts with too few words to search for.
      common: number of texts whose n-grams are all common language.
    """

    path: str
    sha256: str
    texts: int
    too_short: int
    common: int


def find_targets(filters: Filters, say: Callable[[str], None]) -> GramIndex:
    """Reads the targets in the normal form of documents, and prints how many n-grams they have.

    Raises:
      UsageError: all texts are too short to search for; or see `read_targets`.
      DataError: see `read_targets`.
    """
    flags, targets = filters.decontamination, read_targets(filters.decontamination)
    index = index_targets(
        replace(targets, text=apply_form(targets.text, filters.normalize)),
        ngram=flags.decontaminate_ngram,
        least=flags.decontaminate_min_words,
        share=flags.decontaminate_share,
    )
    texts, short = len(index.short_T), int(index.short_T.sum())
    if texts == short:
        raise UsageError(
            f"--decontaminate={flags.decontaminate[0]}: none of {number_of(texts, 'text')} has "
            f"{flags.decontaminate_min_words} words, so there is nothing to search for: name other "
            "--decontaminate_fields, or lower --decontaminate_min_words"
        )
    say(
        f"decontamination: searching for {number_of(len(index.hash_G), 'n-gram')} of "
        f"{number_of(texts - short, 'text')}"
        + f"; skipping {number_of(short, 'text')} with fewer than "
        f"{flags.decontaminate_min_words} words" * (short > 0)
    )
    return index


def prepare_filters(
    filters: Filters, run: BlockRun, staging: Staging, say: Callable[[str], None]
) -> Filters:
    """Returns the filters of a run with the path of the n-gram index, if --decontaminate is set.

    Writes the index and decontamination.json into the staging folder, where the run's blocks are.

    Raises:
      UsageError, DataError: see `find_targets`; or the job that counts n-grams failed.
    """
    flags, folder = filters.decontamination, staging.folder
    if not flags.decontaminate:
        return filters
    index = find_targets(filters, say)
    common = np.zeros(0, np.int64)
    if limit := flags.decontaminate_max_documents:
        common = _count(filters, run, put_index(index, folder), staging)
        say(
            f"decontamination: ignoring {number_of(len(common), 'n-gram')} found in more than "
            f"{limit:,} documents"
        )
    kept = index.without(common)
    store.write_file(os.path.join(folder, DECONTAMINATION), _report(index, kept, common))
    return replace(filters, decontamination=replace(flags, index=put_index(kept, folder)))


def _count(filters: Filters, run: BlockRun, index: str, staging: Staging) -> np.ndarray:
    """Runs the pipeline that finds common n-grams: int64, their numbers."""
    staging = replace(staging, local=os.path.join(staging.local, "counting"))  # its own progress
    os.makedirs(staging.local, exist_ok=True)
    with_beam()
    # Imports Beam, which takes a second.
    from pipelines.corpus.targets.transforms import COMMON, CountGrams, GramJob

    limit = filters.decontamination.decontaminate_max_documents
    filters = replace(filters, decontamination=Decontamination(), filter="")
    run = replace(run, command="counting n-grams", filter="")
    job = run.job(GramJob, staging, filters=filters, index=index, limit=limit)
    path = os.path.join(staging.folder, COMMON)
    run.execute(
        lambda pipeline: pipeline | CountGrams(job), staging, is_done=lambda: store.exists(path)
    )
    return np.frombuffer(store.read(path), np.int64)


def _report(index: GramIndex, kept: GramIndex, common: np.ndarray) -> bytes:
    targets = index.targets
    is_common = ~index.short_T & (kept.total_T == 0)
    files = []
    for number, (path, sha256) in enumerate(targets.files):
        own = targets.file_T == number
        short, gone = (int(np.count_nonzero(which & own)) for which in (index.short_T, is_common))
        files.append(TargetReport(path, sha256, int(own.sum()), short, gone))
    shown = sorted({index.text_of(gram) for gram in common[:_SHOWN].tolist()})
    return to_json(
        {
            "targets": [asdict(file) for file in files],
            "ngrams": len(index.hash_G),
            "common_ngrams": len(common),
            "common_examples": shown,
        }
    )
