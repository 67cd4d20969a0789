"""Checks the runner, and the flags that Dataflow requires."""

import os

from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator

from textmill.pipelines.preflight.check import Check
from textmill.pipelines.runners.beam_flags import refuse_bad_runner
from textmill.pipelines.runners.job_server import reach_job_server
from textmill.pipelines.runners.runner_flags import runner_flags
from textmill.schemas.errors import UsageError, flag


def check_runner(beam_arguments: list[str]) -> Check:
    """Checks that Beam has the runner, and that its job server answers."""
    flags = runner_flags(beam_arguments)
    if flags.is_local:
        detail = (
            "this machine: only the plan remains to be checked, which "
            f"{flag('dry_run', True)} prints"
        )
        return Check("runner", "ok", detail)
    try:
        refuse_bad_runner(beam_arguments)
        if flags.job_server:
            reach_job_server(flags.job_server)
    except UsageError as error:
        return Check("runner", "failed", str(error))
    workers = flags.workers
    starts = {
        "DOCKER": f"workers start from {workers.image or 'the default image'}",
        "PROCESS": "workers are processes on the cluster's machines",
        "EXTERNAL": "workers come from running pools",
        "LOOPBACK": "workers are threads of this command",
    }.get(workers.environment, flag("environment_type", workers.environment))
    return Check("runner", "ok", f"{flags.runner_class}; {starts}")


def check_flags(beam_arguments: list[str]) -> Check:
    """Checks the flags that Dataflow requires; without a bucket, Beam would create one."""
    flags = PipelineOptions(beam_arguments).view_as(GoogleCloudOptions)
    region = flags.region or os.environ.get("CLOUDSDK_COMPUTE_REGION")
    locations = {
        name: getattr(flags, name)
        for name in ("temp_location", "staging_location")
        if getattr(flags, name)
    }
    needed = {"project": flags.project, "region": region, "temp_location": locations}
    problems = [f"no {flag(name)}" for name, value in needed.items() if not value]
    validator = PipelineOptionsValidator(flags, None)
    for name in locations:
        problems += validator.validate_gcs_path(flags, name)
    if problems:
        remedy = (
            f"{flag('project', 'PROJECT_ID')} {flag('region', 'REGION')} "
            f"{flag('temp_location', 'gs://BUCKET/tmp')}, with a bucket in the region"
        )
        return Check("flags", "failed", "; ".join(problems), remedy)
    paths = ", ".join(locations.values())
    detail = f"project {flags.project}, region {region}, {paths}: Dataflow checks that they exist"
    return Check("flags", "ok", detail)
