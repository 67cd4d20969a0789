"""Uploads a corpus or dataset to the Hugging Face Hub: `python -m pipelines.publish --help`."""

from textmill.pipelines.inspection.options import VerifyOptions
from textmill.pipelines.publishing.options import PUBLISH_HELP, PublishOptions
from textmill.pipelines.runtime.imports import block_pandas
from textmill.pipelines.verify import verify
from textmill.schemas.commands.entry import import_later, run_entry
from textmill.schemas.commands.options import parse_options

# Imports huggingface_hub, which takes a second and which --help does not need.
publish_directory = import_later("textmill.pipelines.publishing.upload:publish_directory")


def main(argv: list[str]) -> None:
    """Publishes the directory of a command line, or finds it published."""
    publish(parse_options(argv, PUBLISH_HELP, PublishOptions))


def publish(options: PublishOptions) -> str:
    """Publishes a directory, or finds it published; returns the repository's address for readers.

    Raises:
      UsageError, DataError: as `publish_directory`.
    """
    block_pandas()
    verified = VerifyOptions((options.directory,), options.follow_links)
    return publish_directory(options, lambda: verify(verified))


if __name__ == "__main__":
    run_entry(main)
