"""Errors that are a user's to mend, and the way an entry reports them."""

import atexit
import gc
import os
import sys
from contextlib import suppress
from typing import Callable, List


class TextmillError(Exception):
    """One paragraph that names the value, the place, the cause and the remedy."""

    exit_code = 1


class DataError(TextmillError):
    """The data or the run failed: exit code 1."""


class LeftRunning(DataError):
    """The run failed while threads of it are still at work: the process ends without them."""


class UsageError(TextmillError):
    """The command was wrong: exit code 2."""

    exit_code = 2


def _refuse_odd_bytes(argument: str) -> None:
    """A path that is not UTF-8 could neither be printed nor written into a report."""
    try:
        argument.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the argument {argument!r} is not UTF-8: rename what it names") from error


INTERRUPTED = 130  # 128 + SIGINT, as shells report it


def _leave_at_once(code: int) -> None:
    """Ends the process, though threads of the run are still at work.

    Taking the interpreter down under a thread that is in compiled code lets it abort (SIGABRT).
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def run_entry(main: Callable[[List[str]], None]) -> None:
    """Runs `main(argv)` and leaves the process with its exit code.

    0 done, 1 data or run failed, 2 wrong usage, 130 interrupted. A user's mistake is printed as one
    paragraph without a traceback; any other exception is a defect and keeps its traceback.
    """
    try:
        for argument in sys.argv[1:]:
            _refuse_odd_bytes(argument)
        main(sys.argv[1:])
    except TextmillError as error:
        print(f"error: {error}", file=sys.stderr)
        if isinstance(error, LeftRunning):
            _leave_at_once(error.exit_code)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        _leave_at_once(INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output (head, less) has gone: nothing more to say, and nothing failed.
        sys.stderr.close()
        sys.exit(0)
    finally:
        gc.freeze()  # the process ends with it: looking for garbage in all modules takes 0.3 s
