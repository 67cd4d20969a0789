"""What looks for n-grams of targets in documents: made once, and loaded once a process."""

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

_finders: dict[str, Finder] = {}  # by the place of the index, whose name tells its content


def put_index(index: GramIndex, folder: str | None) -> str:
    """Leaves an index where workers find it, and gives that place.

    Args:
      index: the n-grams.
      folder: that all workers see; None if this process alone is to know it.
    """
    content = pickle.dumps(index)
    path = os.path.join(folder or "", f"ngrams-{xxhash.xxh3_128_hexdigest(content)}.pickle")
    if folder:
        store.write_file(path, content)
    _finders.clear()  # one run after the other: an index may be large
    _finders[path] = Finder(index)
    return path


def load_finder(path: str | None) -> Finder:
    """What looks for the n-grams of the index at a place.

    Raises:
      DataError: this machine does not see it.
    """
    if path is None:
        raise RuntimeError("targets are prepared before documents are filtered: targets/prepare.py")
    if path not in _finders:
        try:
            _finders[path] = Finder(pickle.loads(store.read(path)))
        except FileNotFoundError as error:
            raise DataError(
                f"{path} is not there for a worker: --output must lie on a file system that all "
                "workers share"
            ) from error
    return _finders[path]


def judge_texts(text: pa.LargeStringArray, finder: Finder, unit: str) -> Judged:
    """What a rule says of texts: those that hold a target are dropped, or lose it.

    Args:
      text: of n documents.
      finder: of targets.
      unit: document, paragraph or line.
    """
    found = finder.find(text)
    documents = np.unique(found.spans[:, 0])
    reason = np.zeros(len(text), bool)
    if unit == "document":
        reason[documents] = True
    after = cut_out(text, found.spans, unit) if unit != "document" else None
    digests = {
        document: digest.tobytes().hex()
        for document, digest in zip(
            documents.tolist(), content_digests(text.take(pa.array(documents))), strict=True
        )
    }
    hits = tuple((o.document, _hit(o, digests[o.document], finder)) for o in found.overlaps)
    first = {document: hit.target for document, hit in reversed(hits)}
    return Judged(reason, after, {"contaminated": Counter(first.values())} if first else {}, hits)


def _hit(overlap: Overlap, digest: str, finder: Finder) -> Hit:
    """The line of an overlap, but for the file that the document is in."""
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
