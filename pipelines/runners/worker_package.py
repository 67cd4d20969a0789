"""The package that workers of a runner install: what runs there, and nothing of the trainers.

Workers of Dataflow, and those of a cluster that start from Beam's image, know Beam and nothing of
Textmill. A wheel for them is a zip of modules with a list of them, so it is written here, from the
modules that this very process imports: it is the same from a checkout (editable or not) and from an
installed Textmill, and takes neither build tools nor an index. What it requires is the extra
[pipelines] as setup.py has it, in the versions that are installed here: other ones could make other
bytes, or unpickle nothing.
"""

import base64
import hashlib
import importlib.metadata
import importlib.util
import os
import site
import sys
import sysconfig
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
_EXTRA = "pipelines"
_STORES = {"gcp": "gcsfs", "aws": "s3fs"}  # extras for stores, and how they show
_MOST_BYTES = 32 << 20  # of a user's own package: more is data beside it, or the wrong folder
_EPOCH = (1980, 1, 1, 0, 0, 0)  # equal files make equal wheels, which runners keep


@contextmanager
def package_code(beam_arguments: list[str], filter_name: str) -> Iterator[list[str]]:
    """Beam's arguments, with a package for workers that have no Textmill; it lives as long.

    Args:
      beam_arguments: of the run.
      filter_name: of --filter, whose module workers need too; "" for none.
    """
    if not runner_flags(beam_arguments).workers.are_bare:
        yield beam_arguments
        return
    with tempfile.TemporaryDirectory(prefix="textmill-") as folder:
        yield [*beam_arguments, f"--extra_package={write_package(folder, filter_name)}"]


def write_package(folder: str, filter_name: str = "") -> str:
    """Writes the wheel.

    Args:
      folder: to write it into.
      filter_name: `package.module:function` of --filter; its package goes along where it lies
        among the user's own files, and is required where it was installed.

    Returns:
      Its path.

    Raises:
      UsageError: Textmill is not installed, so nobody knows what it requires; or workers could not
        import the filter.
    """
    files = {name: path for package in PACKAGES for name, path in _files_of(package)}
    required = requirements()
    if filter_name:
        own, also = _own(filter_name)
        files |= own
        required += also
    info = f"{PACKAGE}-{VERSION}.dist-info"
    contents = {name: path.read_bytes() for name, path in sorted(files.items())}
    head = {
        "Metadata-Version": ["2.1"],
        "Name": [PACKAGE],
        "Version": [VERSION],
        "Summary": ["What of Textmill runs on workers of Beam"],
        "Requires-Python": [f"=={sys.version_info[0]}.{sys.version_info[1]}.*"],
        "Requires-Dist": sorted(required),
    }
    lines = (f"{field}: {value}\n" for field, values in head.items() for value in values)
    contents[f"{info}/METADATA"] = "".join(lines).encode()
    contents[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: textmill\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    record = "".join(f"{name},{_hash(data)},{len(data)}\n" for name, data in contents.items())
    contents[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    path = os.path.join(folder, f"{PACKAGE}-{VERSION}-py3-none-any.whl")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in contents.items():
            wheel.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)
    return path


def requirements() -> list[str]:
    """What workers need: `numpy==2.4.1` and so on, of the extra [pipelines].

    With what reads gs:// and s3:// where it is installed here.

    Raises:
      UsageError: Textmill or a part of the extra is not installed.
    """
    ours = [
        _EXTRA,
        *(extra for extra, module in _STORES.items() if importlib.util.find_spec(module)),
    ]
    try:
        listed = importlib.metadata.requires(PACKAGE) or []
        versions, extras = {}, {}
        for requirement in map(Requirement, listed):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in ours):
                name = requirement.name
                versions[name] = Version(importlib.metadata.version(name)).public
                extras.setdefault(name, set()).update(requirement.extras)
    except importlib.metadata.PackageNotFoundError as error:
        raise UsageError(
            f"{error.name} is not installed here, so what workers need cannot be told: `pip "
            "install` Textmill with its extra [pipelines] (a checkout: -e .[pipelines]), or give "
            "--sdk_container_image=IMAGE with Textmill in it (deploy/Dockerfile)"
        ) from error
    return [
        f"{name}{'[' + ','.join(sorted(extras[name])) + ']' if extras[name] else ''}=={version}"
        for name, version in versions.items()
    ]


def _files_of(package: str) -> Iterator[tuple[str, Path]]:
    """Names in the wheel and paths of all files of an importable package."""
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    if not folders:
        raise UsageError(f"the package {package} cannot be found where this process imports from")
    root = Path(next(iter(folders)))
    for parent, inner, names in os.walk(root):
        inner[:] = sorted(n for n in inner if n != "__pycache__" and not n.startswith("."))
        for name in sorted(names):
            path = Path(parent, name)
            if not name.startswith(".") and path.suffix != ".pyc":
                yield f"{package}/{path.relative_to(root).as_posix()}", path


def _own(filter_name: str) -> tuple[dict[str, Path], list[str]]:
    """Files of the package that holds a user's filter, or what has to be installed for it.

    Returns:
      Names and paths, and requirements; one of them is empty, both for a part of Textmill or of
      Python.

    Raises:
      UsageError: it lies where no worker finds it.
    """
    top = filter_name.partition(":")[0].partition(".")[0]
    elsewhere = (
        "put the function into a module of its own beside where you run the command, or give "
        "workers an image or an --extra_package that holds it"
    )
    if top == "__main__":
        raise UsageError(
            f"--filter={filter_name}: workers have another __main__ than this process; {elsewhere}"
        )
    if top in PACKAGES or top in sys.stdlib_module_names:
        return {}, []
    spec = importlib.util.find_spec(top)
    if spec is None:
        raise UsageError(f"--filter={filter_name}: there is no {top} to import; {elsewhere}")
    path = Path(spec.origin or next(iter(spec.submodule_search_locations or ["."])))
    if any(path.is_relative_to(folder) for folder in _installed_in()):
        owners = importlib.metadata.packages_distributions().get(top, [])
        return {}, [f"{n}=={Version(importlib.metadata.version(n)).public}" for n in owners]
    if spec.submodule_search_locations:
        files = dict(_files_of(top))
    else:
        files = {path.name: path}
    size = sum(path.stat().st_size for path in files.values())
    if size > _MOST_BYTES:
        raise UsageError(
            f"--filter={filter_name}: the folder of {top} holds {size / 1e6:,.0f} MB in "
            f"{len(files):,} files, too much to send to every worker; {elsewhere}"
        )
    return files, []


def _installed_in() -> set[str]:
    """Folders that packages are installed into."""
    paths = sysconfig.get_paths()
    user = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return {paths["purelib"], paths["platlib"], *site.getsitepackages(), *user}


def _hash(data: bytes) -> str:
    digest = hashlib.sha256(data).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
