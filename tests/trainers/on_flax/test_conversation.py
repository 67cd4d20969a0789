"""Conversations with a model: in a real terminal, in a pipe, and within the model's positions."""

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from tests.tools.clm_factory import chat_schema, write_clm_set
from tests.tools.numpy_program import TABLE
from tests.tools.places import ROOT
from textmill.schemas.errors import DataError, UsageError
from textmill.trainers.chat import main
from textmill.trainers.flags.task_flags import GenerationFlags
from textmill.trainers.flax_clm import FlaxClmFlags
from textmill.trainers.flax_clm import main as train
from textmill.trainers.on_flax.generation import FlaxChat, _settled, write_texts
from textmill.trainers.run.trained import find_trained
from textmill.trainers.use.conversation import _messages

pytestmark = pytest.mark.usefixtures("cache")
# "w14 w7 <mask> w19 w9 <mask> w14 w8 <mask> w19" before the second answer
TEMPLATE = (
    "{% if messages[-1].content == 'w13' %}{{ raise_exception('no w13') }}{% endif %}"
    "{% for m in messages %}w{{ m.role | length + 10 }} {{ m.content }} <mask> {% endfor %}"
    "{% if add_generation_prompt %}w19{% endif %}"
)
POSITIONS = 4096
SPECIAL = 5  # tokens
FLAGS = FlaxClmFlags()
HINT = "Ctrl-D, an empty line or /exit ends the conversation."


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> str:
    """A run on conversations, whose answers are as long as they may be: no special token wins."""
    place = tmp_path_factory.mktemp("chat")
    parameters = {**chat_schema().parameters, "chat_template": TEMPLATE}
    schema = replace(chat_schema(), parameters=parameters, fingerprint="")
    write_clm_set(place / "set", schema=schema)
    sizes = ["--layers=1", "--hidden_size=16", "--heads=2", f"--max_positions={POSITIONS}"]
    train([f"--shards={place}/set", f"--output={place}/run", "--steps=1", *sizes])
    checkpoint = place / "run" / "checkpoints" / "1"
    arrays = load_file(checkpoint / "state.safetensors")
    arrays[f"weights/{TABLE}"][:SPECIAL] = 0  # of the output layer, too
    save_file(arrays, checkpoint / "state.safetensors")
    files = [checkpoint / name for name in ("progress.json", "state.safetensors")]
    sums = [f"{sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (checkpoint / "SHA256SUMS").write_text("".join(sums))
    return f"{place}/run"


def answer_to(run: str, prompt: str, new: int) -> str:
    """What `generate` adds to the text that the template would render."""
    flags = GenerationFlags(max_new_tokens=new)
    [text] = write_texts(find_trained(run), FLAGS, flags, prompt, is_message=False)
    return text.removeprefix(f"{prompt.replace('<mask> ', '')} ")


def test_an_answer_grows_to_that_of_the_whole_conversation(run):
    """20 tokens in three parts."""
    chat = FlaxChat(find_trained(run), FLAGS, GenerationFlags(max_new_tokens=20))
    for turns, prompt in (
        (["w7"], "w14 w7 <mask> w19"),
        (["w7", "w9 w10", "w8"], "w14 w7 <mask> w19 w9 w10 <mask> w14 w8 <mask> w19"),
    ):
        parts = list(chat.answer(turns))
        assert [len(part.split()) for part in parts] == [8, 16, 20]
        assert all(b.startswith(a) for a, b in zip(parts, parts[1:], strict=False))
        assert parts[-1] == answer_to(run, prompt, 20)


def test_the_oldest_turns_are_dropped_for_an_answer(run):
    """A turn of 500 words has 502 tokens; half of the positions stay for the answer."""
    chat = FlaxChat(find_trained(run), FLAGS, GenerationFlags(max_new_tokens=1 << 20))
    turns = [f"w{number} " * 500 for number in range(5, 14)]
    for count, left in ((1, 1), (3, 3), (5, 3), (9, 3)):
        assert chat.newest(turns[:count]) == turns[count - left : count]
    small = FlaxChat(find_trained(run), FLAGS, GenerationFlags(max_new_tokens=8))
    assert small.newest(turns[:7]) == turns[:7]  # 3,515 tokens
    assert small.newest(turns) == turns[2:]
    assert small.newest(["w7 " * 5000]) == ["w7 " * 5000]


def test_half_a_character_and_half_an_end_of_turn_wait():
    due = {"a b": "a b", "a\ufffd\ufffd": "a", "a <": "a ", "a </en": "a ", "</end": "", "<b": "<b"}
    assert {text: _settled(text, "</end>") for text in due} == due
    assert _settled("a <", "") == "a <"


@pytest.mark.parametrize(
    ("typed", "of_terminal", "of_pipe"),
    [
        ("w7\n\nw8\n", ["w7"], ["w7", "w8"]),
        (" \n w7 \n/exit\nw8\n", [], ["w7"]),
        ("w7\r\nw8", ["w7", "w8"], ["w7", "w8"]),
    ],
)
def test_lines_end_a_conversation(monkeypatch, capsys, typed, of_terminal, of_pipe):
    for is_terminal, due in ((True, of_terminal), (False, of_pipe)):
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed, newline=None))
        assert list(_messages(is_terminal)) == due
        assert ("> " in capsys.readouterr().out) == is_terminal


def pipe(monkeypatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), "utf-8"))


def test_lines_of_a_pipe_are_one_conversation_without_prompts(run, monkeypatch, capsys):
    pipe(monkeypatch, b"w7\n\nw8\n")
    main([run, "--max_new_tokens=4"])
    first = answer_to(run, "w14 w7 <mask> w19", 4)
    second = answer_to(run, f"w14 w7 <mask> w19 {first} <mask> w14 w8 <mask> w19", 4)
    assert capsys.readouterr().out == f"{first}\n{second}\n"


@pytest.mark.parametrize(
    ("data", "more", "kind", "said"),
    [
        (b"", [], UsageError, "chat needs MESSAGE in quotes: .*chat run 'What is 3 plus 4"),
        (b"w7\n\xff\n", [], DataError, "^standard input is not utf-8: convert it"),
        (
            b"w7\n" + b"w8 " * POSITIONS,
            ["--max_new_tokens=2"],
            UsageError,
            "^standard input, message 2: the prompt has 4,099 tokens, but the model has 4,096",
        ),
        (
            b"w7\n",
            ["--samples=2", "--temperature=1"],
            UsageError,
            "^--samples=2: a conversation has one answer",
        ),
    ],
)
def test_what_cannot_be_answered_is_rejected(run, monkeypatch, data, more, kind, said):
    pipe(monkeypatch, data)
    with pytest.raises(kind, match=said):
        main([run, *more])


def test_dropped_messages_are_counted(run, monkeypatch, capsys):
    pipe(monkeypatch, b"\n".join([b"w7", b"w8 " * 4080, b"w9"]))
    main([run, "--max_new_tokens=8"])
    notes = [line for line in capsys.readouterr().err.splitlines() if "dropped" in line]
    note = "note: dropped 1 message from the start, with the answers: the model has 4,096 positions"
    assert notes == [note] * 2


class Terminal:
    """A pseudo-terminal on which a conversation runs."""

    def __init__(self, terminal: int):
        self.number, self.shown = terminal, ""

    def type(self, text: str) -> None:
        os.write(self.number, text.encode())

    def read(self, until: str) -> str:
        """What is shown up to a text; fails if the text does not come."""
        end = time.monotonic() + 120
        while until not in self.shown and time.monotonic() < end:
            if select.select([self.number], [], [], 0.1)[0]:
                try:
                    part = os.read(self.number, 1 << 16).decode()
                except OSError:  # Linux's end of a terminal
                    break
                self.shown += part.replace("\r\n", "\n")
        assert until in self.shown, self.shown
        found, _, self.shown = self.shown.partition(until)
        return found


@contextmanager
def conversation(run: str, *more: str) -> Iterator[tuple[Terminal, subprocess.Popen]]:
    """A process with a terminal of its own, on which Ctrl-C sends a signal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "textmill", "chat", run, *more],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "dumb"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),  # takes control of it
    )
    os.close(theirs)
    try:
        yield Terminal(ours), process
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_a_conversation_on_a_terminal(run):
    """Two messages with Ctrl-C and an error between them, and Ctrl-D."""
    with conversation(run, "--max_new_tokens=4") as (terminal, process):
        assert f"Ctrl-C stops an answer; {HINT}\n" in terminal.read("> ")
        terminal.type("w7\n")
        first = answer_to(run, "w14 w7 <mask> w19", 4)
        assert terminal.read("\n> ") == f"w7\n{first}"
        terminal.type("w12")
        terminal.read("w12")
        while Path(f"/proc/{process.pid}/stat").read_text().split()[2] != "S":
            time.sleep(0.01)  # readline hears no signal before it waits for a key
        terminal.type("\x03")
        assert terminal.read("\n> ").endswith(f"\n{HINT}")
        terminal.type("w13\n")
        error = "error: MESSAGE: the template fails: TemplateError: no w13"
        assert terminal.read("\n> ") == f"w13\n{error}"
        terminal.type("w8\n")
        second = answer_to(run, f"w14 w7 <mask> w19 {first} <mask> w14 w8 <mask> w19", 4)
        assert terminal.read("\n> ") == f"w8\n{second}"
        terminal.type("\x04")
        assert process.wait(60) == 0


def test_ctrl_c_stops_an_answer(run):
    """The part that was shown stays in the conversation; an empty line ends it."""
    new = 4000
    whole = answer_to(run, "w14 w7 <mask> w19", new)
    assert len(whole.split()) == new
    with conversation(run, f"--max_new_tokens={new}") as (terminal, process):
        terminal.read("> ")
        terminal.type("w7\n")
        assert terminal.read("w7\n").endswith("") and terminal.read(whole[:20]) == ""
        terminal.type("\x03")
        rest = re.sub(r"\^C", "", terminal.read("\n> "))
        assert whole.startswith(whole[:20] + rest) and len(rest) < len(whole) - 20
        assert process.poll() is None
        terminal.type("\n")
        assert process.wait(60) == 0


def test_sigterm_ends_a_conversation_on_a_terminal(run):
    with conversation(run) as (terminal, process):
        terminal.read("> ")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM
