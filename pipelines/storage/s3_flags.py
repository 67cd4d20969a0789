"""Beam's flags of s3://, such as --s3_endpoint_url, as fsspec has them; here and in workers."""

import argparse
import atexit
import contextlib
import functools
import json
import os
import sys
import tempfile
from typing import Any

_OF_S3FS = {
    "s3_access_key_id": "key",
    "s3_secret_access_key": "secret",
    "s3_session_token": "token",
    "s3_endpoint_url": "endpoint_url",
}
_OF_ITS_CLIENT = {
    "s3_region_name": "region_name",
    "s3_api_version": "api_version",
    "s3_verify": "verify",
}
_NO_TLS = "s3_disable_ssl"
# The path of a file with flags: Beam tells workers elsewhere of them, but no processes.
_VARIABLE = "TEXTMILL_S3_FLAGS"


def take(beam_arguments: list[str]) -> None:
    """Takes those of a command line, for this process and the workers that it starts.

    They are in a file that only this user may read, and not in the environment, which every child
    inherits and `ps` shows.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in (*_OF_S3FS, *_OF_ITS_CLIENT):
        parser.add_argument(f"--{name}")
    parser.add_argument(f"--{_NO_TLS}", action="store_true")
    given = vars(parser.parse_known_args(beam_arguments)[0])
    flags = {name: value for name, value in given.items() if value}
    os.environ.pop(_VARIABLE, None)
    if flags:
        file, path = tempfile.mkstemp(prefix="textmill-")  # with mode 0600
        atexit.register(_remove, path)
        with open(file, "w") as out:
            json.dump(flags, out)
        os.environ[_VARIABLE] = path


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)


@functools.cache
def _taken(path: str) -> dict[str, Any]:
    if not path:
        return {}
    with open(path) as file:
        return json.load(file)


def of_job() -> dict[str, Any]:
    """Options of s3fs by the flags that were taken; in a worker elsewhere, by those of its job."""
    beam = sys.modules.get("apache_beam.options.value_provider")  # loaded, if this is a worker
    flags = (
        _taken(os.environ.get(_VARIABLE, ""))
        or (beam and beam.RuntimeValueProvider.runtime_options)
        or {}
    )
    options = {name: flags[flag] for flag, name in _OF_S3FS.items() if flags.get(flag)}
    client = {name: flags[flag] for flag, name in _OF_ITS_CLIENT.items() if flags.get(flag)}
    if client:
        options["client_kwargs"] = client
    if flags.get(_NO_TLS):
        options["use_ssl"] = False
    return options
