"""datasketch's MinHash and LSH: says what it took, and which pairs of documents met.

python near_datasketch.py TEXT.jsonl FOLDER_OF_RESULT
"""

import json
import re
import resource
import sys
import time
from pathlib import Path

from datasketch import MinHash, MinHashLSH  # pyright: ignore[reportMissingImports]


def main(text: str, result: str) -> None:
    """Documents -> {"stages": seconds to sign and to look up, "megabytes": ..., "pairs"}."""
    began, lsh, signed, pairs = (
        time.process_time(),
        MinHashLSH(num_perm=112, params=(14, 8)),
        [],
        [],
    )
    with open(text, encoding="utf-8") as file:
        for line in file:
            words = re.findall(r"\w+", json.loads(line)["text"].lower())
            signature = MinHash(num_perm=112)
            runs = range(max(len(words) - 4, 1))
            signature.update_batch([" ".join(words[i : i + 5]).encode() for i in runs])
            signed.append(signature)
    between = time.process_time()
    for number, signature in enumerate(signed):
        pairs += [(other, number) for other in lsh.query(signature)]
        lsh.insert(number, signature)
    said = {
        "stages": [between - began, time.process_time() - between],
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        "pairs": pairs,
    }
    Path(result, "said.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
