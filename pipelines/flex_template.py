"""Builds a Flex Template of Dataflow: `python -m pipelines.flex_template --help`."""

from importlib import import_module

from textmill.pipelines.templates.options import HELP, TemplateOptions
from textmill.schemas.commands.entry import import_later, run_entry
from textmill.schemas.commands.options import parse_options
from textmill.schemas.commands.terminal import say

# Slow imports, which --help does not need.
build_template = import_later("textmill.pipelines.templates.build:build_template")
command_line = import_later("textmill.pipelines.templates.parameters:command_line")
template_metadata = import_later("textmill.pipelines.templates.parameters:template_metadata")


def main(argv: list[str]) -> None:
    """Builds the template of a command line, or prints what would be run."""
    options = parse_options(argv, HELP, TemplateOptions)
    builder = _builder(options.command)
    build_template(options, template_metadata(builder.help, builder.kinds()), say)


def launch(command: str, image: str, argv: list[str]) -> None:
    """Runs a command as the launcher of a template does.

    Args:
      command: build_corpus or build_shards.
      image: of the workers, unless `argv` names another one.
      argv: --NAME=TEXT of each parameter, and Beam's flags.
    """
    builder = _builder(command)
    argv = command_line(argv, builder.kinds())
    if image and not any(word.startswith("--sdk_container_image=") for word in argv):
        argv.append(f"--sdk_container_image={image}")
    builder.main(argv)


def _builder(command: str):  # a Builder, whose import --help does not need
    return import_module(f"textmill.pipelines.{command}").BUILDER


if __name__ == "__main__":
    run_entry(main)
