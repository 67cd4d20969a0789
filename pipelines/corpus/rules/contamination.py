"""The rule of --decontaminate: documents that hold text of evaluation sets."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pipelines.corpus.decontamination.cutting import cut_out
from pipelines.corpus.decontamination.finders import load_finder
from pipelines.corpus.decontamination.hits import Hit
from pipelines.corpus.decontamination.matches import Finder, Overlap
from pipelines.corpus.rules.rule import Judged, Rule
from pipelines.rows.routing import content_digests

if TYPE_CHECKING:
    from pipelines.corpus.filters import Filters


def make_rules(filters: "Filters", texts: int) -> Iterator[Rule]:
    """One rule, if flags ask for it; it drops documents, or cuts out what is found.

    Args:
      filters: flags, with the place of the n-grams.
      texts: of a document.

    Raises:
      DataError: this machine does not see the n-grams.
    """
    flags = filters.decontamination
    if flags.decontaminate:
        finder, unit = load_finder(flags.index), flags.rule.unit
        edits = "" if unit == "document" else "contaminated"
        yield Rule(("contaminated",), lambda text: _judge(text, finder, unit), edits)


def _judge(text: pa.LargeStringArray, finder: Finder, unit: str) -> Judged:
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
