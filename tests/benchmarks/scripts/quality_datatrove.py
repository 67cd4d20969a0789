"""datatrove's filters of quality on JSON Lines, one after the other, in one process.

python quality_datatrove.py DOCUMENTS.jsonl VERDICTS.json

The last line printed is JSON: seconds of each filter, by the clock and of the processor. VERDICTS
has why each document is dropped by each filter ("" if it is kept), and the texts after it.
"""

import json
import sys
import time

from datatrove.data import Document  # pyright: ignore[reportMissingImports]
from datatrove.pipeline.filters import (  # pyright: ignore[reportMissingImports]
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
)

FILTERS = {
    "gopher": (GopherRepetitionFilter(), GopherQualityFilter()),
    "c4": (C4QualityFilter(),),
    "fineweb": (FineWebQualityFilter(),),
}


def main(documents: str, verdicts: str) -> None:
    """Times all filters."""
    with open(documents, encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    seconds, found = {}, {}
    for name, filters in FILTERS.items():
        for judge in filters:
            judge.filter(Document(text="Loads what it needs.", id=""))
        wall, cpu = time.perf_counter(), time.process_time()
        given = [Document(text=text, id="") for text in texts]
        found[name] = ["" for _ in given]
        for place, document in enumerate(given):
            for judge in filters:
                kept = judge.filter(document)
                if kept is not True:
                    found[name][place] = kept[1]
                    break
        seconds[name] = [time.perf_counter() - wall, time.process_time() - cpu]
        found[f"{name} texts"] = [document.text for document in given]
    with open(verdicts, "w", encoding="utf-8") as file:
        json.dump(found, file)
    print(json.dumps(seconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
