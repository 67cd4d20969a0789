"""Whether Beam's flags for Dataflow are complete and well formed, as far as words can tell.

Nothing is asked of anyone: it is the form that is looked at, before credentials or money are.
"""

import argparse
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "failed", "not checked"]

_PROJECT = re.compile(r"([a-z][-a-z0-9.]*[a-z0-9]:)?[a-z][-a-z0-9]{4,28}[a-z0-9]")
_REGION, _ZONE = re.compile(r"[a-z]+-[a-z]+\d+"), re.compile(r"([a-z]+-[a-z]+\d+)-[a-z]")
_JOB_NAME = re.compile(r"[a-z]([-a-z0-9]{0,1022}[a-z0-9])?")
_ADDRESS = re.compile(r"\d{1,3}(\.\d{1,3}){3}")
_MACHINE = re.compile(r"([a-z]+\d+[a-z]*)-(standard|highmem|highcpu)-(\d+)")
# GB of memory a vCPU, by family of machines and kind; "" is any other family.
_GIGABYTES = {
    "n1": {"standard": 3.75, "highmem": 6.5, "highcpu": 0.9},
    "e2": {"standard": 4.0, "highmem": 8.0, "highcpu": 1.0},
    "": {"standard": 4.0, "highmem": 8.0, "highcpu": 1.0},
}
DEFAULT_MACHINE = "n1-standard-1"
_SYSTEM_GIGABYTES = 1.0  # of a machine, for what is no worker


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
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in (
        "project",
        "region",
        "temp_location",
        "staging_location",
        "job_name",
        "template_location",
    ):
        parser.add_argument(f"--{name}")
    parser.add_argument("--worker_machine_type", "--machine_type", dest="machine_type")
    parser.add_argument("--worker_zone", "--zone", dest="zone")
    parser.add_argument("--num_workers", type=int)
    parser.add_argument("--max_num_workers", type=int)
    return parser.parse_known_args(beam_arguments)[0]


def check_flags(beam_arguments: list[str]) -> Iterator[Check]:
    """All that Dataflow wants of flags."""
    flags = flags_of(beam_arguments)
    yield _project(flags.project)
    yield _region(flags.region, flags.zone)
    yield _temporary(flags.temp_location, flags.staging_location)
    if flags.job_name and not _JOB_NAME.fullmatch(flags.job_name):
        yield Check(
            "job name",
            "failed",
            f"--job_name={flags.job_name}: not lower case letters, digits and hyphens, beginning "
            "with a letter and ending with no hyphen",
            "--job_name=textmill-1, or leave it to Beam",
        )
    if flags.template_location:
        yield Check(
            "template",
            "failed",
            "--template_location: a job is of one plan of inputs, which lies in the staging folder "
            "and goes when the command ends",
            "leave it out: the command starts the job",
        )


def _project(project: str | None) -> Check:
    remedy = "--project=PROJECT_ID, as `gcloud projects list` has it"
    if not project:
        return Check("project", "failed", "none is given", remedy)
    if not _PROJECT.fullmatch(project):
        return Check("project", "failed", f"--project={project} is no project's id", remedy)
    return Check("project", "ok", project)


def _region(region: str | None, zone: str | None) -> Check:
    remedy = "--region=REGION, where the buckets are, such as europe-west4"
    if not region:
        region = os.environ.get("CLOUDSDK_COMPUTE_REGION")
    if not region:
        return Check("region", "failed", "none is given", remedy)
    if found := _ZONE.fullmatch(region):
        said = f"--region={region} is a zone"
        return Check("region", "failed", said, f"--region={found[1]}")
    if not _REGION.fullmatch(region):
        return Check("region", "failed", f"--region={region} is not like europe-west4", remedy)
    if zone:
        return Check("region", "ok", f"{region}, zone {zone}: capacity of one zone only")
    return Check("region", "ok", region)


def _temporary(temp: str | None, staging: str | None) -> Check:
    name, remedy = "temporary files", "--temp_location=gs://BUCKET/tmp, of a bucket in the region"
    if not temp and not staging:
        return Check(name, "failed", "neither --temp_location nor --staging_location", remedy)
    for flag, path in (("temp_location", temp), ("staging_location", staging)):
        if path and not path.startswith("gs://"):
            return Check(name, "failed", f"--{flag}={path} is not in Cloud Storage", remedy)
        problem = bucket_problem(path) if path else ""
        if problem:
            return Check(name, "failed", f"--{flag}={path}: {problem}", remedy)
        if path and "/" not in path.removeprefix("gs://"):
            return Check(name, "failed", f"--{flag}={path} names no folder", f"--{flag}={path}/tmp")
    return Check(name, "ok", temp or staging or "")


def bucket_problem(path: str) -> str:
    """What is wrong with the bucket's name in gs://BUCKET/... or s3://BUCKET/..., by their rules.

    Returns:
      "" for nothing, and for other schemes.
    """
    scheme, _, rest = path.partition("://")
    bucket = rest.partition("/")[0]
    if scheme not in ("gs", "s3"):
        return ""
    if not bucket:
        return "it names no bucket"
    allowed = "-_." if scheme == "gs" else "-."
    known = set(f"abcdefghijklmnopqrstuvwxyz0123456789{allowed}")
    odd = [character for character in bucket if character not in known]
    longest = 222 if scheme == "gs" and "." in bucket else 63
    if odd:
        return f"a bucket's name holds lower case letters, digits and {allowed}, not {odd[0]!r}"
    if not 3 <= len(bucket) <= longest or any(len(part) > 63 for part in bucket.split(".")):
        return f"a bucket's name has 3 to 63 characters, not {len(bucket)}"
    if not (bucket[0].isalnum() and bucket[-1].isalnum()) or ".." in bucket:
        return "a bucket's name begins and ends with a letter or digit, without two dots together"
    if _ADDRESS.fullmatch(bucket):
        return "a bucket's name is no IP address"
    if scheme == "gs" and (bucket.startswith("goog") or "google" in bucket):
        return 'a bucket\'s name neither begins with "goog" nor holds "google"'
    if scheme == "s3" and (bucket.startswith(("xn--", "sthree-")) or bucket.endswith("-s3alias")):
        return "a bucket's name does not begin with xn-- or sthree-, nor end with -s3alias"
    return ""


def memory_of(machine_type: str | None) -> float | None:
    """Bytes that a worker of Dataflow has: one a vCPU of its machine.

    Args:
      machine_type: such as n2-highmem-8; None for Dataflow's own choice.

    Returns:
      None for a machine that is not known here.
    """
    found = _MACHINE.fullmatch((machine_type or DEFAULT_MACHINE).rpartition("/")[2])
    if not found:
        return None
    family, kind, cores = found[1], found[2], int(found[3])
    gigabytes = _GIGABYTES.get(family, _GIGABYTES[""])[kind] * cores
    return max(0.0, gigabytes - _SYSTEM_GIGABYTES) / cores * 1e9
