"""Files that may not be read or written are named, with what to do, by every command."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import textmill.pipelines.inspection.checks.set_check  # noqa: F401  nobody may not import all
from tests.tools.shard_factory import write_mlm_set
from textmill.pipelines import build_shards, export, inspect_shards, train_tokenizer, verify
from textmill.schemas.commands.entry import run_entry
from textmill.schemas.errors import DataError
from textmill.trainers import flax_mlm
from textmill.trainers.reader import ShardSet

NOBODY = 65534
LEAVE = "Permission denied; ask its owner for permission (chmod -R a+rX), or run as its owner"


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that others may enter, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="textmill-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may read all: as another user, it may not."""
    if os.geteuid() == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        with suppress(PermissionError):
            os.seteuid(os.getuid())


def said_by(main, argv, monkeypatch, capfd) -> tuple[object, str]:
    """Exit code and message of a command that may not read all."""
    monkeypatch.setattr(sys, "argv", ["command", *argv])
    capfd.readouterr()
    with as_nobody(), pytest.raises(SystemExit) as left:
        run_entry(main)
    return left.value.code, capfd.readouterr().err


def commands(directory: Path, out: Path) -> list:
    """Those that read a set."""
    return [
        (verify.main, [str(directory)]),
        (inspect_shards.main, [str(directory)]),
        (inspect_shards.main, [str(directory), "--stats"]),
        (export.main, [str(directory), "--to=jsonl", "--text", f"--output={out}"]),
        (flax_mlm.main, [f"--shards={directory}", f"--output={out}"]),
    ]


@pytest.mark.parametrize(
    ("name", "blamed"),
    [
        (".", "MANIFEST.json"),
        ("MANIFEST.json", "MANIFEST.json"),
        ("schema.json", "schema.json"),
        ("tokenizer.json", "tokenizer.json"),
        ("train-00000-of-00002.tfrecord", "train-00000-of-00002.tfrecord"),
    ],
)
def test_a_set_of_another_user(name, blamed, place, monkeypatch, capfd):
    directory = place / "set"
    write_mlm_set(directory)
    (place / "out").mkdir()
    (place / "out").chmod(0o777)
    (directory / name).chmod(0)
    met = 0
    for main, argv in commands(directory, place / "out" / "new"):
        if "--stats" in argv and name in ("tokenizer.json", "train-00000-of-00002.tfrecord"):
            continue  # reads neither
        code, said = said_by(main, argv, monkeypatch, capfd)
        assert (code, said.count("\n")) == (1, 1), said
        assert said.startswith(f"error: {directory}/{blamed}: {LEAVE}")
        met += 1
    assert met >= 4
    with as_nobody(), pytest.raises(DataError, match=blamed):
        ShardSet(str(directory))
    directory.chmod(0o700)


def test_inputs_tokenizers_and_outputs_of_another_user(place, tokenizer_path, monkeypatch, capfd):
    text, tokenizer, mine = place / "in.txt", place / "tokenizer.json", place / "mine"
    text.write_text("a document\n" * 9)
    shutil.copy(tokenizer_path, tokenizer)
    mine.mkdir(mode=0o755)
    flags = [
        "--document=line",
        f"--input={text}",
        f"--tokenizer={tokenizer}",
        f"--output={mine}/set",
    ]
    build_shards.main([*flags[:3], f"--output={place}/other"])  # nobody may not import all
    train_tokenizer.main([*flags[:2], f"--output={place}/another", "--vocab_size=300"])
    code, said = said_by(build_shards.main, flags, monkeypatch, capfd)
    assert (code, said.count("\n")) == (1, 1) and f"cannot write {mine}/set" in said
    assert "Permission denied" in said
    (mine / "unread").mkdir(mode=0o333)
    unread = [*flags[:3], f"--output={mine}/unread"]
    code, said = said_by(build_shards.main, unread, monkeypatch, capfd)
    assert code == 1 and f"error: cannot write {mine}/unread: Permission denied" in said
    mine.chmod(0o777)
    for refused, others in ((tokenizer, text), (text, tokenizer)):
        refused.chmod(0)
        others.chmod(0o644)
        code, said = said_by(build_shards.main, flags, monkeypatch, capfd)
        assert code and said.count("\n") <= 2 and "Traceback" not in said
        assert str(refused) in said and "Permission denied" in said
    code, said = said_by(
        train_tokenizer.main,
        ["--document=line", f"--input={text}", f"--output={mine}/new", "--vocab_size=300"],
        monkeypatch,
        capfd,
    )
    assert code and "Traceback" not in said and f"{text}" in said and "Permission denied" in said
