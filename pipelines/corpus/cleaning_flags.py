"""Flags that clean text, where they are given to a command that takes a finished corpus."""

import shlex
from collections.abc import Iterable

from pipelines.corpus.options import CorpusOptions
from schemas.commands.flag_file import kinds_of
from schemas.errors import UsageError


def refuse_cleaning(arguments: Iterable[str], command: str) -> None:
    """Refuses a flag that build_corpus has and the command does not.

    Args:
      arguments: that the command's own parser left over.
      command: its name: build_shards.

    Raises:
      UsageError: names the flag, and the command that has it.
    """
    known = kinds_of(CorpusOptions)
    for argument in arguments:
        name = argument.partition("=")[0].removeprefix("--").removeprefix("no_").replace("-", "_")
        if argument.startswith("--") and name in known:
            raise UsageError(
                f"--{name} is a flag of build_corpus: python -m pipelines.build_corpus "
                f"{shlex.quote(argument)} ... makes a corpus, which {command} takes as --input"
            )
