"""How an entry starts, reports errors and ends. Python 3.8 syntax.

Memory that runs short shows as MemoryError, as an import that fails or as a thread that cannot
start. It may also do what Python cannot catch: C++ aborts the process, or waits for a thread that
never started. So an entry refuses to start if `ulimit -v` allows too few addresses.
"""

from __future__ import annotations

import atexit
import errno
import gc
import io
import os
import re
import resource
import select
import signal
import sys
import threading
import traceback
from contextlib import contextmanager, suppress
from importlib import import_module
from operator import attrgetter
from types import FrameType, TracebackType
from typing import Any, Callable, Iterator, NoReturn

from textmill.schemas.commands.terminal import say
from textmill.schemas.errors import (
    REMEDIES,
    DataError,
    LeftRunningError,
    TextmillError,
    UsageError,
    as_typed,
    describe_refusal,
    either,
)

INTERRUPTED, TERMINATED = 130, 143  # 128 + SIGINT and SIGTERM, as shells report them
_SIGNS = re.compile(
    r"MemoryError|failed to map segment|cannot allocate memory|can't start new thread|bad_alloc"
    r"|out of memory allocating|global thread pool has not been initialized",
    re.IGNORECASE,
)
_MANY_FILES = os.strerror(errno.EMFILE)
_STDOUT = "standard output"
_LONGEST = 200  # characters of a library's message
_OURS = ("pipelines", "schemas", "tests", "textmill", "trainers")
_is_command = False


class Terminated(KeyboardInterrupt):
    """SIGTERM, in a block of `sigterm_as_interrupt`."""


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Raises Terminated on SIGTERM, so that the block cleans up as after Ctrl-C.

    Does nothing outside the main thread, where Python cannot catch signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise Terminated

    usual = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, usual or signal.SIG_DFL)


def refuse_odd_paths(typed: str) -> None:
    """Refuses three kinds of argument that no command can use as the user means them.

    A path that is not UTF-8 can be neither printed nor written into a report. Shells expand ~ only
    at the start of a word: `--output=~/run` would create a folder named `~`, and `--output=gs:/run`
    one named `gs:`.
    """
    if re.match(r"--\w+=~(/|$)", typed):
        given = as_typed(typed.replace("~", "$HOME", 1))
        raise UsageError(f"{as_typed(typed)}: shells do not expand ~ after =; write {given}")
    if re.match(r"--\w+=(gs|s3):/(?!/)", typed):
        raise UsageError(f"{as_typed(typed)}: write {as_typed(typed.replace(':/', '://', 1))}")
    try:
        typed.encode()
    except UnicodeEncodeError as error:
        shown = either(repr(typed), repr(typed.lstrip("-")))
        raise UsageError(f"the argument {shown} is not UTF-8: rename the file") from error


def leave_at_once(code: int) -> None:
    """Ends the process while threads of the run are still at work.

    An interpreter that shuts down under a thread in compiled code may abort (SIGABRT).
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def correctable(error: Exception) -> TextmillError | None:
    """The error to report for a user's mistake, a full disk or short memory; None for a defect."""
    short = out_of_memory_error(error)
    if short is not None:
        return short
    if _MANY_FILES in str(error) and not isinstance(error, (OSError, TextmillError)):
        error = OSError(errno.EMFILE, _MANY_FILES)  # of a library that could not be loaded
    if isinstance(error, OSError) and error.errno in REMEDIES:
        return describe_refusal(str(error.filename or "a file"), error)
    return error if isinstance(error, TextmillError) else None


def _end(error: Exception) -> NoReturn:
    """Reports an error and leaves with its exit code.

    An error that a user can correct is one paragraph without a traceback. Any other exception is
    a defect and keeps its traceback.
    """
    if line := describe_missing(error):
        say(f"error: {line}", sys.stderr)
        sys.exit(1)
    known = correctable(error)
    if known is None:
        say(traceback.format_exc().rstrip("\n"), sys.stderr)
        sys.exit(1)
    with suppress(OSError):  # the terminal is gone
        say(f"error: {known}", sys.stderr)
    # Threads without memory may hang, and standard output cannot be flushed.
    is_stdout = isinstance(error, OSError) and error.filename == _STDOUT
    if out_of_memory_error(error) or isinstance(error, LeftRunningError) or is_stdout:
        leave_at_once(known.exit_code)
    sys.exit(known.exit_code)


class _Output(io.TextIOWrapper):
    """Standard output or standard error; errors of writing name it."""

    def __init__(self, stream: io.TextIOWrapper):
        super().__init__(
            stream.buffer,
            stream.encoding,
            "backslashreplace",
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        self._replaced = stream  # would close the buffer if it were garbage
        self._words = {1: _STDOUT, 2: "standard error"}.get(stream.fileno(), stream.name)

    def write(self, text: str) -> int:
        """Writes text."""
        return self._named(lambda: super(_Output, self).write(text))

    def flush(self) -> None:
        """Writes what is buffered."""
        self._named(super().flush)

    def _named(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except OSError as error:
            error.filename = self._words
            raise


def _open_streams() -> None:
    """Opens streams that the shell closed (`2>&-`), before a file of the run gets their number.

    Characters that the terminal's encoding lacks (LANG=de_DE.ISO-8859-1) are printed as escapes.
    """
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, open(number, "w", closefd=False))
        stream = getattr(sys, name)
        # A notebook's or a test's stream belongs to it.
        if isinstance(stream, io.TextIOWrapper) and stream in (sys.__stdout__, sys.__stderr__):
            setattr(sys, name, _Output(stream))


def _prepare_end() -> None:
    """Makes the interpreter end fast, and without a traceback after Ctrl-C."""
    if "triton" not in sys.modules:  # PyTorch prints thirty lines about uncollected objects
        gc.freeze()  # collecting garbage in all modules takes 0.3 s
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def run_entry(main: Callable[[list[str]], None]) -> None:
    """Runs `main(argv)` and leaves the process with its exit code.

    0: done. 1: the data or the run failed. 2: wrong usage. 130: interrupted. 143: terminated.
    Control characters from files are printed as escapes.
    """
    global _is_command
    _is_command = True
    _open_streams()
    try:
        for typed in sys.argv[1:]:
            refuse_odd_paths(typed)
        try:
            main(sys.argv[1:])
        except SystemExit as stop:
            if stop.code in (INTERRUPTED, TERMINATED):  # raised by a run after it saved its work
                leave_at_once(stop.code)
            sys.stdout.flush()  # of --help, for example
            raise
        sys.stdout.flush()
    except KeyboardInterrupt as stop:
        is_terminated = isinstance(stop, Terminated)
        word = "terminated" if is_terminated else "interrupted"
        say(": ".join([word, *map(str, stop.args)]), sys.stderr)
        leave_at_once(TERMINATED if is_terminated else INTERRUPTED)
    except BrokenPipeError as error:
        poll = select.poll()
        poll.register(1, 0)
        if not poll.poll(0):
            _end(DataError(f"a process that this one wrote to has ended ({error}): run again"))
        # The reader of our output (head, less) has ended: that is not a failure.
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        _end(error)
    finally:
        _prepare_end()


def is_command() -> bool:
    """Whether this process is a command's own: `run_entry` has begun. Else it is the user's."""
    return _is_command


def import_later(name: str) -> Callable[..., Any]:
    """A function whose first call imports its module, so that --help loads no framework.

    import_later("textmill.trainers.on_tf.tf_encoder:make_program")(plan, task) imports TensorFlow.
    """
    module, _, function = name.partition(":")
    find = attrgetter(function)  # which may be a method: HTMLTree.parse
    return lambda *args, **named: find(import_module(module))(*args, **named)


def require_address_space(gigabytes: float, what: str) -> None:
    """Refuses to start if the process may not have as many addresses as it needs.

    Args:
      gigabytes: (1e9 bytes) that the smallest run needs. Most of these addresses are for code and
        threads, and never become memory.
      what: the command or framework that starts.

    Raises:
      DataError: `ulimit -v` allows fewer.
    """
    limit = _limit()
    if limit is not None and limit < gigabytes * 1e9:
        raise DataError(
            f"{what} needs at least {gigabytes:g} GB of addresses, and `ulimit -v` allows "
            f"{limit / 1e9:.2f} GB: raise the limit (`ulimit -v unlimited`) and run again"
        )


def out_of_memory_error(error: BaseException | None) -> DataError | None:
    """The error to report if memory ran short; None if the exception has a different cause."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # one may be raised from itself
        seen.add(id(error))
        kind = "MemoryError" if isinstance(error, MemoryError) else type(error).__name__
        told = _find_shortage(f"{kind}: {error}")
        if told is not None:
            return told
        error = error.__cause__ or error.__context__
    return None


def _find_shortage(text: str) -> DataError | None:
    """The same for the text of a traceback, which is all that a worker sends."""
    signs = (line.strip(" :") for line in reversed(text.splitlines()) if _SIGNS.search(line))
    told = next(signs, None)
    if told is None:
        return None
    limit = _limit()
    allowed = "" if limit is None else f", of which `ulimit -v` allows {limit / 1e9:.2f} GB"
    return DataError(
        f"memory is short{allowed} ({told[:_LONGEST]}): give the process more memory, or use "
        "fewer workers, smaller batches or smaller shards; then run the same command again"
    )


def _limit() -> int | None:
    """Bytes of addresses that this process may have; None for no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def rest_idle_threads() -> None:
    """Lets the threads of numpy's OpenBLAS sleep after 16 cycles without work instead of 2**26.

    They cost 0.1 s of processor time when numpy is imported. Call it before that, in a command.
    """
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")


def report_missing_packages() -> None:
    """Has `python -m` of a command end in one line if a package is missing, or after Ctrl-C.

    Modules are imported before `run_entry` handles errors.
    """
    sys.excepthook = _report


def describe_missing(error: BaseException, user: str = "", extra: str = "") -> str | None:
    """The line that names the extra to install if a package is missing; else None.

    Args:
      error: of an import.
      user: what needs the package. Default: the command that runs.
      extra: of setup.py, which has the package. Default: that of the command.
    """
    name = getattr(error, "name", None) or ""
    package = name.partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or not package:
        return None
    if package in _OURS and package != name:  # the package is there, and a module of it is not
        return None
    user = user or os.path.splitext(os.path.basename(sys.argv[0]))[0]  # "textmill train flax-clm"
    extra = extra or re.split("[_-]", user.split()[-1])[0]
    if extra not in ("flax", "tf", "poptorch"):
        extra = "pipelines"
    return (
        f"{user} needs the package {package}, which is not installed here: pip install "
        f"'/path/to/textmill[{extra}]'"
    )


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    line = describe_missing(error)
    if kind is KeyboardInterrupt:
        say("interrupted", sys.stderr)
    elif line is not None:
        say(f"error: {line}", sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)
