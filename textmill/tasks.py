"""The tasks of build_shards with their settings: Clm(max_length=1024), Mlm(mask_rate=0.2)."""

from __future__ import annotations

from typing import Any, ClassVar

from textmill.keywords import Keywords
from textmill.schemas.commands.options import parse_options
from textmill.schemas.commands.values import take
from textmill.schemas.errors import FieldError

_OF_ROWS = "max_length"  # a flag of build_shards, whose default depends on the task


class Task:
    """A task with its settings, which are the flags of the task and max_length.

    Attributes:
      name: of the task: span_corruption.
      settings: the keywords.
    """

    name: ClassVar[str]

    def __init__(self, **settings: Any):
        """Checks the settings.

        Raises:
          UsageError: the task has no such setting, or it cannot have this value.
        """
        self.settings = settings
        keywords = Keywords(self.name, self.options, "pipelines")
        keywords.call(lambda: self._check(keywords))

    @classmethod
    def options(cls) -> tuple[type]:
        """The dataclass of the task's flags."""
        # The pipelines' packages; a host of trainers imports this module without them.
        from textmill.pipelines.tasks.task import task_class

        return (task_class(cls.name),)

    def _check(self, keywords: Keywords) -> None:
        from textmill.pipelines.shards.options import HELP, check_max_length  # as in `options`

        argv, given = keywords.given(self.settings)
        if length := given.pop(_OF_ROWS, None):
            try:
                check_max_length(take(int, length.value))
            except FieldError as error:
                raise length.error(error, _OF_ROWS) from error
        parse_options(argv, HELP, *self.options(), given)

    def __repr__(self) -> str:
        """As it was made: Clm(max_length=1024)."""
        settings = (f"{name}={value!r}" for name, value in self.settings.items())
        return f"{type(self).__name__}({', '.join(settings)})"


class Mlm(Task):
    """Rows for encoders, which predict masked tokens."""

    name = "mlm"


class Clm(Task):
    """Rows for decoders, which predict the next token."""

    name = "clm"


class Chat(Task):
    """Rows of conversations for decoders, in a chat template."""

    name = "chat"


class Classification(Task):
    """Rows of labelled texts."""

    name = "classification"


class Qa(Task):
    """Rows of questions, contexts and answers."""

    name = "qa"


class SpanCorruption(Task):
    """Rows for encoder-decoders, which predict removed spans."""

    name = "span_corruption"


class Tokens(Task):
    """Tokenized documents, for trainers that pack rows themselves."""

    name = "tokens"
