"""The way an entry reports errors, and ends."""

import atexit
import gc
import os
import re
import select
import signal
import sys
import traceback
from contextlib import suppress
from typing import Callable, List, NoReturn

from schemas.commands.memory import shortage_of
from schemas.commands.missing import line_of
from schemas.commands.terminal import say
from schemas.errors import (
    REMEDIES,
    DataError,
    LeftRunning,
    TextmillError,
    UsageError,
    describe_refusal,
)


def _refuse_odd_paths(argument: str) -> None:
    """Refuses two kinds of argument that no command can use as they are meant.

    A path that is not UTF-8 could neither be printed nor written into a report. Shells expand ~ at
    the start of a word only: `--output=~/run` would be made in a folder of that name.
    """
    if re.match(r"--\w+=~(/|$)", argument):
        given = argument.replace("~", "$HOME", 1)
        raise UsageError(f"{argument}: shells leave ~ as it is behind =; write {given}")
    try:
        argument.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the argument {argument!r} is not UTF-8: rename what it names") from error


INTERRUPTED, TERMINATED = 130, 143  # 128 + SIGINT and SIGTERM, as shells report them


def _leave_at_once(code: int) -> None:
    """Ends the process, though threads of the run are still at work.

    Taking the interpreter down under a thread that is in compiled code lets it abort (SIGABRT).
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _end(error: Exception) -> NoReturn:
    """Says what was wrong and leaves with the exit code.

    A user's mistake is one paragraph without a traceback, and so is what a disk or memory refuses;
    any other exception is a defect and keeps its traceback.
    """
    short = shortage_of(error)
    if short is None and isinstance(error, OSError) and error.errno in REMEDIES:
        error = describe_refusal(str(error.filename or "a file"), error)
    known = short or error
    if line := line_of(error):
        say(line, sys.stderr)
        sys.exit(1)
    if not isinstance(known, TextmillError):
        say(traceback.format_exc().rstrip("\n"), sys.stderr)
        sys.exit(1)
    with suppress(OSError):  # of a terminal that is gone
        say(f"error: {known}", sys.stderr)
    if short or isinstance(error, LeftRunning):  # threads may hang that found no memory
        _leave_at_once(known.exit_code)
    sys.exit(known.exit_code)


def _open_streams() -> None:
    """Opens what the shell closed (`2>&-`): else a file of the run would get its number."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, open(number, "w", closefd=False))


def _is_unread(number: int) -> bool:
    """Whether nobody reads any more what is written to a file of this process."""
    poll = select.poll()
    poll.register(number, 0)
    return bool(poll.poll(0))


def _prepare_end() -> None:
    """Makes the end of the interpreter quick, and quiet: there Ctrl-C would show a traceback."""
    if "triton" not in sys.modules:  # PyTorch's, which prints thirty lines of what is not collected
        gc.freeze()  # looking for garbage in all modules takes 0.3 s
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def run_entry(main: Callable[[List[str]], None]) -> None:
    """Runs `main(argv)` and leaves the process with its exit code.

    0 done, 1 data or run failed, 2 wrong usage, 130 interrupted. What is printed of files shows
    its control characters.
    """
    _open_streams()
    try:
        for argument in sys.argv[1:]:
            _refuse_odd_paths(argument)
        main(sys.argv[1:])
    except KeyboardInterrupt as stop:
        say(": ".join(["interrupted", *map(str, stop.args)]), sys.stderr)
        _leave_at_once(INTERRUPTED)
    except SystemExit as stop:  # a run that has saved what it did before it leaves
        if stop.code in (INTERRUPTED, TERMINATED):
            _leave_at_once(stop.code)
        raise
    except BrokenPipeError as error:
        if not _is_unread(1):
            _end(DataError(f"what this process wrote to has gone ({error}): run again"))
        # The reader of our output (head, less) has gone: nothing more to say, and nothing failed.
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        _end(error)
    finally:
        _prepare_end()
