"""The whole way of question answering: SQuAD to a tokenizer, rows, a small GPT-2, and its scores.

    python -m tests.benchmarks.compare_squad --output=squad-200

A model that reads, learns, writes and is scored rightly answers the questions it has learned by
heart: exact match and F1 should be near 100 on them. Everything after the file of questions is a
command of Textmill, and each is printed. The questions are built twice: as rows to train on, and as
rows to be scored, which have `evaluation.jsonl`.
"""

import json
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import tyro
import zstandard

from tests.tools.places import DATA


@dataclass(frozen=True)
class Options:
    """What is learned by heart."""

    output: str
    """A new directory for all that is made."""
    squad: str = str(DATA / "squad" / "train-v1.1.json.zst")
    """SQuAD's own JSON."""
    questions: int = 200
    """Taken at equal distances from those with a short enough context."""
    max_characters: int = 500
    """Of a context, so that none is cut: the prompts that are scored are those that are learned."""
    vocab_size: int = 4000
    """Of a tokenizer trained on their contexts."""
    max_length: int = 256
    """Tokens a row."""
    qa_form: str = "causal"
    """Or prefix."""
    epochs: int = 20
    """Passes over the questions."""
    learning_rate: float = 1e-3
    """Highest."""
    batch_size: int = 2
    """Packed rows a step."""
    model: str = "tiny"
    """Preset of tf_qa."""
    evaluations: int = 3
    """Checkpoints that are kept and scored."""


def main(options: Options) -> None:
    """Runs all commands in turn."""
    folder = Path(options.output)
    folder.mkdir(parents=True)
    write_questions(options, folder)
    paths = {name: str(folder / name) for name in ("tokenizer", "rows", "scored", "run", "saved")}
    run(
        "pipelines.train_tokenizer",
        f"--input={folder / 'contexts.txt'}",
        "--document=line",
        f"--vocab_size={options.vocab_size}",
        f"--output={paths['tokenizer']}",
    )
    for name, splits in (("rows", "train:1"), ("scored", "validation:1")):
        run(
            "pipelines.build_shards",
            "--task=qa",
            f"--qa_form={options.qa_form}",
            f"--max_length={options.max_length}",
            f"--tokenizer={paths['tokenizer']}",
            f"--input={folder / 'questions.json'}",
            f"--splits={splits}",
            f"--output={paths[name]}",
        )
    rows = json.loads((Path(paths["rows"]) / "stats.json").read_text())["total"]["rows"]
    steps = -(-options.epochs * rows // options.batch_size)
    every = -(-steps // options.evaluations)
    began = time.perf_counter()
    run(
        "trainers.tf_qa",
        f"--shards={paths['rows']}",
        f"--output={paths['run']}",
        f"--model={options.model}",
        "--dropout=0",
        f"--batch_size={options.batch_size}",
        f"--steps={steps}",
        f"--learning_rate={options.learning_rate}",
        f"--checkpoint_every={every}",
        f"--keep_checkpoints={options.evaluations}",
    )
    print(f"training took {time.perf_counter() - began:.0f} s", flush=True)
    run(
        "trainers.evaluate",
        paths["run"],
        "--checkpoint=all",
        f"--shards={paths['scored']}",
    )


def write_questions(options: Options, folder: Path) -> None:
    """Writes questions.json, in SQuAD's own form, and contexts.txt."""
    with (
        open(options.squad, "rb") as packed,
        zstandard.open(packed, "rt", encoding="utf-8") as file,
    ):
        articles = json.load(file)["data"]
    every = [
        (article["title"], paragraph["context"], question)
        for article in articles
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
        if len(paragraph["context"]) <= options.max_characters
    ]
    chosen = every[:: len(every) // options.questions][: options.questions]
    data = [
        {"title": title, "paragraphs": [{"context": context, "qas": [question]}]}
        for title, context, question in chosen
    ]
    (folder / "questions.json").write_text(json.dumps({"version": "1.1", "data": data}))
    texts = "\n".join(f"{context}\n{question['question']}" for _, context, question in chosen)
    (folder / "contexts.txt").write_text(texts, encoding="utf-8")


def run(module: str, *flags: str) -> None:
    """Shows a command and runs it."""
    command = [sys.executable, "-m", module, *flags]
    print("$ " + shlex.join(["python", *command[1:]]), flush=True)
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main(tyro.cli(Options, use_underscores=True))
