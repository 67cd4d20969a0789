"""Text of a file never controls the terminal, whichever command prints it."""

import contextvars
import hashlib
import io
import json
import shutil
import sys
import unicodedata

import pytest
from rich.table import Table
from rich.text import Text

from tests.tools.shard_factory import mlm_schema, replace_file, tokenizer_json, write_mlm_set
from textmill.pipelines import build_shards, export, inspect_shards, verify
from textmill.pipelines.runners.console import Console, facts_table
from textmill.schemas.commands.entry import run_entry
from textmill.schemas.commands.terminal import say, visible
from textmill.schemas.errors import flag, speak_to_caller
from textmill.schemas.files.finished import read_dataset
from textmill.schemas.typed_json import to_json
from textmill.trainers import flax_mlm
from textmill.trainers.run.journal import ProgressLine

# Names the window, rings, turns red by one byte, and turns the writing direction.
EVIL = "\x1b]0;owned\x07\x9b31m\u202e[bold]"
SHOWN = r"\x1b]0;owned\x07\x9b31m\u202e[bold]"


def test_all_that_prints_spells_flags(capsys):
    text = f"give {flag('most', 3)}"

    def print_all():
        say(text)
        console = Console(width=9)
        console.print(text)
        console.print(facts_table({"a": text}, boxed=False))

    print_all()
    contextvars.copy_context().run(lambda: (speak_to_caller(), print_all()))
    printed = "".join(capsys.readouterr().out.split())
    assert printed == "give--most=3give--most=3agive--most=3" + "givemost=3givemost=3agivemost=3"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain [red] text", "plain [red] text"),
        ("blåbær, 漢字, नि\u200dक, 👩\u200d🔬", "blåbær, 漢字, नि\u200dक, 👩\u200d🔬"),
        ("a\nb\tc\rd", r"a↵b\tc\rd"),
        (EVIL, SHOWN),
        ("half \udce9 of one", r"half \udce9 of one"),
    ],
)
def test_what_would_command_a_terminal_is_seen(text, shown):
    assert visible(text) == shown


def test_line_ends_and_tabs_that_are_meant_are_kept(capsys):
    say("a\tb\n  c\rd\x1b[2J")
    say("e", sys.stderr)
    assert capsys.readouterr() == ("a\tb\n  c\\rd\\x1b[2J\n", "e\n")


def test_a_console_prints_text_and_no_commands_nor_markup():
    out = io.StringIO()
    table = Table(EVIL)
    table.add_row("plain")
    console = Console(file=out, soft_wrap=True)
    for printed in (f"a\n{EVIL}", Text(EVIL), table):
        console.print(printed, soft_wrap=True)
    assert commands_in(out.getvalue()) == []
    seen = out.getvalue().splitlines()
    assert seen[:2] == ["a", SHOWN]
    assert seen[2] == SHOWN.replace(r"\x07", "")  # rich takes the bell out of its texts itself
    assert seen[4] == f"┃ {SHOWN} ┃"


def test_a_progress_line_shows_text_and_keeps_its_own_moves():
    out = io.StringIO()
    out.isatty = lambda: True
    line = ProgressLine(out)
    line.update(f"step 1 of {EVIL}")
    line.say(f"saved in {EVIL}")
    assert out.getvalue() == f"\r\x1b[Kstep 1 of {SHOWN}\r\x1b[Ksaved in {SHOWN}\n"


def commands_in(text: str) -> list[str]:
    """Characters of a text that a terminal would act on."""
    kinds = ("Cc", "Cf", "Cs")
    return [c for c in text if unicodedata.category(c) in kinds and c not in "\n\t"]


def evil_token(vocab_size: int) -> bytes:
    content = json.loads(tokenizer_json(vocab_size))
    words = content["model"]["vocab"]
    content["model"]["vocab"] = {f"{EVIL}{w}" if w == "w7" else w: n for w, n in words.items()}
    return json.dumps(content).encode()


def folder(directory):
    write_mlm_set(directory.with_name(EVIL))
    return directory.with_name(EVIL)


def unlisted_file(directory):
    (directory / EVIL).write_bytes(b"")


def split(directory):
    schema = json.loads((directory / "schema.json").read_text())
    schema["splits"][EVIL] = schema["splits"].pop("train")
    replace_file(directory, "schema.json", json.dumps(schema).encode())


def reason(directory):
    stats = json.loads((directory / "stats.json").read_text())
    stats["documents_rejected"] = {EVIL: 1}
    stats["documents_read"] += 1
    replace_file(directory, "stats.json", to_json(stats))


def token(directory):
    evil = evil_token(mlm_schema().vocab_size)
    shutil.rmtree(directory)
    write_mlm_set(directory, tokenizer_sha256=hashlib.sha256(evil).hexdigest())
    replace_file(directory, "tokenizer.json", evil)


@pytest.mark.parametrize("change", [folder, unlisted_file, split, reason, token])
def test_datasets_of_untrusted_sources_are_printed_harmlessly(change, tmp_path, monkeypatch, capfd):
    write_mlm_set(tmp_path / "set")
    directory = change(tmp_path / "set") or tmp_path / "set"
    output = ""
    for main, flags in (
        (verify.main, []),
        (inspect_shards.main, []),
        (inspect_shards.main, ["--stats"]),
        (inspect_shards.main, ["--search=w"]),
        (inspect_shards.main, ["--split=none"]),
        (export.main, ["--to=jsonl", f"--output={tmp_path}/out"]),
        (flax_mlm.main, ["--train_split=none"]),
    ):
        where = f"--shards={directory}" if main is flax_mlm.main else str(directory)
        output += run(main, [where, *flags], monkeypatch, capfd)
    assert commands_in(output) == []
    assert "\\x1b]0;owned" in output


def test_a_run_prints_its_places_harmlessly(tmp_path, tokenizer_path, monkeypatch, capfd):
    (tmp_path / EVIL).mkdir()
    (tmp_path / EVIL / "in.txt").write_text("a document\nanother\n" * 9)
    places = [f"--input={tmp_path}/{EVIL}/in.txt", f"--output={tmp_path}/{EVIL}/set"]
    flags = ["--document=line", f"--tokenizer={tokenizer_path}", *places]
    outputs = [
        run(build_shards.main, [*flags, *more], monkeypatch, capfd)
        for more in (["--dry_run"], [], ["--seed=1"])  # the last is refused
    ]
    # The table of the plan cuts long paths into lines.
    assert [f"{SHOWN}/set" in output for output in outputs[1:]] == [True, True]
    assert commands_in("".join(outputs)) == []
    assert read_dataset(f"{tmp_path}/{EVIL}/set").stats.documents_read == 18


def run(main, argv, monkeypatch, capfd) -> str:
    """The output of a command, as from a shell."""
    monkeypatch.setattr(sys, "argv", ["command", *argv])
    monkeypatch.setattr(
        "textmill.schemas.commands.entry._prepare_end", lambda: None
    )  # this process goes on
    try:
        run_entry(main)
    except SystemExit:
        pass
    captured = capfd.readouterr()
    assert "Traceback" not in captured.err
    return captured.out + captured.err
