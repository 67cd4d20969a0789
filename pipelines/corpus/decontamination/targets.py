"""Prepares decontamination before a run: indexes the n-grams of evaluation texts.

A separate job finds the n-grams that are common language; it reads the input once more.
"""

import os
from dataclasses import replace

import numpy as np

from textmill.pipelines.corpus.decontamination.finders import COMMON, stage_index
from textmill.pipelines.corpus.decontamination.job import GramJob
from textmill.pipelines.corpus.decontamination.ngram_index import (
    NgramIndex,
    find_phrases,
    index_targets,
)
from textmill.pipelines.corpus.decontamination.report import describe_targets
from textmill.pipelines.corpus.decontamination.target_texts import read_targets
from textmill.pipelines.corpus.filters import Filters
from textmill.pipelines.corpus.rules.decontamination import Decontamination
from textmill.pipelines.encoding.normal_text import apply_form
from textmill.pipelines.runners.block_run import BlockRun
from textmill.pipelines.runners.launch import with_beam
from textmill.pipelines.runners.result import Say
from textmill.pipelines.writers.staging import Staging
from textmill.schemas.commands.entry import import_later
from textmill.schemas.commands.terminal import number_of
from textmill.schemas.errors import FieldError, UsageError, flag
from textmill.schemas.files import store
from textmill.schemas.format.manifest import DECONTAMINATION

# Imports Beam, which takes a second.
_count_grams = import_later("textmill.pipelines.corpus.decontamination.transforms:CountGrams")


def find_targets(filters: Filters, say: Say) -> NgramIndex:
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


def prepare_search(filters: Filters, run: BlockRun, staging: Staging, say: Say) -> str | None:
    """Returns the path of the n-gram index for workers; None without evaluation texts.

    Writes the index and decontamination.json into the staging folder, where the run's blocks are.

    Raises:
      UsageError, DataError: see `find_targets`; or the job that counts n-grams failed.
    """
    flags, folder = filters.decontamination, staging.folder
    if not flags.decontaminate:
        return None
    if flags.decontaminate_max_documents and run.flags.is_template:
        raise UsageError(
            f"{flag('decontaminate')} counts n-grams in a job of its own, and a template has one "
            f"job: give {flag('decontaminate_max_documents', 0)}, or run it without a template"
        )
    index = find_targets(filters, say)
    kept, common = index, np.zeros(0, np.int64)
    if limit := flags.decontaminate_max_documents:
        common = _count(filters, run, stage_index(index, folder), staging)
        kept = without_common(index, common, flags.decontaminate_min_words)
        ignored, whole = len(index.hash_G) - len(kept.hash_G), int(kept.whole_T.sum())
        say(
            f"decontamination: ignoring {number_of(ignored, 'n-gram')} found in more than "
            f"{limit:,} documents"
            + f"; searching for {number_of(whole, 'text')} without others as a whole"
            * (whole > 0)
        )
    store.write_file(os.path.join(folder, DECONTAMINATION), describe_targets(index, kept, common))
    return stage_index(kept, folder)


def without_common(index: NgramIndex, common: np.ndarray, least: int) -> NgramIndex:
    """The index without common n-grams; a text without others is searched for as a whole.

    The whole of a text in many documents is not common language but a leak, unless its words are
    few or short.

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
