"""Builds a Flex Template: the commands of docker and gcloud, and their failures."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from textmill.pipelines.runners.result import Say
from textmill.pipelines.templates.options import TemplateOptions
from textmill.schemas.errors import DataError, UsageError, flag

DOCKERFILE = "deploy/Dockerfile"
_TOOLS = {
    "docker": "https://docs.docker.com/engine/install",
    "gcloud": "https://cloud.google.com/sdk/docs/install",
}


def commands(options: TemplateOptions, checkout: str, metadata: str) -> list[list[str]]:
    """The commands in their order: build the image, push it, write the template.

    Args:
      options: of the command line.
      checkout: the directory with Textmill's sources.
      metadata: the file with the parameters.
    """
    python = "{}.{}".format(*sys.version_info)
    build = [
        *("docker", "build", "--platform=linux/amd64"),
        *(f"--file={os.path.join(checkout, DOCKERFILE)}", "--target=flex_template"),
        *(f"--build-arg=PYTHON={python}", f"--build-arg=LAUNCHER_PYTHON={python.replace('.', '')}"),
        *(f"--build-arg=COMMAND={options.command}", f"--build-arg=IMAGE={options.image}"),
        *(f"--tag={options.image}", checkout),
    ]
    write = [
        *("gcloud", "dataflow", "flex-template", "build", options.template),
        *(f"--image={options.image}", "--sdk-language=PYTHON", f"--metadata-file={metadata}"),
        *([f"--project={options.project}"] if options.project else []),
    ]
    return [build, ["docker", "push", options.image], write]


def build_template(options: TemplateOptions, metadata: Mapping[str, Any], say: Say) -> None:
    """Builds image and template, or prints what would be run.

    Args:
      options: of the command line.
      metadata: see `template_metadata`.
      say: prints a line.

    Raises:
      UsageError: there is no checkout, or docker or gcloud is not installed.
      DataError: one of them failed.
    """
    checkout = find_checkout(options.checkout)
    text = json.dumps(metadata, indent=2, ensure_ascii=False)
    if options.dry_run:
        for words in commands(options, checkout, "metadata.json"):
            say(shlex.join(words))
        say(f"metadata.json:\n{text}")
        return
    for tool, where in _TOOLS.items():
        if not shutil.which(tool):
            raise UsageError(
                f"{tool} is not installed: see {where}, or {flag('dry_run', True)} to print what "
                "would be run"
            )
    with tempfile.TemporaryDirectory(prefix="textmill-") as folder:
        path = os.path.join(folder, "metadata.json")
        Path(path).write_text(text, encoding="utf-8")
        for words in commands(options, checkout, path):
            say(shlex.join(words))
            code = subprocess.run(words, check=False).returncode
            if code:
                raise DataError(
                    f"{' '.join(words[:2])} failed with exit code {code}: its output is above"
                )
    say(f"the template is {options.template}; start it:\n{run_command(options)}")


def find_checkout(given: str) -> str:
    """The directory with Textmill's sources and Dockerfile.

    Raises:
      UsageError: an installed Textmill has none.
    """
    checkout = given or str(Path(__file__).resolve().parents[2])
    if not os.path.isfile(os.path.join(checkout, DOCKERFILE)):
        raise UsageError(
            f"{checkout} has no {DOCKERFILE}: name a checkout of Textmill, "
            f"{flag('checkout', 'DIRECTORY')}"
        )
    return checkout


def run_command(options: TemplateOptions) -> str:
    """A command that starts the template, to copy."""
    return (
        f"gcloud dataflow flex-template run NAME --region=REGION "
        f"--template-file-gcs-location={options.template} "
        "--parameters=input=gs://BUCKET/INPUT,output=gs://BUCKET/OUTPUT"
        + ",tokenizer=gs://BUCKET/TOKENIZER"
        * (options.command == "build_shards")
    )
