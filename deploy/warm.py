"""Makes a small set of each task, so that an image holds every loop compiled.

A worker would compile them itself, for ten seconds of its first bundle: `python deploy/warm.py`.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from pydoc_data import topics

SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *(f"<extra_id_{i}>" for i in range(7))]
SETS = [
    ["--task=mlm"],
    ["--task=mlm", "--mask_unit=word", "--file_format=both"],
    ["--task=mlm", "--mask_unit=span", "--mask_copies=2"],
    ["--task=mlm", "--packing=concat", "--no_static_masking", "--encoding=int64_list"],
    ["--task=clm"],
    ["--task=clm", "--packing=concat"],
    ["--task=span_corruption"],
    ["--task=classification"],
    ["--task=qa", "--max_length=256"],
]
CLEANING = ["--normalize=nfc", "--quality=gopher,c4,fineweb", "--near_duplicates=jaccard:0.8"]
CLEANING += ["--min_words=1", "--max_repetition=0.9"]


def main() -> None:
    """Writes text of Python's own help, and runs the commands on it."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source.jsonl")
        with source.open("w", encoding="utf-8") as file:
            for number, text in enumerate(topics.topics.values()):
                word = text.split()[0]
                answers = {"text": [word], "answer_start": [text.index(word)]}
                file.write(
                    json.dumps(
                        {
                            "id": str(number),
                            "text": text,
                            "label": number % 2,
                            "question": "Which word is the first?",
                            "context": text,
                            "answers": answers,
                        }
                    )
                    + "\n"
                )
        tokenizer = f"{folder}/tokenizer"
        flags = ["--vocab_size=2000", f"--special_tokens={','.join(SPECIALS)}"]
        run("train_tokenizer", f"--input={source}", f"--output={tokenizer}", *flags)
        for number, flags in enumerate(SETS):
            output = f"--output={folder}/set-{number}"
            run("build_shards", f"--input={source}", f"--tokenizer={tokenizer}", output, *flags)
        run("build_corpus", f"--input={source}", f"--output={folder}/corpus", *CLEANING)


def run(command: str, *flags: str) -> None:
    """Runs one of the commands; it says what fails."""
    subprocess.run([sys.executable, "-m", f"pipelines.{command}", *flags], check=True)


if __name__ == "__main__":
    main()
