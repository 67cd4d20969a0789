"""The commands as functions: their flags are keywords, and they return what they wrote."""

from __future__ import annotations

import difflib
import json
import os
import time
from importlib import import_module
from typing import Any, Iterable, TypeVar, Union

from textmill.keywords import Keywords
from textmill.results import Corpus, Dataset, Output, QualityModel, Run, Tokenizer
from textmill.schemas.commands.textmill import TRAINING
from textmill.schemas.errors import UsageError, as_keywords
from textmill.tasks import Task

T = TypeVar("T", bound=Output)
Path = Union[str, "os.PathLike[str]"]
TRAINERS = [module.rpartition(".")[2] for module in TRAINING]


def build_corpus(**settings: Any) -> Corpus:
    """Cleans, filters and deduplicates text, or finds the corpus that was built so.

    Args:
      **settings: the flags of `textmill build-corpus --help=all`, and Beam's, such as
        runner="DataflowRunner". `input` and `output` are paths or earlier results.

    Returns:
      The corpus; None with dry_run=True or preflight=True, which only print.

    Raises:
      UsageError: a setting is wrong, or the output directory holds something else.
      DataError: the inputs are damaged or empty.
    """
    return _build("build_corpus", settings, Corpus)


def train_tokenizer(**settings: Any) -> Tokenizer:
    """Trains a BPE or WordPiece tokenizer, or finds the one that was trained so.

    Args:
      **settings: the flags of `textmill train-tokenizer --help=all`, and Beam's.

    Returns and raises like `build_corpus`.
    """
    return _build("train_tokenizer", settings, Tokenizer)


def build_shards(task: Task | str | None = None, **settings: Any) -> Dataset:
    """Tokenizes and packs text into a dataset of shards, or finds the one that was built so.

    Args:
      task: such as Clm(max_length=1024), or a name: "clm". Default: "mlm".
      **settings: the flags of `textmill build-shards --help=all`, and Beam's. The flags of the task
        may stand here, too.

    Returns and raises like `build_corpus`.
    """
    if isinstance(task, type) and issubclass(task, Task):
        raise UsageError(f"task={task.__name__}: write {task.__name__}()")
    if isinstance(task, Task):
        for name in task.settings:
            if name in settings:
                raise UsageError(f"{name}={settings[name]!r}: {task} sets it already; give one")
        settings = {**task.settings, **settings}
        task = task.name
    if task is not None:
        settings = {"task": task, **settings}
    return _build("build_shards", settings, Dataset)


def train(trainer: str, **settings: Any) -> Run:
    """Trains a model on a dataset in this process; Ctrl-C ends the run after a checkpoint.

    Args:
      trainer: name of a trainer: flax_mlm, flax_clm, tf_classifier, tf_qa, poptorch_classifier.
      **settings: the flags of `textmill flax-clm --help=all` and so on. `shards` is a path or an
        earlier result, or several with their weights: {"books": 0.7, "web": 0.3}; `stages` is
        {0: {"books": 0.7, "web": 0.3}, "90%": {"books": 1}} of several without weights.

    Returns:
      The run; None with dry_run=True, which only prints.

    Raises:
      UsageError: a setting is wrong, or the dataset, the directory and the devices do not fit.
      DataError: the loss is not finite, or a file cannot be read or written.
    """
    name = trainer.replace("-", "_")
    if name not in TRAINERS:
        near = difflib.get_close_matches(name, TRAINERS, 1)
        hint = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(TRAINERS)}"
        raise UsageError(f"there is no trainer {trainer!r}: {hint}")

    keywords = keywords_of(name)

    def work() -> Any:
        # The trainers' packages, which a host of the pipelines does not have.
        from textmill.trainers.flags.command_line import parse_flags
        from textmill.trainers.run.start import train as run_trainer

        found = import_module(f"textmill.trainers.{name}").TRAINER
        argv, given = keywords.given(settings)
        flags = parse_flags(argv, found.flags, given)
        began = time.monotonic()
        directory = run_trainer(flags, found)
        if directory is None:
            return None
        return Run(str(directory), seconds=time.monotonic() - began)

    return keywords.call(work)


def verify(
    *directories: Path,
    follow_links: bool = False,
    absent: Path | None = None,
    cache_dir: Path | None = None,
) -> dict[str, int]:
    """Reads corpora, tokenizers and datasets in full, and checks them against their metadata.

    Args:
      *directories: paths, URLs or earlier results.
      follow_links: whether to open files that are links to outside the directory.
      absent: a file of digests; checks that no directory and no cached file of this host holds
        these documents.
      cache_dir: directory of cached files that `absent` searches. Default: ~/.cache/textmill.

    Returns:
      Numbers of datasets, corpora, tokenizers, documents, rows and tokens that are as published.

    Raises:
      DataError: something differs, or a document of `absent` was found; names all of it.
      UsageError: `absent` is not a list of digests.
    """
    keywords = Keywords("verify", lambda: (), "pipelines")
    paths = tuple(os.fspath(directory) for directory in directories)
    places = [None if place is None else os.fspath(place) for place in (absent, cache_dir)]

    def work() -> dict[str, int]:
        # The pipelines' packages, which a host of trainers does not have.
        from textmill.pipelines.inspection.options import VerifyOptions
        from textmill.pipelines.verify import verify as check

        return dict(check(VerifyOptions(paths, follow_links, *places)))

    return keywords.call(work)


def describe(
    directory: Path,
    *,
    to: Path,
    corpus: Path | Iterable[Path] = (),
    overwrite: bool = False,
    follow_links: bool = False,
) -> str:
    """Writes Croissant metadata, a dataset card, and a draft of the EU's summary.

    Args:
      directory: of a corpus or dataset, or an earlier result.
      to: the directory of the three files.
      corpus: the corpus that the dataset was built from, or several.
      overwrite: whether to replace the files in a directory that has files.
      follow_links: whether to open files that are links to outside the directory.

    Returns:
      The path of the three files.

    Raises:
      UsageError: the directory is of a different kind, or `to` holds files.
      DataError: metadata files are damaged or contradict each other.
    """
    keywords = Keywords("describe", lambda: (), "pipelines")
    corpora = [corpus] if isinstance(corpus, (str, os.PathLike)) else corpus
    paths = os.fspath(directory), os.fspath(to), tuple(os.fspath(each) for each in corpora)

    def work() -> str:
        # The pipelines' packages, which a host of trainers does not have.
        from textmill.pipelines.description.options import DescribeOptions
        from textmill.pipelines.description.run import describe as write

        write(DescribeOptions(*paths, overwrite, follow_links))
        return paths[1]

    return keywords.call(work)


def train_quality_model(**settings: Any) -> QualityModel:
    """Trains a model of quality, for the keyword quality_model of `build_corpus`.

    Args:
      **settings: the flags of `textmill train-quality-model --help=all`. `good`, `other` and
        `input` are paths or earlier results.

    Returns:
      The model's file, with its evaluation on held-out documents.

    Raises:
      UsageError: a setting is wrong, the file exists, or documents of one kind are missing.
      DataError: the inputs are damaged or empty.
    """
    keywords = keywords_of("train_quality_model")

    def work() -> QualityModel:
        # The pipelines' packages, which a host of trainers does not have.
        from textmill.pipelines.quality.options import HELP, QualityOptions
        from textmill.pipelines.quality.run import train_model
        from textmill.schemas.commands.options import parse_options
        from textmill.schemas.typed_json import to_json

        options = parse_options([], HELP, QualityOptions, keywords.given(settings)[1])
        evaluation = train_model(options, say=lambda *_, **__: None)
        return QualityModel(options.output, json.loads(to_json(evaluation)))

    return keywords.call(work)


def publish(
    directory: Path,
    *,
    repo: str,
    revision: str | None = None,
    papers: Path | None = None,
    private: bool = False,
    overwrite: bool = False,
    dry_run: bool = False,
    follow_links: bool = False,
) -> str:
    """Uploads a corpus or a dataset to the Hugging Face Hub, or finds it uploaded.

    Args:
      directory: of a corpus or dataset, or an earlier result.
      repo: USER/NAME of a dataset repository, which is created if it does not exist.
      revision: the branch; None for main.
      papers: a directory of the card and other files, as `describe` writes it.
      private: whether to create a private repository, and refuse a public one.
      overwrite: whether to replace other content.
      dry_run: whether to list the changes only.
      follow_links: whether to upload files that are links to outside the directory.

    Returns:
      The address for readers: hf://datasets/USER/NAME.

    Raises:
      UsageError: there is no token, or the repository has other content.
      DataError: the directory is damaged, or the Hub rejects a request or is not reachable.
    """
    keywords = Keywords("publish", lambda: (), "pipelines")
    paths = os.fspath(directory), None if papers is None else os.fspath(papers)

    def work() -> str:
        # The pipelines' packages, which a host of trainers does not have.
        from textmill.pipelines.publish import publish as upload
        from textmill.pipelines.publishing.options import PublishOptions

        return upload(
            PublishOptions(
                directory=paths[0],
                repo=repo,
                revision=revision,
                papers=paths[1],
                private=private,
                overwrite=overwrite,
                dry_run=dry_run,
                follow_links=follow_links,
            )
        )

    return keywords.call(work)


def keywords_of(command: str) -> Keywords:
    """The keywords of a builder or a trainer, by the name of its command."""
    extra = command.partition("_")[0] if command in TRAINERS else "pipelines"

    def options() -> Iterable[type]:
        if command in TRAINERS:
            return (import_module(f"textmill.trainers.{command}").TRAINER.flags,)
        if command == "train_quality_model":
            return (import_module("textmill.pipelines.quality.options").QualityOptions,)
        return import_module(f"textmill.pipelines.{command}").BUILDER.kinds()

    return Keywords(command, options, extra)


def _build(name: str, settings: dict[str, Any], output: type[T]) -> T:
    keywords = keywords_of(name)

    def work() -> Any:
        # The pipelines' packages, which a host of trainers does not have.
        from textmill.pipelines.runners.console import Console

        builder = import_module(f"textmill.pipelines.{name}").BUILDER
        say = Console(soft_wrap=True).print
        result = builder.start(*builder.parse(*keywords.given(settings)), say)
        if result is None:
            return None
        warnings = tuple(map(as_keywords, result.warnings))
        for warning in warnings:
            say(f"warning: {warning}", style="yellow")
        return output(result.thing.directory, warnings, result.seconds)

    return keywords.call(work)
