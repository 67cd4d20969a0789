"""datatrove's DocumentTokenizer with two workers: token ids of JSON Lines, a file a worker.

python tokens_datatrove.py FOLDER TOKENIZER.json OUTPUT
"""

import sys

from datatrove.executor import LocalPipelineExecutor  # pyright: ignore[reportMissingImports]
from datatrove.pipeline.readers import JsonlReader  # pyright: ignore[reportMissingImports]
from datatrove.pipeline.tokens import DocumentTokenizer  # pyright: ignore[reportMissingImports]


def main(folder: str, tokenizer: str, output: str) -> None:
    """Documents -> token files."""
    steps = [
        JsonlReader(folder, glob_pattern="*.jsonl"),
        DocumentTokenizer(output + "/tokens", tokenizer_name_or_path=tokenizer, eos_token="</s>"),
    ]
    LocalPipelineExecutor(steps, tasks=2, workers=2, logging_dir=output + "/logs").run()


if __name__ == "__main__":
    main(*sys.argv[1:])
