"""Flags that Dataflow wants."""

import pytest

from pipelines.runners.preflight.checks import check_flags

COMPLETE = ["--project=my-project", "--region=europe-west4", "--temp_location=gs://my-bucket/tmp"]


@pytest.fixture(autouse=True)
def no_default_region(monkeypatch):
    monkeypatch.delenv("CLOUDSDK_COMPUTE_REGION", raising=False)


def failed(*flags):
    """Names of what fails, and why."""
    checks = check_flags([*COMPLETE, *flags])
    return {check.name: check.found for check in checks if check.state == "failed"}


GIVEN = ", as given: whether there is one, Dataflow says"


def test_complete_flags_pass():
    assert failed() == {}
    assert [(check.name, check.found) for check in check_flags(COMPLETE)] == [
        ("project", "my-project" + GIVEN),
        ("region", "europe-west4" + GIVEN),
        ("temporary files", "gs://my-bucket/tmp" + GIVEN),
    ]


def test_what_is_missing_is_named():
    checks = list(check_flags([]))
    assert [check.name for check in checks] == ["project", "region", "temporary files"]
    assert all(check.state == "failed" and check.remedy for check in checks)


def test_the_environment_may_name_the_region(monkeypatch):
    monkeypatch.setenv("CLOUDSDK_COMPUTE_REGION", "us-central1")
    [_, region, _] = check_flags([COMPLETE[0], COMPLETE[2]])
    assert (region.state, region.found) == ("ok", "us-central1" + GIVEN)


@pytest.mark.parametrize(
    "flag, name, said",
    [
        ("--project=", "project", "none is given"),
        ("--temp_location=/tmp/x", "temporary files", "Invalid GCS path (/tmp/x)"),
        ("--temp_location=gs://My_Bucket/tmp", "temporary files", "Invalid GCS bucket"),
        ("--staging_location=s3://my-bucket/x", "temporary files", "Invalid GCS path"),
        ("--template_location=gs://my-bucket/t", "template", "one plan of inputs"),
    ],
)
def test_each_is_refused_alone(flag, name, said):
    [(found, why)] = failed(flag).items()
    assert found == name and said in why
