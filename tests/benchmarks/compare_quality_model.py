"""Models of quality beside fastText's own: scores and speed; training, AUC and time; in one run.

    uv pip install --target=DIR --no-deps fasttext-numpy2-wheel==0.9.2
    PYTHONPATH=.:DIR python -m tests.benchmarks.compare_quality_model --runs=3

The package fasttext-predict, which other packages need, cannot train. Both score and train on one
core; texts are reviews of IMDB and NoReC in ../shared/data. NoReC has no labels: every second one
has its words shuffled, and the others are good. Times are medians, in seconds of processor time;
the two take turns. AUCs are means of the runs, each of which has a seed of its own.

fastText trains with 11 threads, which share the core. Version 0.9.2 draws the first numbers of its
matrix in ten blocks and a rest, one for each thread: with one thread, nine tenths of the rows, all
of them pairs of words, stay as the memory was. It then learns pairs late or not at all, and may end
with "Encountered NaN".
"""

import importlib
import importlib.util
import random
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tyro

from tests.benchmarks.clock import timed
from tests.benchmarks.corpora import reviews
from textmill.pipelines.corpus.rules.language import _model_path
from textmill.pipelines.linear_model.model_file import SOFTMAX, Settings
from textmill.pipelines.linear_model.scores import LinearModel, load_model
from textmill.pipelines.linear_model.training import Training, train
from textmill.pipelines.quality.evaluation import area
from textmill.pipelines.rows.routing import content_digests

SCORED = {  # of models that fastText trains on IMDB
    "16 columns, pairs of words": {"dim": 16, "wordNgrams": 2},
    "100 columns, pairs of words": {"dim": 100, "wordNgrams": 2},
    "16 columns, pairs of words, 3 to 5 characters": {
        "dim": 16,
        "wordNgrams": 2,
        "minn": 3,
        "maxn": 5,
    },
}
DIM, NGRAMS, BUCKETS, EPOCHS, RATE, LEAST = 8, 2, 1 << 20, 5, 0.5, 5
THREADS = 11  # of fastText; see above
SMALL, SMALL_RUNS = 2_000, 10  # reviews of NoReC; AUCs vary more


@dataclass(frozen=True)
class Comparison:
    """What is compared."""

    documents: int = 25_000
    """At most, to train on and to score."""
    runs: int = 3
    """Of each measurement."""


@dataclass(frozen=True)
class Texts:
    """Texts with labels, to train on and to score."""

    train: list[str]
    good: list[bool]
    test: list[str]
    test_good: list[bool]


def imdb(most: int) -> Texts:
    """Positive reviews are good."""
    parts = [reviews(f"imdb/{name}") for name in ("train", "test")]
    draw = random.Random(0)
    rows = [part if len(part) <= most else draw.sample(part, most) for part in parts]
    found = [([row["text"] for row in own], [row["label"] == 1 for row in own]) for own in rows]
    return Texts(*found[0], *found[1])


def norec(most: int) -> Texts:
    """Every second review has its words shuffled."""
    draw = random.Random(0)
    texts = [row["text"] for row in reviews("norec/train")][:most]
    good = [number % 2 == 0 for number in range(len(texts))]
    for number, text in enumerate(texts):
        if not good[number]:
            words = text.split(" ")
            draw.shuffle(words)
            texts[number] = " ".join(words)
    cut = len(texts) * 3 // 4
    return Texts(texts[:cut], good[:cut], texts[cut:], good[cut:])


def medians(works: dict[str, Callable[[], Any]], runs: int) -> dict[str, tuple[float, Any]]:
    """CPU seconds, the median of turns, and what came of the last one."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    found = {}
    for _ in range(runs):
        for name, work in works.items():
            seconds, found[name] = timed(work)
            taken[name].append(seconds.cpu)
    return {name: (statistics.median(taken[name]), found[name]) for name in works}


def compare_scores(path: str, texts: list[str], runs: int) -> tuple[float, float, float, int]:
    """The largest difference of scores, both speeds in MB/s, and how many labels differ."""
    fasttext = _fasttext()

    ours, theirs = load_model(path), fasttext.load_model(path)
    text = pa.array(texts, pa.large_string())
    ours.best(text.slice(0, 2))  # compiles
    found = medians(
        {"ours": lambda: ours.best(text), "theirs": lambda: theirs.predict(texts)}, runs
    )
    labels, scores = found["ours"][1]
    names, others = found["theirs"][1]
    odd = sum(
        f"__label__{ours.labels[label]}" != name[0]
        for label, name in zip(labels.tolist(), names, strict=True)
        if name and label >= 0
    )
    expected = np.array([min(one[0], 1.0) if len(one) else 0.0 for one in others])
    size = sum(len(one.encode()) for one in texts) / 1e6
    speeds = (size / found[name][0] for name in ("ours", "theirs"))
    return (float(np.abs(scores - expected).max()), *speeds, odd)  # pyright: ignore


def sorted_texts(texts: Texts) -> tuple[pa.LargeStringArray, np.ndarray, np.ndarray]:
    """Each text to train on once, by hash, as `train` takes them."""
    own = dict(zip(texts.train, texts.good, strict=True))
    text = pa.array([*own], pa.large_string())
    digests = content_digests(text)
    order = np.lexsort(digests.T[::-1])
    return text.take(pa.array(order)), digests[order], np.array([*own.values()])[order]


def compare_training(texts: Texts, runs: int, folder: Path) -> Iterator[tuple[str, float, float]]:
    """Who, mean AUC on the texts that were not trained on, and CPU seconds of training."""
    path = folder / "train.txt"
    names = {True: "__label__good", False: "__label__other"}
    ours = sorted_texts(texts)
    lines = zip(ours[0].to_pylist(), ours[2].tolist(), strict=True)
    path.write_text("".join(f"{names[good]} {text}\n" for text, good in lines))
    how = Training(Settings(DIM, NGRAMS, SOFTMAX, BUCKETS, 0, 0), LEAST, EPOCHS, RATE, 0)
    train(ours[0].slice(0, 2), ours[1][:2], ours[2][:2], how)  # compiles
    test, good = pa.array(texts.test, pa.large_string()), np.array(texts.test_good)
    settings = {"dim": DIM, "wordNgrams": NGRAMS, "bucket": BUCKETS, "epoch": EPOCHS, "lr": RATE}
    settings["minCount"] = LEAST
    aucs: dict[str, list[float]] = {"Textmill": [], "fastText": []}
    taken: dict[str, list[float]] = {name: [] for name in aucs}
    for seed in range(runs):
        seconds, model = timed(lambda seed=seed: train(*ours, replace(how, seed=seed)))
        # A model that was read is kept by its path.
        stored = folder / f"{len(texts.train)}-{seed}.bin"
        theirs = _train_fasttext(path, stored, {**settings, "seed": seed})
        models = {
            "Textmill": (LinearModel.of(model), seconds.cpu),
            "fastText": (load_model(str(stored)), theirs),
        }
        for name, (linear, cpu) in models.items():
            aucs[name].append(area(linear.scores(test, linear.labels.index("good")), good))
            taken[name].append(cpu)
    for name, found in aucs.items():
        yield name, statistics.mean(found), statistics.median(taken[name])


def _train_fasttext(text: Path, stored: Path, settings: dict[str, Any]) -> float:
    """CPU seconds of fastText, whose model is stored."""
    work = partial(_fasttext().train_supervised, str(text), thread=THREADS, verbose=0, **settings)
    seconds, model = timed(work)
    model.save_model(str(stored))
    return seconds.cpu


def _fasttext() -> Any:
    """The package, which is optional."""
    return importlib.import_module("fasttext")


def why_not() -> str:
    """Why fastText cannot be measured, in one sentence; empty if it can."""
    if importlib.util.find_spec("fasttext") is None:
        return "the package fasttext is not installed"
    if not hasattr(_fasttext(), "train_supervised"):
        return "the installed package fasttext cannot train"
    return ""


def main(options: Comparison) -> None:
    """Prints two tables; or why they cannot be measured."""
    if reason := why_not():
        print(f"not measured: {reason}")
        return
    of_imdb = imdb(options.documents)
    print("| model | largest difference | labels that differ | Textmill, MB/s | fastText, MB/s |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "imdb.txt"
        lines = zip(of_imdb.train, of_imdb.good, strict=True)
        path.write_text("".join(f"__label__{int(good)} {text}\n" for text, good in lines))
        models = {"lid.176.ftz": _model_path()}
        for number, (name, settings) in enumerate(SCORED.items()):
            models[name] = str(folder / f"{number}.bin")
            _train_fasttext(path, Path(models[name]), settings)
        for name, path in models.items():
            difference, ours, theirs, odd = compare_scores(path, of_imdb.test, options.runs)
            print(f"| {name} | {difference:.1e} | {odd} | {ours:.1f} | {theirs:.1f} |", flush=True)
        print("\n| trained on | by | AUC | seconds |\n|---|---|---|---|")
        trainings = (
            ("IMDB", of_imdb, options.runs),
            ("NoReC", norec(options.documents), options.runs),
            ("NoReC", norec(min(SMALL, options.documents)), SMALL_RUNS),
        )
        for what, texts, runs in trainings:
            for name, auc, seconds in compare_training(texts, runs, folder):
                trained = f"{what}, {len(texts.train):,} reviews"
                print(f"| {trained} | {name} | {auc:.4f} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Comparison))
