"""Points users of other commands to build_corpus, which owns the flags that clean text."""

import shlex
from collections.abc import Iterable

from pipelines.corpus.options import CorpusOptions
from schemas.commands.flag_file import kinds_of
from schemas.errors import UsageError


def refuse_cleaning(arguments: Iterable[str], command: str) -> None:
    """Rejects flags that only build_corpus has.

    Args:
      arguments: arguments that the command's own parser did not recognize.
      command: name of the command, such as build_shards.

    Raises:
      UsageError: an argument is a flag of build_corpus; shows how to use it.
    """
    known = kinds_of(CorpusOptions)
    for argument in arguments:
        name = argument.partition("=")[0].removeprefix("--").removeprefix("no_").replace("-", "_")
        if argument.startswith("--") and name in known:
            raise UsageError(
                f"--{name} is a flag of build_corpus: python -m pipelines.build_corpus "
                f"{shlex.quote(argument)} ... builds a corpus, which {command} reads as --input"
            )
