"""The package that workers of a runner install: what runs there, and nothing of the trainers.

Workers of Dataflow, and those of a cluster that start from Beam's image, know Beam and nothing of
Textmill. Their wheel is a zip of the modules that this very process imports, so it is the same from
a checkout (editable or not) and from an installed Textmill, of which no tool could build one again.
It requires the extra [pipelines] as setup.py has it, in the versions that are installed here: other
ones could write other bytes, or unpickle nothing.
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

from pipelines.runners.beam_flags import PACKAGE, runner_flags
from schemas.errors import UsageError
from schemas.version import VERSION

PACKAGES = ("pipelines", "schemas")
_STORES = {"gcp": "gcsfs", "aws": "s3fs"}  # extras for stores, and a package of each
_MOST_BYTES = 32 << 20  # of a user's own package: more is data beside it, or the wrong folder
_EPOCH = (1980, 1, 1, 0, 0, 0)  # equal files make equal wheels, which runners keep


@contextmanager
def package_code(beam_arguments: list[str], filter_name: str) -> Iterator[list[str]]:
    """Yields Beam's arguments, with a package for workers that have no Textmill; it lives as long.

    The module of `filter_name` (--filter, "" for none) goes along.
    """
    if not runner_flags(beam_arguments).workers.are_bare:
        yield beam_arguments
        return
    with tempfile.TemporaryDirectory(prefix="textmill-") as folder:
        yield [*beam_arguments, f"--extra_package={write_package(folder, filter_name)}"]


def write_package(folder: str, filter_name: str = "") -> str:
    """Writes the wheel; returns its path.

    Args:
      folder: to write it into.
      filter_name: `package.module:function` of --filter; its package goes along if it is one of the
        user's own files, and is required if it was installed.

    Raises:
      UsageError: Textmill is not installed, so nobody knows what it requires; or workers could not
        import the filter.
    """
    files = {name: path for package in PACKAGES for name, path in _files_of(package)}
    required = requirements()
    if filter_name:
        own, also = _filter_code(filter_name)
        files |= own
        required += also
    info = f"{PACKAGE}-{VERSION}.dist-info"
    metadata = [
        f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {VERSION}",
        "Summary: What of Textmill runs on workers of Beam",
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
    """What workers need: `numpy==2.4.1` and so on, of the extra [pipelines].

    With what reads gs:// and s3:// where it is installed here.

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
            f"{error.name} is not installed here, so what workers need cannot be told: `pip "
            "install` Textmill with its extra [pipelines] (a checkout: -e .[pipelines]), or give "
            "--sdk_container_image=IMAGE with Textmill in it (deploy/Dockerfile)"
        ) from error


def _version(distribution: str) -> str:
    return Version(importlib.metadata.version(distribution)).public


def _files_of(package: str) -> Iterator[tuple[str, Path]]:
    """Names in the wheel and paths of all files of an importable package."""
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    if not folders:
        raise UsageError(f"the package {package} cannot be found where this process imports from")
    root = Path(next(iter(folders)))
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        hidden = any(part == "__pycache__" or part.startswith(".") for part in parts)
        if path.is_file() and not hidden and path.suffix != ".pyc":
            yield "/".join([package, *parts]), path


def _filter_code(filter_name: str) -> tuple[dict[str, Path], list[str]]:
    """Files of the package that holds a user's filter, or what has to be installed for it.

    Returns:
      Names and paths, and requirements; one of them is empty, both for a part of Textmill or of
      Python.

    Raises:
      UsageError: no worker could import it.
    """
    top = filter_name.partition(":")[0].partition(".")[0]
    spec = None if top == "__main__" else importlib.util.find_spec(top)
    problem = f"there is no {top} to import"
    if top == "__main__":
        problem = "workers have another __main__ than this process"
    elif top in PACKAGES or top in sys.stdlib_module_names:
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
            f"the folder of {top} holds {size / 1e6:,.0f} MB in {len(files):,} files, too much to "
            "send to every worker"
        )
    raise UsageError(
        f"--filter={filter_name}: {problem}; put the function into a module of its own beside "
        "where you run the command, or give workers an image or an --extra_package that holds it"
    )
