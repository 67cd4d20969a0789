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


class OfField(TextmillError):
    """An error about the value of a field of a command's options.

    Attributes:
      field: name of the field; "" for a value that no field holds yet.
      value: the value, whose `str` is its text on the command line, or a tuple of them.
      reason: the cause, or what to give.
    """

    def __init__(self, field: str, value: object, reason: str):
        super().__init__(field, value, reason)
        self.field, self.value, self.reason = field, value, reason

    def __str__(self) -> str:
        """The message of a command: --field=value: reason."""
        return f"--{self.in_python()}" if self.field else self.in_python()

    def in_python(self) -> str:
        """The message for a caller of Python: field=value: reason."""
        field = f"{self.field}=" if self.field else ""
        value = ",".join(map(str, self.value)) if type(self.value) is tuple else self.value
        return f"{field}{value}: {self.reason}"

    def of(self, field: str) -> "OfField":
        """The same error about the value of a field."""
        return type(self)(field, self.value, self.reason)


class FieldError(OfField, UsageError, ValueError):
    """A field of a command's options cannot have this value.

    A ValueError, so that tyro adds the name of the field where the value alone is parsed.
    """


class FieldDataError(OfField, DataError):
    """A file that a field of a command's options names does not exist, or cannot be read."""


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
