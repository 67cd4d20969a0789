"""rensa's core: signatures of hashes of shingles that are already there, in one thread.

python near_rensa.py HASHES.npz FOLDER_OF_RESULT
"""

import json
import os
import resource
import sys
import time
from pathlib import Path

os.environ["RAYON_NUM_THREADS"] = "1"

import numpy as np  # noqa: E402
from rensa import RMinHash  # noqa: E402  # pyright: ignore[reportMissingImports]


def main(hashes: str, result: str) -> None:
    """Hashes and offsets of documents -> {"stages": [seconds], "megabytes": ..., "pairs": []}."""
    arrays = np.load(hashes)
    values, offsets = arrays["values"], arrays["offsets"].astype(np.uint64)
    began = time.process_time()
    RMinHash.digest_matrix_from_flat_token_hashes(values, offsets, 112, 0)
    said = {
        "stages": [time.process_time() - began],
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        "pairs": [],
    }
    Path(result, "said.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
