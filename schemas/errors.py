"""Errors that users can correct."""

import errno


class TextmillError(Exception):
    """The message is one paragraph with the value, its location, the cause and the remedy."""

    exit_code = 1


class DataError(TextmillError):
    """The data or the run failed: exit code 1."""


class LeftRunning(DataError):
    """The run failed while some of its threads still work; the process ends without them."""


class UsageError(TextmillError):
    """The command was wrong: exit code 2."""

    exit_code = 2


_ACCESS = "ask its owner for permission (chmod -R a+rX), or run as its owner"
# Errors of the system that a user can correct.
REMEDIES = {
    errno.EACCES: _ACCESS,
    errno.EPERM: _ACCESS,
    errno.EROFS: "the disk is read-only: use another directory",
    errno.ENOSPC: "free some space, or use another directory",
    errno.EDQUOT: "free some space, or use another directory",
    errno.EIO: "the disk, or the network to it, fails: copy the file elsewhere",
    errno.EMFILE: "allow more open files (ulimit -n)",
    errno.ENFILE: "too many files are open on this machine",
}


def one_line(error: BaseException) -> str:
    """The message of an exception in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def describe_refusal(path: str, error: OSError) -> DataError:
    """The error for a file that the system cannot open, read or write.

    Args:
      path: the file.
      error: the error of the system.
    """
    remedy = REMEDIES.get(error.errno or 0, "check this path")
    return DataError(f"{path}: {error.strerror or error}; {remedy}")
