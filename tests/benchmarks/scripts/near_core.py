"""The core of near-duplicates: says what it took, and which document is removed for which.

python near_core.py TEXT.jsonl FOLDER_OF_RESULT
"""

import json
import resource
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.json as pj

from tests.tools.near_duplicates import find_near
from textmill.pipelines.corpus.near_duplicates.buckets import signatures
from textmill.pipelines.corpus.near_duplicates.flags import Bands, Shingle


def main(source: str, result: str) -> None:
    """Documents -> {"stages": seconds of signatures alone, and of all, "megabytes", "pairs"}."""
    find_near(["a b c d e f", "a b c d e f."])  # loads the loops
    began = time.process_time()
    text = pj.read_json(source)["text"].combine_chunks().cast(pa.large_string())
    found = find_near(text)
    ended = time.process_time()
    signatures(text, Shingle("word", 5), Bands(14, 8))
    said = {
        "stages": [time.process_time() - ended, ended - began],
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        "pairs": [[document, other] for document, (other, _) in found.removed.items()],
    }
    Path(result, "said.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
