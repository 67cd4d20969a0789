"""Beam's flags for s3://, such as --s3_endpoint_url, as options of s3fs, here and in workers.

`readers.files` imports this module in every worker that opens a file.
"""

import argparse
import atexit
import functools
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from textmill.schemas.files import object_store

_S3_OPTIONS = {
    "s3_access_key_id": "key",
    "s3_secret_access_key": "secret",
    "s3_session_token": "token",
    "s3_endpoint_url": "endpoint_url",
}
_S3_CLIENT_OPTIONS = {
    "s3_region_name": "region_name",
    "s3_api_version": "api_version",
    "s3_verify": "verify",
}
_S3_NO_TLS = "s3_disable_ssl"
# Path of a file with flags. Beam passes flags to workers on other machines, not to subprocesses.
_S3_VARIABLE = "TEXTMILL_S3_FLAGS"


def take_s3_flags(beam_arguments: list[str]) -> None:
    """Stores Beam's flags of s3:// for this process and the workers that it starts.

    They are in a file that only this user can read, since `ps` shows the environment, which every
    subprocess inherits.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in (*_S3_OPTIONS, *_S3_CLIENT_OPTIONS):
        parser.add_argument(f"--{name}")
    parser.add_argument(f"--{_S3_NO_TLS}", action="store_true")
    parsed = vars(parser.parse_known_args(beam_arguments)[0])
    flags = {name: value for name, value in parsed.items() if value}
    os.environ.pop(_S3_VARIABLE, None)
    if flags:
        file, path = tempfile.mkstemp(prefix="textmill-")  # with mode 0600
        atexit.register(Path(path).unlink, missing_ok=True)
        with open(file, "w") as out:
            json.dump(flags, out)
        os.environ[_S3_VARIABLE] = path


@functools.cache
def _read_s3_flags(path: str) -> dict[str, Any]:
    return json.loads(Path(path).read_text()) if path else {}


def _s3_options() -> dict[str, Any]:
    """Options of s3fs from the stored flags; on another machine, from the flags of the job."""
    flags = _read_s3_flags(os.environ.get(_S3_VARIABLE, ""))
    beam = sys.modules.get("apache_beam.options.value_provider")  # imported in every worker
    if beam and not flags:
        flags = beam.RuntimeValueProvider.runtime_options or {}
    options = {name: flags[flag] for flag, name in _S3_OPTIONS.items() if flags.get(flag)}
    client = {name: flags[flag] for flag, name in _S3_CLIENT_OPTIONS.items() if flags.get(flag)}
    options |= {"client_kwargs": client} if client else {}
    return options | ({"use_ssl": False} if flags.get(_S3_NO_TLS) else {})


object_store.option_finders["s3"] = _s3_options
