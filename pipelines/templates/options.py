"""The command line of flex_template -> a frozen configuration that refuses bad values."""

import os
import re
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from textmill.schemas.commands.help import Help
from textmill.schemas.commands.values import take_values
from textmill.schemas.errors import FieldError

_Switch = Annotated[bool, tyro.conf.FlagCreatePairsOff]
_BUCKET = re.compile(r"gs://[a-z0-9][a-z0-9._-]+[a-z0-9](/[^\s*?\[\]#]*)?")
_IMAGE = re.compile(r"[a-z0-9][a-z0-9.-]*(/[a-z0-9][a-z0-9._-]*){2,}(:[\w][\w.-]{0,127})?")

HELP = Help(
    module="pipelines.flex_template",
    about="Builds a Flex Template of Dataflow: an image with Textmill, and a file in a bucket that "
    "describes the flags of a command. Anybody with the right roles can then start the command "
    "without Textmill, by gcloud or in the console. It needs a checkout of Textmill, docker and "
    "gcloud.",
    usage="--image=IMAGE --bucket=BUCKET",
    example="--command=build_corpus --bucket=gs://my-bucket/templates "
    "--image=us-central1-docker.pkg.dev/my-project/textmill/build_corpus:1 --dry_run",
    page="docs/dataflow.md",
)


@dataclass(frozen=True)
class TemplateOptions:
    """The flags of flex_template."""

    image: str
    """Image to build and push, in Artifact Registry: REGION-docker.pkg.dev/PROJECT/REPOSITORY/NAME.
    The launcher and the workers start from it. An image is for one command."""
    bucket: str
    """Where to write the template: gs://BUCKET or a folder in it. Its name is that of the command,
    with .json."""
    command: Literal["build_corpus", "build_shards"] = "build_corpus"
    """Command that the template starts."""
    checkout: str = ""
    """Directory with Textmill's checkout. Default: the one that runs."""
    project: str = ""
    """Project of gcloud. Default: gcloud's own."""
    dry_run: _Switch = False
    """Print what would be run, and the description of the flags. Change nothing."""

    def __post_init__(self) -> None:
        """Rejects names that Google does not accept."""
        take_values(self)
        if not _IMAGE.fullmatch(self.image):
            reason = "give REGION-docker.pkg.dev/PROJECT/REPOSITORY/NAME, with or without :TAG"
            raise FieldError("image", self.image, reason)
        if not _BUCKET.fullmatch(self.bucket):
            raise FieldError("bucket", self.bucket, "give gs://BUCKET or gs://BUCKET/FOLDER")

    @property
    def template(self) -> str:
        """The template's file: gs://BUCKET/build_corpus.json."""
        return os.path.join(self.bucket, f"{self.command}.json")
