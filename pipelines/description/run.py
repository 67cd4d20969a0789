"""Runs describe: opens the directories, renders the three files, and writes them."""

import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from textmill.pipelines.description.counts import Metadata
from textmill.pipelines.description.croissant import write_croissant
from textmill.pipelines.description.options import DescribeOptions
from textmill.pipelines.description.provenance import Provenance
from textmill.pipelines.description.render import render_card, render_training_content
from textmill.schemas.commands.entry import sigterm_as_interrupt
from textmill.schemas.commands.terminal import say
from textmill.schemas.errors import UsageError, flag
from textmill.schemas.files import store
from textmill.schemas.files.finished import (
    Corpus,
    DatasetInfo,
    FinishedDirectory,
    kind_of,
    open_finished,
)
from textmill.schemas.format.corpus_metadata import CARD
from textmill.schemas.format.manifest import HOSTS, MANIFEST, ManifestFile
from textmill.schemas.typed_json import parse_json

CROISSANT, TRAINING_CONTENT = "croissant.json", "training_content.md"
_READ = ("schema.json", "stats.json", "inputs.json", HOSTS)


def describe(options: DescribeOptions) -> None:
    """Describes a corpus or a dataset, and reports the files.

    Raises:
      UsageError: the directory is of a different kind, or --to holds files.
      DataError: its metadata files are damaged or contradict each other.
    """
    _refuse_taken(options)
    files = describe_files(options.directory, options.corpus, follow_links=options.follow_links)
    _write(options.to, files)
    say(f"ok: {', '.join(files)}: {options.to}")


def describe_files(
    directory: str, corpora: tuple[str, ...] = (), *, follow_links: bool = False
) -> dict[str, bytes]:
    """The name and content of each file.

    Args:
      directory: of a corpus or dataset.
      corpora: those that the dataset was built from.
      follow_links: see `open_finished`.

    Raises:
      UsageError: a directory is of a different kind, or the dataset was not built from a corpus.
      DataError: metadata files are damaged or contradict each other.
    """
    kind = kind_of(directory) or DatasetInfo
    if kind not in (Corpus, DatasetInfo):
        raise UsageError(
            f"{directory} is a {kind.noun}: give the directory of a corpus or a dataset"
        )
    found = open_finished(kind, directory, follow_links=follow_links)
    described = _read(found, "")
    origins = [Provenance(described)] if kind is Corpus else []
    if corpora and kind is Corpus:
        raise UsageError(
            f"{flag('corpus', corpora[0])}: {directory} is a corpus; give it with a dataset"
        )
    of_dataset = described.parameters.get("corpus", [])
    for path in corpora:
        corpus = open_finished(Corpus, path, follow_links=follow_links)
        if corpus.schema.fingerprint not in of_dataset:
            raise UsageError(
                f"{flag('corpus', path)}: {directory} was built from other inputs than this corpus "
                f"(fingerprint {corpus.schema.fingerprint[:12]})"
            )
        origins.append(Provenance(_read(corpus, f"{_name(path)}/")))
    shards = found.documents if isinstance(found, Corpus) else _shards(found)
    languages = sorted({code for origin in origins for code in origin.kept_languages})
    steps = [
        f"build_corpus: {name} = {value} ({place})"
        for origin in origins
        for name, (value, place) in origin.flags.items()
    ]
    return {
        CARD: render_card(described, origins),
        TRAINING_CONTENT: render_training_content(described, origins),
        CROISSANT: write_croissant(described, shards, languages, steps),
    }


def _shards(found: FinishedDirectory) -> list[ManifestFile]:
    return [file for file in found.manifest.files if file.is_shard]


def _read(found: FinishedDirectory, where: str) -> Metadata:
    files = {
        name: parse_json(found.read(name), f"{found.directory}/{name}")
        for name in _READ
        if found.lists(name)
    }
    files[MANIFEST] = found.manifest.to_dict()
    return Metadata(found.noun, _name(found.directory), files, where)


def _name(directory: str) -> str:
    path = directory if store.is_url(directory) else os.path.abspath(directory)
    return os.path.basename(path.rstrip("/"))


def _refuse_taken(options: DescribeOptions) -> None:
    """Raises UsageError if --to is a file, a finished directory, or has files."""
    to = options.to
    if os.path.exists(to) and not os.path.isdir(to):
        raise UsageError(f"{flag('to', to)} is a file: give a directory")
    if kind := kind_of(to):
        raise UsageError(
            f"{flag('to', to)} contains a {kind.noun} ({MANIFEST}), which lists its own files: use "
            "another directory"
        )
    if os.path.isdir(to) and os.listdir(to) and not options.overwrite:
        raise UsageError(
            f"{flag('to', to)} has files ({min(os.listdir(to))}): use another directory, or "
            f"{flag('overwrite', True)} to replace {CARD}, {TRAINING_CONTENT} and {CROISSANT}"
        )


def _write(to: str, files: Mapping[str, bytes]) -> None:
    """Writes all files, or none where the directory is new or empty."""
    folder = os.path.dirname(os.path.abspath(to))
    with store.disk_errors(to), sigterm_as_interrupt(), _temporary(folder) as new:
        for name, content in files.items():
            store.write_file(os.path.join(new, name), content)
        if os.path.isdir(to) and os.listdir(to):
            for name in files:
                os.replace(os.path.join(new, name), os.path.join(to, name))
        else:
            os.rename(new, to)
        store.sync(to)


@contextmanager
def _temporary(folder: str) -> Iterator[str]:
    path = os.path.join(folder, f".describe-{uuid.uuid4().hex}")
    os.makedirs(path)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
