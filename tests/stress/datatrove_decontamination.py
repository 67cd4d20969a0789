"""datatrove's NGramsDecontFilter over the documents of `planted_questions`, which starts it.

It runs in an environment of its own (`pip install 'datatrove[processing]' spacy`). The index is
made as its NGramsDecontIndexer makes it of questions, which cannot be imported without lighteval:
hashes of the n-grams of their simplified words. Prints a line for each length of n-grams.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from datatrove.data import Document  # pyright: ignore[reportMissingImports]
from datatrove.pipeline.decont.n_grams import (  # pyright: ignore[reportMissingImports]
    NGramsDecontConfig,
    NGramsDecontFilter,
)
from datatrove.utils.text import ngrams, simplify_text  # pyright: ignore[reportMissingImports]


def main() -> None:
    """Reads questions and documents, prints what is dropped and how fast."""
    given = json.load(sys.stdin)
    for length in (12, 5):
        config = NGramsDecontConfig(n_grams=length)
        with tempfile.TemporaryDirectory() as folder:
            decontaminate = NGramsDecontFilter(folder, config)
            hashes = {
                decontaminate.hash_func(" ".join(gram))
                for question in given["questions"]
                for gram in ngrams(
                    decontaminate.tokenizer.word_tokenize(
                        simplify_text(question, config.norm_config)
                    ),
                    length,
                )
            }
            index = np.array(list(hashes), config.hash_config.np_descr)
            index.tofile(Path(folder) / "squad.index.hashes")
            documents = [
                (Document(text, str(number)), way)
                for number, (text, way) in enumerate(given["documents"])
            ]
            decontaminate.filter(documents[0][0])
            began = time.process_time()
            ways = [way for one, way in documents if decontaminate.filter(one) is not True]
            took = time.process_time() - began
        size = sum(len(text.encode()) for text, _ in given["documents"]) / 1e6
        planted = sum(way != "" for _, way in documents)
        right = sum(way != "" for way in ways)
        print(
            f"datatrove, n-grams of {length} on {len(documents):,} of the documents: precision "
            f"{right / max(len(ways), 1):.4f}, recall {right / planted:.4f}, {size / took:.2f} MB/s"
        )


if __name__ == "__main__":
    main()
