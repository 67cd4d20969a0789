"""Reads and checks quality.json of a corpus, the scores of a model of quality."""

from collections.abc import Iterator

import pyarrow as pa

from textmill.pipelines.corpus.partition_files import hex_ids
from textmill.pipelines.corpus.scored import Scored
from textmill.pipelines.inspection.checks.findings import Findings
from textmill.pipelines.readers.corpus_files import read_values
from textmill.pipelines.rows.routing import content_digests
from textmill.schemas.files.finished import Corpus
from textmill.schemas.format.drops import LONGEST
from textmill.schemas.format.manifest import QUALITY


def read_scored(corpus: Corpus) -> Scored:
    """Reads the scores of a corpus; without the file, there are none.

    Raises:
      DataError: the file is missing or was changed.
    """
    return read_values(corpus, QUALITY, Scored)


def check_scored(corpus: Corpus, findings: Findings) -> Iterator[str]:
    """Compares the scores with stats.json, and the samples with the hashes of their texts."""
    scored = read_scored(corpus)
    if not corpus.lists(QUALITY):
        return
    for sentence in scored.broken_equations(corpus.stats.observed):
        yield f"{QUALITY}: {sentence}"
    for tenth, samples in scored.samples.items():
        whole = [sample for sample in samples if len(sample.excerpt) <= LONGEST]
        texts = pa.array([sample.excerpt for sample in whole], pa.large_string())
        if hex_ids(content_digests(texts)).to_pylist() != [sample.document for sample in whole]:
            yield f"{QUALITY}: the document of a sample of {tenth} is not the hash of its excerpt"
