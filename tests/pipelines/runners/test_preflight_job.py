"""Flags that Dataflow requires; and what a failed installation says of packages, or of the network.

An installation that works is seen in test_preflight.
"""

import pytest

from pipelines.runners import worker_package
from pipelines.runners.preflight_job import NO_INDEX, check_flags, install
from pipelines.runners.worker_package import write_package

COMPLETE = ["--project=my-project", "--region=europe-west4", "--temp_location=gs://my-bucket/tmp"]


@pytest.fixture(autouse=True)
def no_default_region(monkeypatch):
    monkeypatch.delenv("CLOUDSDK_COMPUTE_REGION", raising=False)


def failed(*flags):
    """Why the check fails; "" if it does not."""
    check = check_flags([*COMPLETE, *flags])
    assert bool(check.remedy) == (check.state == "failed")
    return check.detail if check.state == "failed" else ""


GIVEN = "project my-project, region {}, gs://my-bucket/tmp: Dataflow checks that they exist"


def test_complete_flags_of_dataflow_pass():
    check = check_flags(COMPLETE)
    assert (check.state, check.detail) == ("ok", GIVEN.format("europe-west4"))


def test_missing_flags_of_dataflow_are_named():
    check = check_flags([])
    assert (check.state, check.detail) == (
        "failed",
        "no --project; no --region; no --temp_location",
    )
    assert "--project=PROJECT_ID --region=REGION --temp_location=gs://BUCKET/tmp" in check.remedy


def test_the_environment_may_name_the_region(monkeypatch):
    monkeypatch.setenv("CLOUDSDK_COMPUTE_REGION", "us-central1")
    check = check_flags([COMPLETE[0], COMPLETE[2]])
    assert (check.state, check.detail) == ("ok", GIVEN.format("us-central1"))


@pytest.mark.parametrize(
    "flag, said",
    [
        ("--project=", "no --project"),
        ("--temp_location=/tmp/x", "Invalid GCS path (/tmp/x)"),
        ("--temp_location=gs://My_Bucket/tmp", "Invalid GCS bucket"),
        ("--staging_location=s3://my-bucket/x", "Invalid GCS path"),
        ("--template_location=gs://my-bucket/t", "a job needs the plan of one command"),
    ],
)
def test_each_wrong_flag_of_dataflow_is_refused_alone(flag, said):
    found = failed(flag)
    assert said in found and ";" not in found.partition(said)[0]


def test_without_an_index_nothing_is_said_of_the_packages(tmp_path, monkeypatch):
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:1/simple")  # a closed port
    for name in ("UV_HTTP_RETRIES", "PIP_RETRIES"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("UV_NO_CACHE", "1")
    problem = install(str(tmp_path / "clean/bin/python"), [write_package(str(tmp_path))])
    assert NO_INDEX.search(problem)
    assert "127.0.0.1" in problem or "onnection" in problem


def test_requirements_that_contradict_each_other(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_package, "requirements", lambda: ["numpy==2.4.1", "numpy==2.3.1"])
    problem = install(str(tmp_path / "clean/bin/python"), [write_package(str(tmp_path))])
    assert not NO_INDEX.search(problem) and "numpy==2.3.1" in problem
