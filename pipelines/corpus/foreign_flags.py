"""Names the command that a flag of build_corpus belongs to."""

import shlex
from collections.abc import Iterable

from textmill.pipelines.corpus.options import HELP, CorpusOptions
from textmill.schemas.commands.options import fields_of
from textmill.schemas.commands.terminal import command_in_message
from textmill.schemas.errors import UsageError, flag


def refuse_cleaning(arguments: Iterable[str], command: str) -> None:
    """Rejects flags of build_corpus among the arguments that another command does not know.

    Raises:
      UsageError: an argument is a flag of build_corpus; shows how to use it.
    """
    known = fields_of(CorpusOptions)
    for argument in arguments:
        name = argument.partition("=")[0].removeprefix("--").removeprefix("no_").replace("-", "_")
        if argument.startswith("--") and name in known:
            raise UsageError(
                f"{flag(name)} is a flag of build_corpus: {command_in_message(HELP.module)} "
                f"{shlex.quote(argument)} ... builds a corpus, which {command} reads as "
                f"{flag('input')}"
            )
