"""The commands that run a Beam pipeline, or find its output.

Each is a `Builder` in its entry, such as pipelines/build_corpus.py; functions of `textmill` use it.
"""

import gc
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from textmill.pipelines.runners.launch import check_arguments, check_runner, with_beam
from textmill.pipelines.runners.result import Result, Say
from textmill.pipelines.runtime.imports import block_pandas
from textmill.pipelines.runtime.memory import keep_freed_memory
from textmill.pipelines.runtime.s3_flags import take_s3_flags
from textmill.schemas.commands.entry import import_later, require_address_space
from textmill.schemas.commands.flag_file import read_config
from textmill.schemas.commands.help import Help
from textmill.schemas.commands.options import Given, parse_known

# Slow imports, which --help does not need.
make_console = import_later("textmill.pipelines.runners.console:Console")
refuse_cleaning = import_later("textmill.pipelines.corpus.foreign_flags:refuse_cleaning")
# The collector looks for garbage once there are so many more objects: imports and pipelines make
# 200,000 of them, none of which is garbage, and searching them takes 0.03 s.
_OBJECTS = 100_000


@dataclass(frozen=True)
class Builder:
    """A command that builds something.

    Attributes:
      help: of the command.
      options: the dataclass of its flags, with `dry_run` and `preflight`.
      gigabytes: of addresses that the smallest run needs.
      run: builds or finds the output: `run(options, beam_arguments, say=say)` -> `Result`;
        None if it left a job in a template of Dataflow.
      plan: estimates what `run` would need, of the same arguments.
      print_result: prints what `run` returned: `print_result(result, say)`.
      print_plan: prints what `plan` returned.
      preflight: checks what could fail on the runner; takes what `run` takes.
      parse_own: parses its command line, see `parse_known`.
      list_more: returns the dataclasses of the flags that only some runs have.
    """

    help: Help
    options: Any
    gigabytes: float
    run: Callable[..., Result[Any] | None]
    plan: Callable[..., Any]
    print_result: Callable[..., None]
    print_plan: Callable[..., None]
    preflight: Callable[..., None]
    parse_own: Callable[..., tuple[Any, list[str]]] = parse_known
    list_more: Callable[[], Iterable[type]] = tuple

    @property
    def name(self) -> str:
        """The name of the command: build_corpus."""
        return self.help.module.rpartition(".")[2]

    def kinds(self) -> tuple[type, ...]:
        """The dataclasses of all flags that a run can have."""
        return (self.options, *self.list_more())

    def main(self, argv: list[str]) -> None:
        """Parses the command line, and builds or finds the output."""
        # Here, since the process of `textmill`'s functions is the user's.
        gc.set_threshold(_OBJECTS)
        keep_freed_memory()
        options, beam_arguments = self.parse(argv)
        say = make_console(soft_wrap=True).print
        result = self.start(options, beam_arguments, say)
        if result is not None:
            self.print_result(result, say)

    def parse(
        self, argv: list[str], given: Mapping[str, Given] | None = None
    ) -> tuple[Any, list[str]]:
        """The options, and Beam's flags.

        Args:
          argv: of the command.
          given: values of Python by name of the flag. They win over a file of flags.

        Raises:
          UsageError: a flag or a value is wrong, or the runner cannot run.
        """

        def check(arguments: list[str], names: Iterable[str]) -> None:
            require_address_space(self.gigabytes, self.name)
            refuse_cleaning(arguments, self.name)
            check_arguments(arguments, names)

        argv, of_file = read_config(argv, self.name, self.kinds)
        given = {**of_file, **(given or {})}
        options, beam = self.parse_own(argv, self.help, self.options, given, check_others=check)
        require_address_space(self.gigabytes, self.name)
        if not options.preflight:
            check_runner(beam)
        return options, beam

    def start(self, options: Any, beam_arguments: list[str], say: Say) -> Result[Any] | None:
        """Builds or finds the output; None if there is no result.

        The options may request a plan or a check only, and a template's job has not begun.
        """
        take_s3_flags(beam_arguments)
        block_pandas()
        if options.preflight:
            with_beam()
            self.preflight(options, beam_arguments, say=say)
        elif options.dry_run:
            self.print_plan(self.plan(options, beam_arguments, say=say), say)
        else:
            return self.run(options, beam_arguments, say=say)
        return None
