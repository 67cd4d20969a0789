"""What a classifier says of texts: a line of label, tab, probability each. Python 3.8 syntax."""

import os
from typing import Iterable, Iterator, Optional, Sequence

import numpy as np

from schemas.errors import DataError
from schemas.terminal import say
from trainers.measures.class_scores import probabilities

# A class's name may hold what separates lines and columns.
_ESCAPED = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def write_predictions(
    logits: Iterable[np.ndarray], classes: Sequence[str], path: Optional[str]
) -> None:
    """Writes a line for each text, as they come.

    Args:
      logits: [B, C] of a batch of texts after the other.
      classes: names of the C classes.
      path: of the file, which is there whole or not at all; None prints.

    Raises:
      DataError: the file cannot be written.
    """
    lines = _lines(logits, classes)
    if path is None:
        for line in lines:
            say(line)
        return
    partial = path + ".partial"
    try:
        with open(partial, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
        os.replace(partial, path)
    except OSError as error:
        raise DataError(f"--predictions={path}: {error}") from error


def _lines(logits: Iterable[np.ndarray], classes: Sequence[str]) -> Iterator[str]:
    names = [name.translate(_ESCAPED) for name in classes]
    for batch_BxC in logits:
        for row_C in probabilities(batch_BxC):
            yield f"{names[row_C.argmax()]}\t{row_C.max():.6f}"
