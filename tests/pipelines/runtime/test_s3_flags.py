"""Beam's flags for s3:// reach this process, those that it starts, and workers elsewhere."""

import os

import pytest
from apache_beam.options.value_provider import RuntimeValueProvider

from tests.tools.python_process import run_python
from textmill.pipelines.runtime import s3_flags
from textmill.schemas.errors import UsageError
from textmill.schemas.files.store import read

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:botocore"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:aiobotocore"),
]


@pytest.fixture
def flags(s3_store, monkeypatch):
    """Flags of Beam in place of environment variables, which are unset."""
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv(s3_flags._S3_VARIABLE, "")
    s3_store.put("x", b"content")
    return {
        "s3_endpoint_url": endpoint,
        "s3_access_key_id": "k",
        "s3_secret_access_key": "a secret",
        "s3_region_name": "eu-west-1",
    }


def test_flags_of_beam_are_for_this_process_and_for_those_that_it_starts(s3_store, flags):
    s3_flags.take_s3_flags(["--runner=x", *(f"--{name}={value}" for name, value in flags.items())])
    assert read(s3_store.url("x")) == b"content"
    code = (
        "import sys; from textmill.pipelines.readers.files import open_file\n"
        "from textmill.schemas.files.store import read\nprint(read(sys.argv[1]))"
    )
    done = run_python("-c", code, s3_store.url("x"))
    assert done.stdout == "b'content'\n", done.stderr
    s3_flags.take_s3_flags(["--s3_verify=/ca.pem", "--s3_disable_ssl"])
    assert s3_flags._s3_options() == {"client_kwargs": {"verify": "/ca.pem"}, "use_ssl": False}


def test_secrets_are_in_no_environment_and_in_no_file_that_stays():
    code = (
        "import os, stat\nfrom textmill.pipelines.runtime import s3_flags\n"
        "s3_flags.take_s3_flags(['--s3_secret_access_key=hidden'])\n"
        "assert not any('hidden' in value for value in os.environ.values())\n"
        "path = os.environ[s3_flags._S3_VARIABLE]\n"
        "assert stat.S_IMODE(os.stat(path).st_mode) == 0o600\n"
        "assert s3_flags._s3_options() == {'secret': 'hidden'}\nprint(path)"
    )
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
    assert not os.path.exists(done.stdout.strip())


def test_flags_of_beam_reach_workers_elsewhere(s3_store, flags, monkeypatch):
    monkeypatch.setattr(RuntimeValueProvider, "runtime_options", None)
    with pytest.raises(UsageError, match="there are no credentials for s3://"):
        read(s3_store.url("x"))
    RuntimeValueProvider.set_runtime_options(flags)  # as Beam does where a worker starts
    assert read(s3_store.url("x")) == b"content"
