"""Whether the flags that Dataflow wants are there. Whether they are good, Dataflow says."""

import argparse
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator

from pipelines.runners.beam_flags import flag_parser

State = Literal["ok", "failed", "not checked"]


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
      name: of what.
      state: ok, failed, or not checked.
      found: what is there, or why it could not be looked at.
      remedy: what to do about it.
    """

    name: str
    state: State
    found: str
    remedy: str = ""


def flags_of(beam_arguments: list[str]) -> argparse.Namespace:
    """The flags of Dataflow's that are looked at here; None where they are not given."""
    parser = flag_parser(
        "project", "region", "temp_location", "staging_location", "template_location"
    )
    parser.add_argument("--num_workers", type=int)
    parser.add_argument("--max_num_workers", type=int)
    return parser.parse_known_args(beam_arguments)[0]


def check_flags(beam_arguments: list[str]) -> Iterator[Check]:
    """All that Dataflow wants of flags."""
    flags = flags_of(beam_arguments)
    region = flags.region or os.environ.get("CLOUDSDK_COMPUTE_REGION")
    remedy = "--project=PROJECT_ID, as `gcloud projects list` has it"
    yield _given("project", flags.project, "none is given", remedy)
    remedy = "--region=REGION, where the buckets are, such as europe-west4"
    yield _given("region", region, "none is given", remedy)
    name, remedy = "temporary files", "--temp_location=gs://BUCKET/tmp, of a bucket in the region"
    if problem := _bad_location(beam_arguments):
        yield Check(name, "failed", problem, remedy)
    else:
        place, missing = (
            flags.temp_location or flags.staging_location,
            ("neither --temp_location nor --staging_location"),
        )
        yield _given(name, place, missing, remedy)
    if flags.template_location:
        yield Check(
            "template",
            "failed",
            "--template_location: a job is of one plan of inputs, which lies in the staging folder "
            "and goes when the command ends",
            "leave it out: the command starts the job",
        )


def _given(name: str, value: str | None, missing: str, remedy: str) -> Check:
    return Check(name, "ok", value) if value else Check(name, "failed", missing, remedy)


def _bad_location(beam_arguments: list[str]) -> str:
    """What Beam says of a place for temporary files, where it would make a bucket instead."""
    options = PipelineOptions(beam_arguments).view_as(GoogleCloudOptions)
    validator = PipelineOptionsValidator(options, None)
    for name in ("temp_location", "staging_location"):
        if getattr(options, name) and (said := validator.validate_gcs_path(options, name)):
            return str(said[0])
    return ""
