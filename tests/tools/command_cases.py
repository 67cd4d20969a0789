"""A command as a user types it, and its outcome: message, exit code, and what was kept."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from tests.tools.segments import segments_of
from textmill.pipelines import build_shards, export, inspect_shards, train_tokenizer, verify
from textmill.schemas.commands.entry import run_entry
from textmill.schemas.files.finished import read_dataset

GOOD = ("The first good document.", "A second one: blåbær, 漢字.", "And the third, the last.")
Content = bytes | Callable[[Path], object]  # of a file, or what makes it at its path
COMMANDS = {
    "build_shards": build_shards.main,
    "train_tokenizer": train_tokenizer.main,
    "verify": verify.main,
    "inspect_shards": inspect_shards.main,
    "export": export.main,
}


@dataclass(frozen=True)
class Case:
    """A command and its expected outcome.

    Attributes:
      files: files to write into an empty directory; "{d}" in flags and words is that directory.
      flags: flags of the command; `check` adds the usual ones that are not among them.
      code: exit code.
      said: what the message must contain.
      dropped: number of documents by reason.
      kept: all documents that the rows must hold, if the exit code is 0; () compares none.
      command: a key of COMMANDS.
      before: called with the directory after the files are written.
    """

    files: Mapping[str, Content] = field(default_factory=dict)
    flags: Sequence[str] = ()
    code: int = 0
    said: Sequence[str] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    kept: Sequence[str] = GOOD
    command: str = "build_shards"
    before: Callable[[Path], object] = lambda directory: None


def lines(*documents: str | bytes, end: bytes = b"\n") -> bytes:
    return b"".join((d.encode() if isinstance(d, str) else d) + end for d in documents)


def json_lines(*records: Any) -> bytes:
    """Records as JSON Lines; bytes stand as they are."""
    return lines(*(r if isinstance(r, bytes) else json.dumps(r) for r in records))


def _command_line(case: Case, directory: Path, tokenizer_path: str) -> list[str]:
    """The case's flags, and the usual ones that are not among them."""
    flags = [flag.replace("{d}", str(directory)) for flag in case.flags]
    given = {flag.partition("=")[0] for flag in flags}
    usual: dict[str, str] = {}
    if case.command == "build_shards":
        usual = {"tokenizer": tokenizer_path, "output": f"{directory}/set"}
        usual |= {"splits": "train:1", "num_shards": "1"}
    if case.command == "train_tokenizer":
        usual = {"vocab_size": "300", "output": f"{directory}/out"}
    if usual and not given & {"--input", "--train_input", "--from_histogram"}:
        usual["input"] = f"{directory}/in*"
    if usual and any(".txt" in path for path in case.files):
        usual["document"] = "line"
    if "--train_input" in given:
        del usual["splits"]
    flags += [f"--{name}={value}" for name, value in usual.items() if f"--{name}" not in given]
    if case.command == "build_shards" and not given & {"--task", "--static_masking", "--config"}:
        flags.append("--no_static_masking")
    return flags


def documents_of(directory: Path) -> list[str]:
    """The text of every segment of a dataset, decoded by `tokenizers` itself."""
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    ids = [list(segment[1:-1]) for segment in segments_of(directory)]
    return tokenizer.decode_batch(ids, skip_special_tokens=False)


def check(case: Case, directory: Path, tokenizer_path: str, monkeypatch, capfd) -> None:
    """Runs the command of `case` in this process and compares the outcome."""
    for path, content in case.files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        content(directory / path) if callable(content) else (directory / path).write_bytes(content)
    case.before(directory)
    monkeypatch.syspath_prepend(str(directory))
    flags = _command_line(case, directory, tokenizer_path)
    monkeypatch.setattr(sys, "argv", [case.command, *flags])
    monkeypatch.setattr(
        "textmill.schemas.commands.entry._prepare_end", lambda: None
    )  # this process goes on
    before = _names(directory)
    capfd.readouterr()
    if case.code:
        with pytest.raises(SystemExit) as exit_:
            run_entry(COMMANDS[case.command])
        assert exit_.value.code == case.code, capfd.readouterr().err
        assert _names(directory) <= before  # nothing was published
    else:
        run_entry(COMMANDS[case.command])
    message = " ".join(capfd.readouterr().err.split())
    assert "Traceback" not in message
    for words in case.said:
        assert words.replace("{d}", str(directory)) in message, message
    if not case.code:
        output = next(f for f in flags if f.startswith("--output=")).partition("=")[2]
        assert read_dataset(output).stats.dropped == case.dropped
        if case.kept:
            assert sorted(documents_of(Path(output))) == sorted(case.kept)


def _names(directory: Path) -> set[Path]:
    """All files, but locks and compiled modules."""
    files = (path for path in directory.rglob("*") if not path.is_dir())
    return {path for path in files if path.name != ".lock" and path.suffix != ".pyc"}
