"""Runs train_quality_model: reads documents, trains, evaluates, and writes the model."""

import hashlib
import time
from dataclasses import dataclass

import numpy as np

from textmill.pipelines.linear_model.model_file import write_model
from textmill.pipelines.linear_model.scores import LinearModel, name_tenth
from textmill.pipelines.linear_model.training import train
from textmill.pipelines.quality.documents import Labelled, read_labelled
from textmill.pipelines.quality.evaluation import Agreement, agree
from textmill.pipelines.quality.options import QualityOptions
from textmill.pipelines.runners.console import columns_table, facts_table
from textmill.pipelines.runners.result import Say
from textmill.schemas.commands.terminal import command_name
from textmill.schemas.errors import UsageError, flag
from textmill.schemas.files import store
from textmill.schemas.typed_json import to_json


@dataclass(frozen=True)
class Evaluation:
    """The content of FILE.json beside a model.

    Attributes:
      model_sha256: of the model's file.
      settings: the flags that the model depends on, besides the documents.
      documents: number that the model was trained on.
      good: number of good ones among them.
      held_out: agreement with the labels of held-out documents.
    """

    model_sha256: str
    settings: dict[str, float]
    documents: int
    good: int
    held_out: Agreement


_SETTINGS = ("word_ngrams", "minn", "maxn", "buckets", "dim", "min_count", "epochs")


def train_model(options: QualityOptions, *, say: Say) -> Evaluation:
    """Trains a model, writes it and its evaluation.

    Args:
      options: of the command.
      say: prints a part of the summary.

    Raises:
      UsageError: the file exists, or documents of one kind are missing.
      DataError: the inputs are damaged or empty.
    """
    if store.exists(options.output) and not options.overwrite:
        raise UsageError(
            f"{options.output} exists: give {flag('overwrite', True)} to replace it, or another "
            f"{flag('output')}"
        )
    began = time.monotonic()
    found = read_labelled(options)
    is_held_out = found.is_held_out(options.held_out)
    trained, held_out = (found.take(np.flatnonzero(some)) for some in (~is_held_out, is_held_out))
    if not len(trained.good):
        raise UsageError(f"{flag('held_out', options.held_out)} leaves no document to train on")
    model = train(trained.text, trained.digests, trained.good, options.training)
    content = write_model(model)
    scores = LinearModel.of(model).scores(held_out.text, 0)
    settings = {name: getattr(options, name) for name in (*_SETTINGS, "learning_rate", "seed")}
    evaluation = Evaluation(
        hashlib.sha256(content).hexdigest(),
        settings | {"held_out": options.held_out},
        len(trained.good),
        int(np.count_nonzero(trained.good)),
        agree(scores, held_out.good),
    )
    store.write_file(options.output, content)
    store.write_file(f"{options.output}.json", to_json(evaluation))
    _print(options, found, evaluation, len(content), time.monotonic() - began, say)
    return evaluation


def _print(
    options: QualityOptions,
    found: Labelled,
    evaluation: Evaluation,
    size: int,
    seconds: float,
    say: Say,
) -> None:
    own = evaluation.held_out
    left_out = {
        "duplicates": found.duplicates,
        "with both labels": found.contradicted,
        "rejected": found.rejected,
    }
    say(
        facts_table(
            {
                "documents": f"{found.read:,} read; {evaluation.documents:,} to train on, "
                f"{evaluation.good:,} of them good; {own.documents:,} held out",
                **{name: f"{number:,}" for name, number in left_out.items() if number},
                "AUC": f"{own.auc:.4f} on held-out documents",
                "accuracy": f"{own.accuracy:.2%} at 0.5",
                "calibration error": f"{own.calibration_error:.4f}",
                "model": f"{options.output}, {size / 1e6:.1f} MB, sha256 "
                f"{evaluation.model_sha256[:12]}",
                "time": f"{seconds:.1f} s",
            }
        )
    )
    table = columns_table("score", "held out", "mean score", "good", justify="right")
    for place, tenth in enumerate(own.tenths):
        if tenth.documents:
            table.add_row(
                name_tenth(place),
                f"{tenth.documents:,}",
                f"{tenth.score:.3f}",
                f"{tenth.good:.3f}",
            )
    say("", table, "", sep="\n")
    say(
        f"score documents: {command_name('pipelines.build_corpus')} "
        f"{flag('quality_model', options.output)} ..."
    )
