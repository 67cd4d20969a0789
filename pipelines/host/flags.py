"""Parses a command line, except for the flags of a task."""

from typing import Any

import tyro

from textmill.schemas.commands.help import Help, report_parse_errors, show_help
from textmill.schemas.commands.terminal import command_name


def parse_flags(argv: list[str], page: Help, options: Any, **how: Any) -> Any:
    """The options of a command line, or its help.

    Args:
      argv: of the command.
      page: what help shows besides flags.
      options: the dataclass of the command's flags.
      **how: more arguments of `tyro.cli`, such as return_unknown_args.

    Raises:
      SystemExit: 0, after help.
      UsageError: a flag or a value is wrong.
    """
    show_help(argv, page, options)
    report_parse_errors(argv, options)
    return tyro.cli(options, prog=command_name(page.module), args=argv, use_underscores=True, **how)
