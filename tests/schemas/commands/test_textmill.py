"""The command `textmill`: the same commands as `python -m`, by other names."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.tools.help_pages import ENTRIES
from tests.tools.places import ROOT
from tests.tools.python_process import run_python
from textmill.schemas.commands.textmill import COMMANDS
from textmill.schemas.version import VERSION

SCRIPT = "import sys\nfrom textmill.schemas.commands.textmill import main\nsys.exit(main())\n"
ENTRY_POINT = '"console_scripts": ["textmill = textmill.schemas.commands.textmill:main"]'


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """As pip installs it: Python's first folder of modules is the script's."""
    path = tmp_path_factory.mktemp("bin") / "textmill"
    path.write_text(SCRIPT)
    return str(path)


@pytest.fixture(scope="module")
def textmill(script):
    def run(*arguments, cwd=ROOT, **environment):
        return run_python(script, *arguments, cwd=cwd, COLUMNS="80", **environment)

    return run


def test_every_entry_has_a_name():
    assert sorted(COMMANDS.values()) == ENTRIES
    named = {entry.rpartition(".")[2].replace("_", "-"): entry for entry in ENTRIES}
    assert named == COMMANDS
    assert ENTRY_POINT in (ROOT / "setup.py").read_text()


def test_help_lists_the_commands_a_line_each(textmill):
    for arguments in ([], ["--help"], ["-h"]):
        found = textmill(*arguments)
        assert (found.returncode, found.stderr) == (0, "")
        listed = re.findall(r"^  (\w\S*)  +[A-Z].*\.$", found.stdout, re.M)
        assert listed == [*COMMANDS, "completion"]
        assert max(map(len, found.stdout.splitlines())) <= 80
    trainers = ["flax-mlm", "flax-clm", "tf-classifier", "tf-qa", "poptorch-classifier"]
    for arguments in (["train", "--help"], ["train"]):
        assert re.findall(r"^  (\w\S*)  ", textmill(*arguments).stdout, re.M) == trainers
    assert textmill("--version").stdout == f"textmill {VERSION}\n"


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("build-shards", "build-shards"),
        ("build_shards", "build-shards"),
        ("inspect-shards", "inspect-shards"),
        ("inspect", "inspect-shards"),
        ("flax-clm", "flax-clm"),
        ("train flax-clm", "flax-clm"),
    ],
)
def test_help_of_a_command_has_its_name(textmill, typed, name):
    found = textmill(*typed.split(), "--help")
    assert (found.returncode, found.stderr) == (0, "")
    command = f"textmill {name}"
    assert found.stdout.startswith(f"usage: {command} ")
    assert f"\nExample: {command} " in found.stdout


@pytest.mark.parametrize(
    ("typed", "code", "error"),
    [
        ("bulid-shards", 2, "textmill has no command 'bulid-shards': did you mean build-shards?"),
        ("tf_q", 2, "textmill has no command 'tf_q': did you mean tf-qa?"),
        ("train evaluate", 2, "textmill has no command 'evaluate': textmill --help lists them"),
        ("genrate run", 2, "textmill has no command 'genrate': did you mean generate?"),
        ("inspct shards", 2, "textmill has no command 'inspct': did you mean inspect?"),
        ("generate run", 2, "run is neither the output directory of a run nor a directory with "),
        ("train tf-q", 2, "textmill has no command 'tf-q': did you mean tf-qa?"),
        ("xyz", 2, "textmill has no command 'xyz': textmill --help lists them"),
        ("export a --to=b --output=c", 2, "--to=b: choose one of parquet, jsonl, arrow, mds"),
        ("verify /dev/null/none", 1, "/dev/null/none "),
        ("verify", 2, "give the directory of a dataset: textmill verify DATASET"),
        ("build-corpus texts", 2, "texts belongs to no flag: write --input=texts; "),
        (
            "build-corpus texts --output=corpus",
            2,
            "texts belongs to no flag: write --input=texts; ",
        ),
        ("flax-clm shards", 2, "shards belongs to no flag: write --shards=shards; "),
    ],
)
def test_exit_codes_are_those_of_the_commands(textmill, typed, code, error):
    found = textmill(*typed.split())
    assert (found.returncode, found.stdout) == (code, "")
    assert found.stderr.startswith(f"error: {error}") and found.stderr.count("\n") == 1


def test_a_filter_beside_the_command_is_found(textmill, tmp_path):
    """As with python -m, but a folder `pipelines` of the user's hides nothing of ours."""
    (tmp_path / "mine.py").write_text("def drop(document):\n    return 'short'\n")
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "__init__.py").write_text("raise ImportError('not ours')")
    (tmp_path / "text.txt").write_text("a b c\n")
    flags = ["--input=text.txt", "--output=corpus", "--filter=mine:drop", "--dry_run"]
    found = textmill("build-corpus", *flags, cwd=tmp_path)
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("is_module", [True, False])
def test_ctrl_c_during_imports_is_one_line(is_module, script, tmp_path):
    """Shells report both ends as 130: an exit code of 130, or a process that SIGINT ended."""
    (tmp_path / "tyro.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(60)\n")
    command = ["-m", "pipelines.verify"] if is_module else [script, "verify"]
    started = subprocess.Popen(
        [sys.executable, *command, "x"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stdout and started.stdout.readline() == "here\n"
    time.sleep(0.1)
    started.send_signal(signal.SIGINT)
    _, error = started.communicate(timeout=60)
    assert (started.returncode in (130, -signal.SIGINT), error) == (True, "interrupted\n")


def test_hints_are_commands_of_the_same_kind(textmill, tmp_path):
    """What a command recommends next is typed as the command itself was."""
    (tmp_path / "text.txt").write_text("a b c\n" * 40)
    found = textmill("build-corpus", "--input=text.txt", "--output=corpus", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert found.stdout.endswith(
        "train a tokenizer: textmill train-tokenizer --input=corpus ...\n"
        "make shards: textmill build-shards --input=corpus ...\n"
    )
    flags = ["--input=corpus", "--output=shards", "--tokenizer=./nothing"]
    found = textmill("build-shards", *flags, cwd=tmp_path)
    assert found.stderr.endswith("or make your own with textmill train-tokenizer\n")
    module = run_python("-m", "pipelines.build_shards", *flags, cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert module.stderr.endswith("or make your own with python -m pipelines.train_tokenizer\n")
