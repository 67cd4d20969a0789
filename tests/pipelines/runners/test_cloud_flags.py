"""Flags of Dataflow and names of buckets, by their form alone."""

import pytest

from pipelines.runners.preflight.cloud_flags import bucket_problem, check_flags, memory_of

COMPLETE = ["--project=my-project", "--region=europe-west4", "--temp_location=gs://my-bucket/tmp"]


@pytest.fixture(autouse=True)
def no_default_region(monkeypatch):
    monkeypatch.delenv("CLOUDSDK_COMPUTE_REGION", raising=False)


def failed(*flags):
    """Names of what fails, and why."""
    checks = check_flags([*COMPLETE, *flags])
    return {check.name: check.found for check in checks if check.state == "failed"}


def test_complete_flags_pass():
    assert failed() == {}
    assert [(check.name, check.found) for check in check_flags(COMPLETE)] == [
        ("project", "my-project"),
        ("region", "europe-west4"),
        ("temporary files", "gs://my-bucket/tmp"),
    ]


def test_what_is_missing_is_named():
    checks = list(check_flags([]))
    assert [check.name for check in checks] == ["project", "region", "temporary files"]
    assert all(check.state == "failed" and check.remedy for check in checks)


def test_the_environment_may_name_the_region(monkeypatch):
    monkeypatch.setenv("CLOUDSDK_COMPUTE_REGION", "us-central1")
    [_, region, _] = check_flags([COMPLETE[0], COMPLETE[2]])
    assert (region.state, region.found) == ("ok", "us-central1")


@pytest.mark.parametrize(
    "flag, name, said",
    [
        ("--project=123456789", "project", "is no project's id"),
        ("--project=My Project", "project", "is no project's id"),
        ("--region=europe-west4-b", "region", "is a zone"),
        ("--region=Europe", "region", "is not like europe-west4"),
        ("--temp_location=/tmp/x", "temporary files", "is not in Cloud Storage"),
        ("--temp_location=gs://My_Bucket/tmp", "temporary files", "not 'M'"),
        ("--temp_location=gs://my-bucket", "temporary files", "names no folder"),
        ("--staging_location=s3://my-bucket/x", "temporary files", "is not in Cloud Storage"),
        ("--job_name=My_Job", "job name", "not lower case letters"),
        ("--template_location=gs://my-bucket/t", "template", "one plan of inputs"),
    ],
)
def test_each_is_refused_alone(flag, name, said):
    [(found, why)] = failed(flag).items()
    assert found == name and said in why


def test_other_projects_and_jobs_pass():
    assert failed("--project=example.com:my-project", "--job_name=textmill-1") == {}
    assert failed("--staging_location=gs://other.example.com/staging") == {}


@pytest.mark.parametrize(
    "path, said",
    [
        ("gs://my-bucket/a", ""),
        ("gs://my_bucket.example.com", ""),
        ("s3://my-bucket/a", ""),
        ("/local/path", ""),
        ("gs:///a", "it names no bucket"),
        ("gs://ab", "has 3 to 63 characters, not 2"),
        ("gs://" + "a" * 64, "has 3 to 63 characters, not 64"),
        ("gs://My-bucket", "not 'M'"),
        ("gs://b\u00fccket", "not '\u00fc'"),
        ("s3://my_bucket", "holds lower case letters, digits and -., not '_'"),
        ("gs://-bucket", "begins and ends with a letter or digit"),
        ("gs://bucket-", "begins and ends with a letter or digit"),
        ("gs://my..bucket", "without two dots together"),
        ("gs://192.168.5.4", "is no IP address"),
        ("gs://goog-bucket", 'neither begins with "goog"'),
        ("gs://my-google-bucket", 'nor holds "google"'),
        ("s3://xn--bucket", "does not begin with xn--"),
        ("s3://my-s3alias", "nor end with -s3alias"),
    ],
)
def test_buckets_have_rules(path, said):
    assert bucket_problem(path) == said if not said else said in bucket_problem(path)


@pytest.mark.parametrize(
    "machine, gigabytes",
    [
        (None, 2.75),  # n1-standard-1: 3.75 less 1 for the system
        ("n1-standard-4", 3.5),
        ("n2-highmem-8", 7.875),
        ("n1-highcpu-2", 0.4),
        ("e2-highcpu-1", 0.0),
        ("projects/p/zones/z/machineTypes/n2d-standard-2", 3.5),
    ],
)
def test_a_worker_has_a_share_of_its_machine(machine, gigabytes):
    assert memory_of(machine) == pytest.approx(gigabytes * 1e9)


def test_of_other_machines_nothing_is_known():
    assert memory_of("custom-4-8192") is None
