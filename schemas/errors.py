"""Errors that are a user's to mend, and the way an entry reports them."""

import atexit
import errno
import gc
import os
import signal
import sys
import traceback
from contextlib import suppress
from typing import Callable, List, NoReturn

from schemas.terminal import say


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


_ACCESS = "it is another user's: ask for leave (chmod -R a+rX), or run as who has it"
_REMEDIES = {
    errno.EACCES: _ACCESS,
    errno.EPERM: _ACCESS,
    errno.EROFS: "the disk takes nothing: give another place",
    errno.ENOSPC: "free some space, or give another place",
    errno.EDQUOT: "free some space, or give another place",
    errno.EIO: "the disk, or the network to it, fails: copy it elsewhere",
    errno.EMFILE: "allow more open files (ulimit -n)",
    errno.ENFILE: "too many files are open on this machine",
}


def refused(path: str, error: OSError) -> DataError:
    """What is said where the system does not give a file, or takes none.

    Args:
      path: what was opened, read or written.
      error: what the system said.
    """
    remedy = _REMEDIES.get(error.errno or 0, "look at what is there")
    return DataError(f"{path}: {error.strerror or error}; {remedy}")


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


def _end(error: Exception) -> NoReturn:
    """Says what was wrong and leaves with the exit code.

    A user's mistake is one paragraph without a traceback, and so is what a disk or memory refuses;
    any other exception is a defect and keeps its traceback.
    """
    # It imports the errors of this file.
    from schemas.memory import shortage_of

    short = shortage_of(error)
    if short is None and isinstance(error, OSError) and error.errno in _REMEDIES:
        error = refused(str(error.filename or "a file"), error)
    known = short or error
    if not isinstance(known, TextmillError):
        say(traceback.format_exc().rstrip("\n"), sys.stderr)
        sys.exit(1)
    say(f"error: {known}", sys.stderr)
    if short or isinstance(error, LeftRunning):  # threads may hang that found no memory
        _leave_at_once(known.exit_code)
    sys.exit(known.exit_code)


def _prepare_end() -> None:
    """Makes the end of the interpreter quick, and quiet: there Ctrl-C would show a traceback."""
    gc.freeze()  # looking for garbage in all modules takes 0.3 s
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def run_entry(main: Callable[[List[str]], None]) -> None:
    """Runs `main(argv)` and leaves the process with its exit code.

    0 done, 1 data or run failed, 2 wrong usage, 130 interrupted. What is printed of files shows
    its control characters.
    """
    try:
        for argument in sys.argv[1:]:
            _refuse_odd_bytes(argument)
        main(sys.argv[1:])
    except KeyboardInterrupt:
        say("interrupted", sys.stderr)
        _leave_at_once(INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output (head, less) has gone: nothing more to say, and nothing failed.
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        _end(error)
    finally:
        _prepare_end()
