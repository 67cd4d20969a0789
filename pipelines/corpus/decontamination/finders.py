"""Stages the index of target n-grams for workers, which load it once a process and apply it."""

import os
import pickle
from collections import Counter

import numpy as np
import pyarrow as pa
import xxhash

from pipelines.corpus.decontamination.cutting import cut_out
from pipelines.corpus.decontamination.gram_index import GramIndex
from pipelines.corpus.decontamination.hits import Hit
from pipelines.corpus.decontamination.matches import Finder, Overlap
from pipelines.corpus.rules.rule import Judged
from pipelines.rows.routing import content_digests
from pipelines.storage import store
from schemas.errors import DataError

_finders: dict[str, Finder] = {}  # by path of the index, whose name has a hash of the content


def put_index(index: GramIndex, folder: str | None) -> str:
    """Stages an index for workers, and returns its path.

    Args:
      index: the n-grams.
      folder: a folder that all workers can read; None to keep the index in this process.
    """
    content = pickle.dumps(index)
    path = os.path.join(folder or "", f"ngrams-{xxhash.xxh3_128_hexdigest(content)}.pickle")
    if folder:
        store.write_file(path, content)
    _finders.clear()  # an index may be large, and a process serves one run at a time
    _finders[path] = Finder(index)
    return path


def load_finder(path: str | None) -> Finder:
    """Loads the finder for the index at a path, once a process.

    Raises:
      DataError: the path does not exist on this machine.
    """
    if path is None:
        raise RuntimeError("call prepare_filters (targets/prepare.py) before filtering documents")
    if path not in _finders:
        try:
            _finders[path] = Finder(pickle.loads(store.read(path)))
        except FileNotFoundError as error:
            raise DataError(
                f"{path} does not exist on a worker: put --output on a file system that all "
                "workers share"
            ) from error
    return _finders[path]


def judge_texts(text: pa.LargeStringArray, finder: Finder, unit: str) -> Judged:
    """Drops documents that contain a target, or cuts the units that do.

    Args:
      text: large_string [n], the documents.
      finder: the finder of targets.
      unit: document, paragraph or line.
    """
    contamination = finder.find(text)
    documents = np.unique(contamination.spans[:, 0])
    reason = np.zeros(len(text), bool)
    if unit == "document":
        reason[documents] = True
    after = cut_out(text, contamination.spans, unit) if unit != "document" else None
    digests = {
        document: digest.tobytes().hex()
        for document, digest in zip(
            documents.tolist(), content_digests(text.take(pa.array(documents))), strict=True
        )
    }
    hits = tuple((o.document, _hit(o, digests[o.document], finder)) for o in contamination.overlaps)
    first = {document: hit.target for document, hit in reversed(hits)}
    return Judged(reason, after, {"contaminated": Counter(first.values())} if first else {}, hits)


def _hit(overlap: Overlap, digest: str, finder: Finder) -> Hit:
    """The hit of an overlap, without the path of the document."""
    targets, text = finder.index.targets, overlap.text
    return Hit(
        document=digest,
        target=targets.files[targets.file_T[text]][0],
        field=targets.fields[targets.field_T[text]],
        record=int(targets.record_T[text]),
        path="",
        found=overlap.found,
        of=int(finder.total_T[text]),
        texts=overlap.texts,
        overlap=overlap.words,
    )
