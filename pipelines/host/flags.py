"""Parses a command line, except for the flags of a task."""

from typing import Any

import tyro

from schemas.commands.help import Help, command_name, report_parse_errors, show_help


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
    report_parse_errors(options)
    return tyro.cli(options, prog=command_name(page.module), args=argv, use_underscores=True, **how)
