"""Runs Megatron-LM's own preprocessors on a file and compares each document with Textmill's.

    git clone --depth=1 https://github.com/NVIDIA/Megatron-LM
    python -m venv VENV && VENV/bin/pip install -r tests/benchmarks/megatron.txt
    python -m pipelines.build_shards --task=tokens --file_format=megatron --input=reviews.jsonl \
        --tokenizer=gpt2 --output=documents --splits=train:1
    VENV/bin/python tests/interop/compare_megatron.py Megatron-LM reviews.jsonl documents gpt2

`gpt2` is a directory with the tokenizer. The checkout's IndexedDataset reads all files. Megatron
keeps the order of the lines and equal documents; Textmill shuffles, and keeps one of equal ones.
"""

import glob
import subprocess
import sys
import tempfile
from pathlib import Path

OPTIONS = {
    "preprocess_data.py": ["--workers=2"],
    "preprocess_data_fast.py": ["--use-gigatoken"],
}


def main(checkout: str, text: str, directory: str, tokenizer: str) -> None:
    """Prints a line of each; ends with 1 where a document differs."""
    sys.path.insert(0, checkout)
    from megatron.core import __version__  # pyright: ignore[reportMissingImports]
    from megatron.core.datasets.indexed_dataset import (  # pyright: ignore[reportMissingImports]
        IndexedDataset,
    )

    def documents_of(prefix: str) -> list[tuple[int, ...]]:
        dataset = IndexedDataset(prefix)
        return [tuple(dataset[i].tolist()) for i in range(len(dataset))]

    print(f"megatron-core {__version__}")
    paths = sorted(glob.glob(f"{directory}/*.megatron.bin"))
    ours = [ids for path in paths for ids in documents_of(path.removesuffix(".bin"))]
    print(f"build_shards: {len(ours):,} documents, {sum(map(len, ours)):,} tokens")
    for script, options in OPTIONS.items():
        with tempfile.TemporaryDirectory() as folder:
            given = [f"--input={text}", f"--output-prefix={folder}/its", "--append-eod", *options]
            given += ["--tokenizer-type=HuggingFaceTokenizer", f"--tokenizer-model={tokenizer}"]
            command = [sys.executable, Path(checkout, "tools", script), *given]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{script} ended with {done.returncode}: {done.stderr[-2000:]}")
            its = documents_of(f"{folder}/its_text_document")
        equal = sorted(ours) == sorted(set(its))
        result = "equal" if equal else "NOT EQUAL"
        print(f"{script}: {len(its):,} documents, {len(set(its)):,} distinct: {result}")
        if not equal:
            sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
