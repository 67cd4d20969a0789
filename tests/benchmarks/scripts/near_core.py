"""The core of near-duplicates: says what it took, and which document is removed for which.

python near_core.py TEXT.jsonl FOLDER_OF_RESULT
"""

import json
import resource
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from tests.tools.near_duplicates import find_near
from textmill.pipelines.corpus.near_duplicates import buckets
from textmill.pipelines.corpus.near_duplicates.buckets import signatures, take_minima
from textmill.pipelines.corpus.near_duplicates.flags import Bands, Shingle
from textmill.pipelines.corpus.near_duplicates.shingles import AT_ONCE, shingle_hashes
from textmill.pipelines.rows.ragged import Ragged
from textmill.pipelines.rows.text_bytes import slices, utf8_bytes

SHINGLE, BANDS = Shingle("word", 5), Bands(14, 8)


def main(source: str, result: str) -> None:
    """Documents -> what it took, and hashes.npz: the shingles of which rensa makes signatures.

    {"stages": seconds of signatures alone, and of all, "minima": seconds of signatures of shingles
    that are already hashed, "megabytes": ..., "pairs": [[removed document, kept document]]}
    """
    find_near(["a b c d e f", "a b c d e f."])  # loads the loops
    began = time.process_time()
    text = pj.read_json(source)["text"].combine_chunks().cast(pa.large_string())
    found = find_near(text)
    ended = time.process_time()
    signatures(text, SHINGLE, BANDS)
    signed = time.process_time()
    minima = _sign(Path(result, "hashes.npz"), text)
    said = {
        "stages": [signed - ended, ended - began],
        "minima": minima,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        "pairs": [[document, other] for document, (other, _) in found.removed.items()],
    }
    Path(result, "said.json").write_text(json.dumps(said))


def _sign(path: Path, text: pa.LargeStringArray) -> float:
    """Writes the hashes of all shingles; returns the seconds to make signatures of them."""
    parts = [shingle_hashes(*utf8_bytes(some), SHINGLE) for some in slices(text, AT_ONCE)]
    runs = Ragged.joined(parts)
    np.savez(path, values=runs.values, offsets=runs.offsets)
    minima = np.full((len(text), BANDS.hashes), 2**32 - 1, np.uint32)
    began = time.process_time()
    take_minima(*runs, *buckets._functions(BANDS.hashes), minima)
    return time.process_time() - began


if __name__ == "__main__":
    main(*sys.argv[1:])
