"""Checks a delta against the corpora that it was built against, as `pipelines.verify` does."""

from collections.abc import Iterable, Iterator
from contextlib import suppress

import numpy as np

from textmill.pipelines.corpus.ancestors import read_ids
from textmill.pipelines.inspection.checks.findings import Findings
from textmill.pipelines.readers.corpus_files import find_corpus
from textmill.schemas.errors import TextmillError
from textmill.schemas.files.finished import Corpus


def check_chain(
    corpus: Corpus, others: Iterable[str], findings: Findings, *, follow_links: bool
) -> Iterator[str]:
    """Yields what contradicts the ancestors of a delta among `others`, a sentence each.

    Paths in config.yaml are not followed: the corpus may come from an untrusted source.
    """
    given: dict[str, Corpus] = {}
    for path in others:
        with suppress(TextmillError):  # its own check reports the cause
            if found := find_corpus(path, follow_links=follow_links):
                given[found.identity] = found
    given.pop(corpus.identity, None)
    missing = [identity[:12] for identity in corpus.schema.ancestors if identity not in given]
    if missing and given:
        yield f"no corpus of this command is its ancestor {missing[0]}: give the unchanged ancestor"
    elif missing:
        findings.notes.append(
            f"built against {', '.join(missing)}: give these corpora in the same command to check "
            "it against them"
        )
    ancestors = [given[one] for one in corpus.schema.ancestors if one in given]
    if not ancestors:
        return
    own, known = _ids(corpus), [_ids(ancestor) for ancestor in ancestors]
    for ancestor, ids in zip(ancestors, known, strict=True):
        if np.isin(own, ids, assume_unique=True).any():
            yield f"a document is in its ancestor {ancestor.directory}, too"
    if not missing:
        yield from _check_lists(corpus, own, np.concatenate(known))


def _check_lists(corpus: Corpus, own: np.ndarray, known: np.ndarray) -> Iterator[str]:
    """Checks that an ancestor, or the delta itself, has the documents named by its lists.

    `own` and `known` are the hashes of its documents, and of those of all ancestors: S16 [n].
    """
    rows = {file.path: file.rows or 0 for file in corpus.manifest.files}
    names = [(name, known) for name in corpus.schema.older_names()]
    if "duplicate_paragraphs" not in corpus.schema.parameters:  # it edits representatives
        kept = np.concatenate([known, own])
        names += [(name, kept) for name in corpus.schema.removed_names()]
    for name, there in names:
        listed = read_ids(f"{corpus.directory}/{name}", rows[name], "representative")
        others = listed[~np.isin(listed, there)]
        if len(others):
            yield f"{name}: no ancestor has the representative {others[:1].tobytes().hex()}"


def _ids(corpus: Corpus) -> np.ndarray:
    """The hashes of all documents: S16 [n]."""
    return np.concatenate([read_ids(corpus.path(f), f.rows or 0) for f in corpus.documents])
