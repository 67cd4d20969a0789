"""Uploads a corpus or a dataset: checks, batches of files, MANIFEST.json last, checks again."""

import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property

from rich.filesize import decimal

from textmill.pipelines.corpus.card import is_unedited
from textmill.pipelines.description.run import CROISSANT, describe_files
from textmill.pipelines.publishing.hub_repo import HubBusyError, HubRepo, StoredFile
from textmill.pipelines.publishing.options import PublishOptions
from textmill.schemas.commands.terminal import number_of, say
from textmill.schemas.errors import DataError, UsageError, flag
from textmill.schemas.files import store
from textmill.schemas.files.finished import (
    Corpus,
    DatasetInfo,
    FinishedDirectory,
    kind_of,
    open_finished,
)
from textmill.schemas.files.object_store import retry
from textmill.schemas.format.corpus_metadata import CARD
from textmill.schemas.format.manifest import MANIFEST, Manifest, ManifestFile

_PAPERS = (CARD, CROISSANT)
_KEPT = {".gitattributes", ".gitignore", CARD, "LICENSE"}  # of a repository, with --overwrite
_BATCH_FILES = 200  # of a commit; the Hub limits the time of one
_BATCH_BYTES = 16_000_000_000
_TRIES = 4
_SHOWN = 5  # names in a message


@dataclass(frozen=True)
class _Content:
    """The files that a repository should have.

    Attributes:
      info: the corpus or dataset.
      manifest: of the repository.
      last: path -> bytes of files that the last commit brings: papers and MANIFEST.json. A reader
        of the repository sees before that it is not finished.
      drafts: those of them that do not replace a file of the repository, because people complete
        cards on the Hub.
    """

    info: FinishedDirectory
    manifest: Manifest
    last: Mapping[str, bytes]
    drafts: frozenset[str]

    @cached_property
    def listed(self) -> dict[str, ManifestFile]:
        """The files of the manifest, by their paths."""
        return {file.path: file for file in self.manifest.files}

    def __iter__(self) -> Iterator[str]:
        """The paths of all files."""
        yield from self.listed
        yield from self.last

    def size(self, path: str) -> int:
        """The bytes of a file."""
        return len(self.last[path]) if path in self.last else self.listed[path].bytes

    def difference(self, path: str, found: StoredFile | None) -> str:
        """How a file of the repository differs from ours; "" if it is the same."""
        if found is None:
            return "is missing"
        if path in self.drafts:
            return ""
        if found.bytes != self.size(path):
            return f"has {found.bytes:,} bytes, not {self.size(path):,}"
        if found.sha256 is None:
            return "" if found.git_hash == self._git_hash(path) else "has a different hash in Git"
        if path in self.last:
            expected = hashlib.sha256(self.last[path]).hexdigest()
        else:
            expected = self.listed[path].sha256
        return "" if found.sha256 == expected else f"has sha256 {found.sha256}, not {expected}"

    def _git_hash(self, path: str) -> str:
        if path in self.last:
            content = self.last[path]
        else:
            with self.info.open_temporarily(path) as local, open(local, "rb") as file:
                content = file.read()
        return hashlib.sha1(
            b"blob %d\0" % len(content) + content, usedforsecurity=False
        ).hexdigest()


@dataclass(frozen=True)
class _Plan:
    """The steps from the files of a repository to those that it should have.

    Attributes:
      upload: paths of files of the manifest.
      finish: paths of files that the last commit brings.
      others: paths in the repository of other content.
    """

    upload: list[str]
    finish: list[str]
    others: list[str]

    @property
    def is_done(self) -> bool:
        """Whether the repository has everything."""
        return not (self.upload or self.finish or self.others)

    @property
    def needs_verified(self) -> bool:
        """Whether it uploads more than papers."""
        return bool(self.upload) or MANIFEST in self.finish


def publish_directory(options: PublishOptions, verify: Callable[[], object]) -> str:
    """Uploads a corpus or a dataset, or finds it uploaded, and reports it.

    Args:
      options: the flags.
      verify: checks all files of the directory; raises DataError.

    Returns:
      The address for readers: hf://datasets/USER/NAME.

    Raises:
      UsageError: it is not a corpus or dataset, there is no token, or the repository has other
        content.
      DataError: the directory is damaged, or the Hub does not take it.
    """
    began = time.monotonic()
    content = _read_content(options)
    repo = HubRepo(options.repo, options.revision)
    if options.private and repo.exists and not repo.is_private:
        raise UsageError(
            f"{flag('private', True)}: {repo.url} is public: change that in its settings, or give "
            f"another {flag('repo')}"
        )
    plan = _make_plan(content, repo)
    _refuse_others(plan, repo, options)
    if options.dry_run:
        _show(plan, content, repo, options)
    elif plan.is_done:
        say(f"{repo.place} already has this {content.info.noun}: nothing to do")
    else:
        if plan.needs_verified:
            verify()
        repo.create(private=options.private)
        sent = _Sent()
        retry(
            lambda: _upload(content, repo, options, sent),
            lambda error: isinstance(error, HubBusyError),
            _TRIES,
            repo.place,
        )
        _check(content, repo)
        seconds = time.monotonic() - began
        files = number_of(sent.files, "file")
        say(f"ok: {files}, {decimal(sent.bytes)}, {seconds:.1f} s: {repo.url}")
    return repo.place


def _read_content(options: PublishOptions) -> _Content:
    directory = options.directory
    kind = kind_of(directory) or DatasetInfo
    if kind not in (DatasetInfo, Corpus):
        raise UsageError(
            f"{directory} is a {kind.noun}: give the directory of a corpus or a dataset, and "
            "upload others with `hf upload`"
        )
    info = open_finished(kind, directory, follow_links=options.follow_links)
    manifest, own = info.manifest, store.read(os.path.join(directory, MANIFEST))
    papers, drafts = _read_papers(options, info)
    if taken := sorted({MANIFEST, *(file.path for file in manifest.files)} & papers.keys()):
        raise UsageError(
            f"{flag('papers', options.papers)}: {taken[0]} is a file of {directory}, too: rename it"
        )
    return _Content(info, manifest, {**papers, MANIFEST: own}, drafts)


def _read_papers(
    options: PublishOptions, info: FinishedDirectory
) -> tuple[dict[str, bytes], frozenset[str]]:
    """Path -> bytes of the papers, and the paths of those that are drafts."""
    folder = options.papers
    if folder is None:
        places = {name: os.path.join(options.directory, name) for name in _PAPERS}
        own = {name: store.read(place) for name, place in places.items() if store.exists(place)}
        if is_unedited(own.get(CARD, b"")):
            del own[CARD]  # `describe_files` writes a longer one
        made = describe_files(options.directory, follow_links=options.follow_links)
        return {name: made[name] for name in _PAPERS} | own, frozenset(_PAPERS) - own.keys()
    if not os.path.isdir(folder):
        raise UsageError(f"{flag('papers', folder)}: there is no such directory")
    names = [entry.name for entry in os.scandir(folder) if entry.is_file()]
    papers = {
        name: store.read(os.path.join(folder, name))
        for name in sorted(names)
        if not name.startswith(".")
    }
    if not papers:
        raise UsageError(f"{flag('papers', folder)}: there are no files in it")
    if CARD not in papers:
        say(f"note: {folder} has no {CARD}: the repository gets no card", sys.stderr)
    return papers, frozenset()


def _make_plan(content: _Content, repo: HubRepo) -> _Plan:
    there = repo.files()
    missing = {path for path in content if content.difference(path, there.get(path))}
    others = []
    # With our manifest the repository is ours: what its owner added stays, what differs is mended.
    if MANIFEST in missing:
        wrong = missing & there.keys() - content.last.keys() | {MANIFEST} & there.keys()
        others = sorted(wrong | there.keys() - {*content} - _KEPT)
    if others:  # its card describes it
        others += sorted(content.drafts & there.keys())
        missing |= content.drafts
    return _Plan(
        upload=[path for path in content.listed if path in missing],
        finish=[path for path in content.last if path in missing],
        others=others,
    )


def _refuse_others(plan: _Plan, repo: HubRepo, options: PublishOptions) -> None:
    if plan.others and not options.overwrite:
        what = "a different MANIFEST.json" if MANIFEST in plan.others else _name_some(plan.others)
        raise UsageError(
            f"{repo.place} has other content ({what}): give another {flag('repo')} or "
            f"{flag('revision')}, or replace it with {flag('overwrite', True)}"
        )


def _name_some(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more:,} more" if more > 0 else "")


def _show(plan: _Plan, content: _Content, repo: HubRepo, options: PublishOptions) -> None:
    """Lists what a run would do."""
    if not repo.exists:
        say(f"create  {'private' if options.private else 'public'} repository {options.repo}")
    if repo.head is None and options.revision:
        say(f"create  branch {options.revision}")
    if plan.needs_verified:
        say(f"verify  {options.directory}")
    for path in plan.others:
        say(f"delete  {path}")
    for path in (*plan.upload, *plan.finish):
        say(f"upload  {path}  {decimal(content.size(path))}")
    paths = [*plan.upload, *plan.finish]
    size, kept = sum(map(content.size, paths)), len([*content]) - len(paths)
    say(
        f"dry run: {number_of(len(paths), 'file')} to upload, {decimal(size)}; {kept:,} are in "
        f"{repo.place}"
    )


@dataclass
class _Sent:
    """Numbers of what was uploaded."""

    files: int = 0
    bytes: int = 0


def _upload(content: _Content, repo: HubRepo, options: PublishOptions, sent: _Sent) -> None:
    """Uploads what the branch lacks; may be repeated."""
    repo.refresh()
    plan = _make_plan(content, repo)
    _refuse_others(plan, repo, options)
    if plan.others:
        repo.commit("Delete other content", delete=plan.others)
    total = sum(map(content.size, plan.upload))
    done = 0
    for batch in _batches(plan.upload, content):
        with ExitStack() as stack:
            files = {
                path: stack.enter_context(content.info.open_temporarily(path)) for path in batch
            }
            repo.commit(f"Upload {number_of(len(batch), 'file')}", add=files)
        size = sum(map(content.size, batch))
        done, sent.files, sent.bytes = done + size, sent.files + len(batch), sent.bytes + size
        say(f"uploaded {decimal(done)} of {decimal(total)}", sys.stderr)
    if plan.finish:
        noun = content.info.noun
        repo.commit(f"Publish the {noun}", add={path: content.last[path] for path in plan.finish})
        sent.files += len(plan.finish)
        sent.bytes += sum(map(content.size, plan.finish))
        if CARD in content.drafts.intersection(plan.finish):
            say(f"note: {CARD} is a draft, in which a person must add statements", sys.stderr)


def _batches(paths: list[str], content: _Content) -> Iterator[list[str]]:
    """Groups of files for one commit each."""
    batch: list[str] = []
    size = 0
    for path in paths:
        size += content.size(path)
        if batch and (len(batch) == _BATCH_FILES or size > _BATCH_BYTES):
            yield batch
            batch, size = [], content.size(path)
        batch.append(path)
    if batch:
        yield batch


def _check(content: _Content, repo: HubRepo) -> None:
    """Compares the size and the hash of each file with those that the Hub lists.

    Raises:
      DataError: one is missing or differs.
    """
    there = repo.files()
    found = {path: content.difference(path, there.get(path)) for path in content}
    wrong = [f"{path} {problem}" for path, problem in found.items() if problem]
    if wrong:
        raise DataError(
            f"{repo.place} is not as it was uploaded: {_name_some(wrong)}: run the same command "
            "again; if it stays so, look for rules of a .gitignore in the repository"
        )
