"""datatrove's MinHash in four stages, one worker: says what it took, and who is removed.

python near_datatrove.py FOLDER_OF_JSON_LINES FOLDER_OF_RESULT
"""

import json
import resource
import struct
import sys
import time
from pathlib import Path

from datatrove.executor import LocalPipelineExecutor  # pyright: ignore[reportMissingImports]
from datatrove.pipeline.dedup import (  # pyright: ignore[reportMissingImports]
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
    MinhashDedupSignature,
)
from datatrove.pipeline.dedup.minhash import (  # pyright: ignore[reportMissingImports]
    MinhashConfig,
)
from datatrove.pipeline.readers import JsonlReader  # pyright: ignore[reportMissingImports]
from datatrove.pipeline.writers import JsonlWriter  # pyright: ignore[reportMissingImports]


def main(folder: str, scratch: str) -> None:
    """Documents -> {"stages": seconds of each, "megabytes": ..., "pairs"}."""
    config = MinhashConfig(n_grams=5, num_buckets=14, hashes_per_bucket=8)
    signed, paired, clustered = (f"{scratch}/{name}" for name in ("signed", "paired", "clustered"))
    stages = (
        [JsonlReader(folder), MinhashDedupSignature(signed, config=config)],
        [MinhashDedupBuckets(signed, paired, config=config)],
        [MinhashDedupCluster(paired, clustered, config=config, save_cluster_id=True)],
        [
            JsonlReader(folder),
            MinhashDedupFilter(clustered),
            JsonlWriter(f"{scratch}/kept", compression=None),
        ],
    )
    seconds = []
    for number, steps in enumerate(stages):
        began = time.process_time()
        LocalPipelineExecutor(
            steps,
            tasks=config.num_buckets if number == 1 else 1,
            workers=1,
            logging_dir=f"{scratch}/logs{number}",
        ).run()
        seconds.append(time.process_time() - began)
    said = {
        "stages": seconds,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        "pairs": _pairs(Path(clustered)),
    }
    Path(scratch, "said.json").write_text(json.dumps(said))


def _pairs(folder: Path) -> list[list[int]]:
    """Each removed document, and the one of its cluster that is kept."""
    removed = set(_numbers(folder / "000000.remove"))
    numbers = _numbers(folder / "000000.clusters")  # a document, its cluster, the next document
    clusters = dict(zip(numbers[::2], numbers[1::2], strict=True))
    kept = {clusters[document]: document for document in clusters.keys() - removed}
    return [[document, kept[clusters[document]]] for document in sorted(removed)]


def _numbers(path: Path) -> list[int]:
    data = path.read_bytes()
    return list(struct.unpack(f"<{len(data) // 4}I", data))


if __name__ == "__main__":
    main(*sys.argv[1:])
