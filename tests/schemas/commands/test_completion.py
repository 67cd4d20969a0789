"""Completion in real shells, from the scripts that `textmill completion` prints."""

import os
import pty
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.tools.places import ROOT
from tests.tools.python_process import run_python
from textmill.schemas.commands.completion import SHELLS, Word, words_of
from textmill.schemas.commands.textmill import COMMANDS

CASES = {
    "textmill bui": ["build-corpus", "build-shards"],
    "textmill gene": ["generate"],
    "textmill train fl": ["flax-clm", "flax-mlm"],
    "textmill train flax-clm --lear": ["--learning_rate="],
    "textmill build-shards --mas": ["--mask_copies=", "--mask_rate=", "--mask_unit="],  # of mlm
    "textmill build-shards --task=c": ["chat", "classification", "clm"],
    "textmill build-shards --task cl": ["classification", "clm"],
    "textmill build-shards --input=two": ["two.txt"],
    "textmill inspect shards --st": ["--stats"],
    "textmill verify o": ["one.txt"],
    "textmill completion ": ["bash", "fish", "zsh"],
}
BASH = """
complete -p textmill
for line in "$@"; do
    COMP_LINE=$line COMP_POINT=${#line}
    _textmill
    echo "${COMPREPLY[*]}"
done
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory) -> Path:
    """A directory with a script for each shell, and two files."""
    folder = tmp_path_factory.mktemp("completion")
    for shell in SHELLS:
        done = run_python("-m", "textmill", "completion", shell, cwd=ROOT)
        assert (done.returncode, done.stderr) == (0, "")
        (folder / f"textmill.{shell}").write_text(done.stdout)
    for name in ("one.txt", "two.txt"):
        (folder / name).touch()
    return folder


def run_shell(shell: str, folder: Path, *arguments: str) -> str:
    """What a shell without a user's settings prints, with the script loaded."""
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"no {shell} here")
    code, *more = arguments
    command = [path, "-c", f"source textmill.{shell}\n{code}", shell, *more]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_bash_completes(scripts):
    first, *found = run_shell("bash", scripts, BASH, *CASES).splitlines()
    assert first == "complete -F _textmill textmill"
    assert dict(zip(CASES, map(sorted, map(str.split, found)), strict=True)) == CASES


def test_bash_takes_dashes_for_underscores_and_choices_end_an_argument(scripts):
    code = BASH.replace('echo "', 'echo "$options ').replace("_textmill\n", "options=; _textmill\n")
    code = "compopt() { options=$*; }\n" + code
    lines = ["textmill build_shards --max-len", "textmill build-shards --task=ml", "textmill v"]
    found = run_shell("bash", scripts, code, *lines).splitlines()[1:]
    assert found == ["-o nospace --max_length=", " mlm", " verify"]


def test_fish_completes(scripts):
    for line, due in CASES.items():
        shown = run_shell("fish", scripts, f"complete -C {line!r}").splitlines()
        start = line.rpartition(" ")[2].partition("=")[0] + "="
        words = {each.partition("\t")[0].removeprefix(start) for each in shown}
        assert {word.rstrip("=") for word in due} <= words, line


def test_zsh_completes(scripts):
    """The only word that fits is inserted when TAB is pressed."""
    if shutil.which("zsh") is None:
        pytest.skip("no zsh here")
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(scripts)
        os.execvpe("zsh", ["zsh", "-f", "-i"], {**os.environ, "TERM": "dumb"})

    def answer(until: str) -> str:
        shown, end = "", time.monotonic() + 30
        while until not in shown and time.monotonic() < end:
            if select.select([terminal], [], [], 0.1)[0]:
                shown += os.read(terminal, 1 << 16).decode(errors="replace")
        return shown

    try:
        os.write(terminal, b"autoload -U compinit; compinit -u -D; source textmill.zsh\n")
        os.write(terminal, b"echo rea''dy\n")
        answer("\nready")
        for typed, due in {
            "textmill gene": "textmill generate ",
            "textmill train tf-q": "textmill train tf-qa ",
            "textmill train flax-clm --lear": "textmill train flax-clm --learning_rate=",
            "textmill build-shards --task=ml": "textmill build-shards --task=mlm ",
            "textmill verify one": "textmill verify one.txt ",
        }.items():
            os.write(terminal, f"{typed}\t".encode())
            assert due in answer(due)
            os.write(terminal, b"\x15")  # removes the line
    finally:
        os.kill(process, 9)
        os.waitpid(process, 0)


def test_every_command_has_its_flags(scripts):
    script = (scripts / "textmill.bash").read_text()
    for name in COMMANDS:
        assert f'\n        {name}) flags="--' in script
    words = {word.name: word for word in words_of("pipelines.build_shards")}
    tasks = ("chat", "classification", "clm", "mlm", "qa", "span_corruption", "tokens")
    assert words["--task"] == Word("--task", True, tasks)
    assert words["--bos"] == Word("--bos", False)  # of --task=clm
    assert words["--tokenizer"] == Word("--tokenizer", True)


@pytest.mark.parametrize("typed", ["", "tcsh", "bash zsh"])
def test_other_shells_are_rejected(typed):
    done = run_python("-m", "textmill", "completion", *typed.split(), cwd=ROOT)
    error = "error: textmill completion needs the name of a shell: bash|zsh|fish\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", error)


def test_help_names_where_scripts_belong():
    done = run_python("-m", "textmill", "completion", "--help", cwd=ROOT)
    assert done.returncode == 0
    for shell in SHELLS:
        assert f"\n  textmill completion {shell} > ~/" in done.stdout
