"""Errors that are a user's to mend."""

import errno


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
# Of what the system refuses and a user can mend.
REMEDIES = {
    errno.EACCES: _ACCESS,
    errno.EPERM: _ACCESS,
    errno.EROFS: "the disk takes nothing: give another place",
    errno.ENOSPC: "free some space, or give another place",
    errno.EDQUOT: "free some space, or give another place",
    errno.EIO: "the disk, or the network to it, fails: copy it elsewhere",
    errno.EMFILE: "allow more open files (ulimit -n)",
    errno.ENFILE: "too many files are open on this machine",
}


def one_line(error: BaseException) -> str:
    """What a library says in several lines."""
    return " ".join(str(error).split()) or type(error).__name__


def describe_refusal(path: str, error: OSError) -> DataError:
    """What is said where the system does not give a file, or takes none.

    Args:
      path: what was opened, read or written.
      error: what the system said.
    """
    remedy = REMEDIES.get(error.errno or 0, "look at what is there")
    return DataError(f"{path}: {error.strerror or error}; {remedy}")
