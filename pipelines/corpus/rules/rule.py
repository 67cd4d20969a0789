"""What a rule is: it looks at the text of many documents at once, and judges each.

A family of rules is one file here, with a function `Filters, number of texts -> rules` that gives
those for which flags ask, and a row of `table.FAMILIES`; flags of its own are a dataclass among
the fields of `Filters`. What a rule needs beside its flags (a model, a table of n-grams) it loads
when it is made, once a process. Names of reasons are listed in `schemas.drops`, or begin with
the name of a family that is listed there (`gopher:min_words`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pipelines.corpus.decontamination.hits import Hit
from schemas.drops import Observed


@dataclass(frozen=True)
class Judged:
    """What a rule says of n documents.

    Attributes:
      reason: bool or integer [n]: 0 for a document that is kept, i for one that is dropped for the
        rule's reason i, the first of which is 1.
      text: the documents as the rules after this one see them, and as they are kept; None where
        they stay as they are.
      observed: what is counted besides, section to key to number: {"language": {"nb": 3}}.
      hits: numbers of documents with what they have in common with evaluation texts.
      measured: [n], the number or word by which each document was judged.
    """

    reason: np.ndarray
    text: pa.LargeStringArray | None = None
    observed: Observed = field(default_factory=dict)
    hits: tuple[tuple[int, Hit], ...] = ()
    measured: np.ndarray | None = None


@dataclass(frozen=True)
class Rule:
    """A rule as flags ask for it.

    Attributes:
      reasons: for which it drops documents.
      judge: judges documents: all texts of one together, with a newline between.
      edits: what edited documents are counted under, {"edited": {"c4": 30}}, where it edits texts:
        such a rule is refused for documents of several. "" if it does not. The reason of those
        that an edit leaves without text is the first.
      limits: of each reason, what the measured value is compared with; none where there is none.
    """

    reasons: tuple[str, ...]
    judge: Callable[[pa.LargeStringArray], Judged]
    edits: str = ""
    limits: tuple[float | str, ...] = ()
