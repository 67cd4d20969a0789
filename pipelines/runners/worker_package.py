"""Builds the package that workers of a runner install: Textmill without its trainers.

Workers of Dataflow, and workers of a cluster that start from Beam's image, do not have Textmill.
Their wheel contains the modules that this process imports, so a checkout (editable or not) and an
installed Textmill, from which no tool could build a wheel, give the same one. It requires the extra
[pipelines] of setup.py in the versions that are installed here: other versions might write
different bytes, or fail to unpickle.
"""

import base64
import hashlib
import importlib.metadata
import importlib.util
import os
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from textmill.pipelines.runners.runner_flags import PACKAGE, runner_flags
from textmill.schemas.errors import UsageError, flag
from textmill.schemas.version import VERSION

# textmill/ itself has a few files, and links to these two packages and to the trainers.
PACKAGES = ("textmill.pipelines", "textmill.schemas")
_STORES = {"gcp": "gcsfs", "aws": "s3fs"}  # extras for object stores, to a package of each
_MOST_BYTES = 32 << 20  # of a user's package; a larger one contains data, or is the wrong directory
_EPOCH = (1980, 1, 1, 0, 0, 0)  # equal files give equal wheels, which runners cache


@contextmanager
def package_code(beam_arguments: list[str], filter_name: str) -> Iterator[list[str]]:
    """Yields Beam's arguments, with a temporary package for workers that do not have Textmill.

    The package includes the module of `filter_name` (--filter, "" for none).
    """
    if not runner_flags(beam_arguments).workers.are_bare:
        yield beam_arguments
        return
    with tempfile.TemporaryDirectory(prefix="textmill-") as folder:
        yield [*beam_arguments, f"--extra_package={write_package(folder, filter_name)}"]


def write_package(folder: str, filter_name: str = "") -> str:
    """Writes the wheel; returns its path.

    Args:
      folder: the directory to write to.
      filter_name: `package.module:function` of --filter. Its package is included if it consists of
        the user's own files, and required if it is installed.

    Raises:
      UsageError: Textmill is not installed, so that its requirements are unknown; or workers could
        not import the filter.
    """
    files = {name: path for package in PACKAGES for name, path in _files_of(package)}
    files |= {name: path for name, path in _files_of("textmill", "*.py")}
    required = requirements()
    if filter_name:
        own, also = _filter_code(filter_name)
        files |= own
        required += also
    info = f"{PACKAGE}-{VERSION}.dist-info"
    metadata = [
        f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {VERSION}",
        "Summary: The part of Textmill that runs on Beam's workers",
        f"Requires-Python: =={sys.version_info[0]}.{sys.version_info[1]}.*",
        *(f"Requires-Dist: {requirement}" for requirement in sorted(required)),
    ]
    contents = {name: path.read_bytes() for name, path in sorted(files.items())}
    contents[f"{info}/METADATA"] = ("\n".join(metadata) + "\n").encode()
    contents[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: textmill\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    record = f"{info}/RECORD,,\n"
    for name, data in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    contents[f"{info}/RECORD"] = record.encode()
    path = os.path.join(folder, f"{PACKAGE}-{VERSION}-py3-none-any.whl")
    with zipfile.ZipFile(path, "w") as wheel:
        for name, data in contents.items():
            wheel.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)
    return path


def requirements() -> list[str]:
    """Requirements of workers, such as `numpy==2.4.1`: those of the extra [pipelines].

    Packages for gs:// and s3:// are included if they are installed here.

    Raises:
      UsageError: Textmill or a part of the extra is not installed.
    """
    extras = [
        "pipelines",
        *(e for e, module in _STORES.items() if importlib.util.find_spec(module)),
    ]
    required: dict[str, set[str]] = {}
    try:
        for requirement in map(Requirement, importlib.metadata.requires(PACKAGE) or []):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras):
                required.setdefault(requirement.name, set()).update(requirement.extras)
        return [
            f"{name}{'[' + ','.join(sorted(own)) + ']' if own else ''}=={_version(name)}"
            for name, own in required.items()
        ]
    except importlib.metadata.PackageNotFoundError as error:
        raise UsageError(
            f"{error.name} is not installed here, so the requirements of workers are unknown: `pip "
            "install` Textmill with its extra [pipelines] (a checkout: -e .[pipelines]), or set "
            f"{flag('sdk_container_image', 'IMAGE')} to an image with Textmill (deploy/Dockerfile)"
        ) from error


def _version(distribution: str) -> str:
    return Version(importlib.metadata.version(distribution)).public


def _files_of(package: str, pattern: str = "**/*") -> Iterator[tuple[str, Path]]:
    """Yields the name in the wheel and the path of each file of an importable package."""
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    if not folders:
        raise UsageError(f"this process cannot find the package {package} that it imports")
    root = Path(next(iter(folders)))
    for path in sorted(root.glob(pattern)):
        parts = path.relative_to(root).parts
        hidden = any(part == "__pycache__" or part.startswith(".") for part in parts)
        if path.is_file() and not hidden and path.suffix != ".pyc":
            yield "/".join([*package.split("."), *parts]), path


def _filter_code(filter_name: str) -> tuple[dict[str, Path], list[str]]:
    """The files of the package with the user's filter, or the requirement that installs it.

    Returns:
      Names to paths, or else requirements; both are empty for a part of Textmill or of Python.

    Raises:
      UsageError: workers could not import the filter.
    """
    top = filter_name.partition(":")[0].partition(".")[0]
    spec = None if top == "__main__" else importlib.util.find_spec(top)
    problem = f"there is no {top} to import"
    if top == "__main__":
        problem = "workers have another __main__ than this process"
    elif top == PACKAGE or top in sys.stdlib_module_names:
        return {}, []
    elif spec:
        folders = spec.submodule_search_locations
        path = Path(spec.origin or next(iter(folders or ["."])))
        if {"site-packages", "dist-packages"} & set(path.parts):
            owners = importlib.metadata.packages_distributions().get(top, [])
            return {}, [f"{owner}=={_version(owner)}" for owner in owners]
        files = dict(_files_of(top)) if folders else {path.name: path}
        size = sum(path.stat().st_size for path in files.values())
        if size <= _MOST_BYTES:
            return files, []
        problem = (
            f"the directory of {top} has {size / 1e6:,.0f} MB in {len(files):,} files, too much to "
            "send to each worker"
        )
    raise UsageError(
        f"{flag('filter', filter_name)}: {problem}; put the function into a separate module in the "
        f"current directory, or provide it to workers in an image or an {flag('extra_package')}"
    )
