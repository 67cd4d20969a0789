"""Whether the flags that Dataflow wants are there. Whether they are good, Dataflow says."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions, WorkerOptions
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator

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


def most_workers(beam_arguments: list[str]) -> int | None:
    """How many workers may run at once; None where no flag says it."""
    options = PipelineOptions(beam_arguments).view_as(WorkerOptions)
    return options.max_num_workers or options.num_workers


def check_flags(beam_arguments: list[str]) -> Iterator[Check]:
    """All that Dataflow wants of flags."""
    flags = PipelineOptions(beam_arguments).view_as(GoogleCloudOptions)
    region = flags.region or os.environ.get("CLOUDSDK_COMPUTE_REGION")
    remedy = "--project=PROJECT_ID, as `gcloud projects list` has it"
    yield _given("project", flags.project, remedy)
    remedy = "--region=REGION, where the buckets are, such as europe-west4"
    yield _given("region", region, remedy)
    remedy = "--temp_location=gs://BUCKET/tmp, of a bucket in the region"
    problem = _bad_location(flags) or "neither --temp_location nor --staging_location"
    place = None if _bad_location(flags) else flags.temp_location or flags.staging_location
    yield _given("temporary files", place, remedy, problem)
    if flags.template_location:
        yield Check(
            "template",
            "failed",
            "--template_location: a job is of one plan of inputs, which lies in the staging folder "
            "and goes when the command ends",
            "leave it out: the command starts the job",
        )


def _given(name: str, value: str | None, remedy: str, problem: str = "none is given") -> Check:
    if not value:
        return Check(name, "failed", problem, remedy)
    return Check(name, "ok", f"{value}, as given: whether there is one, Dataflow says")


def _bad_location(flags: GoogleCloudOptions) -> str:
    """What Beam's validator says of places for temporary files: a run would make a bucket then."""
    validator = PipelineOptionsValidator(flags, None)
    for name in ("temp_location", "staging_location"):
        if getattr(flags, name) and (said := validator.validate_gcs_path(flags, name)):
            return str(said[0])
    return ""
