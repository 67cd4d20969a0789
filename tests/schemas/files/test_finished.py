"""Finished directories of each kind: found by their names, and refused with any damage."""

import os
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

import textmill as tm
from tests.golden.outputs import KEPT
from tests.tools.shard_factory import replace_file
from textmill.schemas.errors import DataError, TextmillError
from textmill.schemas.files.finished import (
    Corpus,
    DatasetInfo,
    RunInfo,
    TokenizerInfo,
    is_run,
    kind_of,
    open_finished,
)


class Example(NamedTuple):
    """A directory of a kind, and files of it: its seal, one of metadata, another."""

    kept: str
    kind: type
    seal: str
    metadata: str
    other: str


EXAMPLES = (
    Example("clm", DatasetInfo, "MANIFEST.json", "schema.json", "tokenizer.json"),
    Example("clm", DatasetInfo, "MANIFEST.json", "stats.json", "train-00000-of-00001.array_record"),
    Example("corpus", Corpus, "MANIFEST.json", "inputs.json", "documents-00000-of-00001.parquet"),
    Example("bpe", TokenizerInfo, "MANIFEST.json", "report.json", "histogram.parquet"),
    Example("run", RunInfo, "config.json", "schema.json", "tokenizer.json"),
)


@pytest.fixture(params=EXAMPLES, ids=lambda e: f"{e.kept} {e.metadata}")
def example(request, tmp_path):
    shutil.copytree(KEPT / request.param.kept, tmp_path / "finished")
    return request.param


def edit(path: Path) -> None:
    """Other content of the same size."""
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])


def lead_out(path: Path) -> None:
    """The same content, elsewhere."""
    path.rename(path.parents[1] / "elsewhere")
    path.symlink_to("../elsewhere")


def link_to(place: str):
    def link(path: Path) -> None:
        path.unlink()
        path.symlink_to(place)

    return link


def instead(make):
    def replace(path: Path) -> None:
        path.unlink()
        make(path)

    return replace


def write(content: bytes):
    """Hostile content under sums that are right."""

    def replace(path: Path) -> None:
        if path.name == "MANIFEST.json" or not (path.parent / "MANIFEST.json").exists():
            path.write_bytes(content)
        else:
            replace_file(path.parent, path.name, content)

    return replace


ANY = ("seal", "metadata", "other")
DAMAGE = {
    # Name: (the files that are damaged so, how, what the message says after the file's name)
    "truncated": (
        ANY,
        lambda p: os.truncate(p, p.stat().st_size // 2),
        "has .* bytes|is not JSON|sha256 differs",
    ),
    "empty": (ANY, lambda p: os.truncate(p, 0), "has 0 bytes|is not JSON|sha256 differs"),
    "grown": (
        ("metadata", "other"),
        lambda p: p.write_bytes(p.read_bytes() + b"\n"),
        "has .* bytes, but MANIFEST.json lists|sha256 differs",
    ),
    "edited": (("seal", "metadata"), edit, "is not JSON|was changed after it was published"),
    "missing": (("metadata", "other"), Path.unlink, "is missing"),
    "no seal": (("seal",), Path.unlink, "not a finished dataset|is missing"),
    "renamed": (("metadata", "other"), lambda p: p.rename(f"{p}.copy"), "is missing"),
    "link out": (ANY, lead_out, "is a link out of its directory"),
    "link to device": (ANY, link_to("/dev/zero"), "is a link out of|not a finished"),
    "link to itself": (("metadata", "other"), link_to("."), "is not a regular file|is a directory"),
    "link nowhere": (("metadata", "other"), link_to("nowhere"), "is missing"),
    "pipe": (ANY, instead(os.mkfifo), "is not a regular file|not a finished"),
    "folder": (ANY, instead(os.mkdir), "is not a regular file|not a finished|is a directory"),
    "huge": (
        ANY,
        lambda p: os.truncate(p, 3 << 30),
        "ends in NUL bytes|has 3,221,225,472 bytes",
    ),
    "deep JSON": (("seal", "metadata"), write(b"[" * 100_000), "is not JSON"),
    "a number of digits": (("seal", "metadata"), write(b"9" * 5000), "is not JSON"),
    "a key twice": (("seal", "metadata"), write(b'{"a": 1, "a": 2}'), "the key 'a' occurs twice"),
    "NaN": (("seal", "metadata"), write(b'{"a": NaN}'), "NaN is not a number"),
    "half a character": (("seal", "metadata"), write(b'{"a": "\\ud800"}'), "surrogates"),
    "null": (("seal", "metadata"), write(b"null"), "None"),
    "another object": (("seal", "metadata"), write(b'{"a": {}}'), "fields|row_tokens"),
}


def test_each_kind_is_found_and_opened(example, tmp_path):
    directory = tmp_path / "finished"
    assert is_run(str(directory)) is (example.kind is RunInfo)
    assert kind_of(str(directory)) is (None if example.kind is RunInfo else example.kind)
    info = open_finished(example.kind, directory)
    assert info.directory == str(directory)
    assert kind_of(str(tmp_path)) is None
    assert tm.open(directory).directory == str(directory)


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.timeout(60)
def test_a_damaged_directory_is_refused(example, tmp_path, damage):
    """Also where a link is followed on request, if it leads to no regular file."""
    files, change, said = DAMAGE[damage]
    if (example.kind, damage) == (RunInfo, "grown"):
        files = ("other",)  # white space at the end of JSON changes nothing
    for which in files:
        directory, name = tmp_path / which / "finished", getattr(example, which)
        shutil.copytree(tmp_path / "finished", directory)
        change(directory / name)
        with pytest.raises(DataError) as error:
            open_finished(example.kind, directory)
        message = str(error.value)
        assert re.search(said, message, re.IGNORECASE) and (
            name in message or "not a finished" in message
        )
        with pytest.raises(TextmillError):
            tm.open(directory)
