"""How an entry starts, reports errors and ends. Python 3.8 syntax.

A lack of memory shows in many ways: MemoryError, an import that fails, a thread that cannot start;
and in some that nobody can catch: C++ aborts the process, or waits for a thread that never came.
Where `ulimit -v` allows the process few addresses, an entry refuses to start.
"""

import atexit
import gc
import os
import re
import resource
import select
import signal
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from types import TracebackType
from typing import Any, Callable, List, NoReturn, Optional, Set, Type

from schemas.commands.terminal import say
from schemas.errors import (
    REMEDIES,
    DataError,
    LeftRunning,
    TextmillError,
    UsageError,
    describe_refusal,
)

INTERRUPTED, TERMINATED = 130, 143  # 128 + SIGINT and SIGTERM, as shells report them
_SIGNS = re.compile(
    r"MemoryError|failed to map segment|cannot allocate memory|can't start new thread|bad_alloc"
    r"|out of memory allocating|global thread pool has not been initialized",
    re.IGNORECASE,
)
_LONGEST = 200  # characters of what a library says
_OURS = ("pipelines", "schemas", "tests", "trainers")


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
    if line := describe_missing(error):
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


def import_later(name: str) -> Callable[..., Any]:
    """A function whose module is imported by its first call: --help and refusals pay no framework.

    import_later("trainers.on_tf.tf_encoder:make_program")(plan, task) imports TensorFlow.
    """
    module, _, function = name.partition(":")
    return lambda *args, **named: getattr(import_module(module), function)(*args, **named)


def want_addresses(gigabytes: float, what: str) -> None:
    """Refuses to start where the process may not have as many addresses as it takes.

    Args:
      gigabytes: (1e9 bytes) that the smallest run takes: most are for code and for threads, and
        never become memory.
      what: starts.

    Raises:
      DataError: `ulimit -v` allows fewer.
    """
    limit = _limit()
    if limit is not None and limit < gigabytes * 1e9:
        raise DataError(
            f"{what} takes at least {gigabytes:g} GB of addresses, and `ulimit -v` allows "
            f"{limit / 1e9:.2f} GB: allow more (`ulimit -v unlimited`) and run again"
        )


def shortage_of(error: Optional[BaseException]) -> Optional[DataError]:
    """What is said of an exception that arose because memory is short; None of any other."""
    seen: Set[int] = set()
    while error is not None and id(error) not in seen:  # one may be raised from itself
        seen.add(id(error))
        kind = "MemoryError" if isinstance(error, MemoryError) else type(error).__name__
        told = _find_shortage(f"{kind}: {error}")
        if told is not None:
            return told
        error = error.__cause__ or error.__context__
    return None


def _find_shortage(text: str) -> Optional[DataError]:
    """The same of the text of a traceback, which is all that comes from a worker."""
    signs = (line.strip(" :") for line in reversed(text.splitlines()) if _SIGNS.search(line))
    told = next(signs, None)
    if told is None:
        return None
    limit = _limit()
    allowed = "" if limit is None else f", of which `ulimit -v` allows {limit / 1e9:.2f} GB"
    return DataError(
        f"memory is short{allowed} ({told[:_LONGEST]}): give the process more, or less to do: "
        "fewer workers, smaller batches or shards; then run the same command again"
    )


def _limit() -> Optional[int]:
    """Bytes of addresses that this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def name_missing_packages() -> None:
    """Has `python -m` of a command end in one line if a package is missing, or after Ctrl-C.

    Modules are imported before `run_entry` handles errors. While Python looks for the module of
    `-m`, the first argument is "-m", so that other programs and notebooks keep their traceback.
    """
    if sys.argv[:1] == ["-m"]:
        sys.excepthook = _report


def describe_missing(error: BaseException) -> Optional[str]:
    """What to install, if a package is missing that is not ours; else None."""
    name = getattr(error, "name", None) or ""
    package = name.partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or not package:
        return None
    if package in _OURS and package != name:  # the package is there, and a module of it is not
        return None
    command = os.path.splitext(os.path.basename(sys.argv[0]))[0]  # "textmill train flax-clm" too
    extra = re.split("[_-]", command.split()[-1])[0]
    if extra not in ("flax", "tf", "poptorch"):
        extra = "pipelines"
    return (
        f"error: {command} needs the package {package}, which is not installed here: pip install "
        f"'/path/to/textmill[{extra}]'"
    )


def _report(
    kind: Type[BaseException], error: BaseException, trace: Optional[TracebackType]
) -> None:
    line = "interrupted" if kind is KeyboardInterrupt else describe_missing(error)
    if line is None:
        sys.__excepthook__(kind, error, trace)
    else:
        say(line, sys.stderr)
