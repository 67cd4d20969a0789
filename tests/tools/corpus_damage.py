"""Single changes of a corpus's metadata files, under checksums that are right."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.tools.field_damage import change_field, field_changes
from tests.tools.shard_factory import canonical_sha256, sign
from textmill.schemas.errors import TextmillError
from textmill.schemas.format.manifest import MANIFEST

# Computed from others, so that correcting undoes the change; or repeats flags for people.
_UNDONE = ("schema.json: fingerprint", f"{MANIFEST}: digest", "config.yaml: ")


def correct_sums(directory: Path) -> None:
    """Corrects the fingerprint of schema.json, and sizes, sums and digest of MANIFEST.json."""
    schema, path = json.loads((directory / "schema.json").read_text()), directory / MANIFEST
    manifest = json.loads(path.read_text())
    if isinstance(schema, dict) and "fingerprint" in schema:
        fingerprint = canonical_sha256({n: v for n, v in schema.items() if n != "fingerprint"})
        if fingerprint != schema["fingerprint"]:
            schema["fingerprint"] = fingerprint
            (directory / "schema.json").write_text(json.dumps(schema, sort_keys=True))
        manifest["fingerprint"] = fingerprint
    for file in manifest["files"]:
        content = (directory / file["path"]).read_bytes()
        file.update(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    sign(manifest)
    path.write_text(json.dumps(manifest, sort_keys=True, indent=2))


def single_changes(pristine: Path) -> Iterator[tuple[str, str, tuple[str | int, ...]]]:
    """(file, way, path) of each change of a field that other files could contradict."""
    for name, way, level, path in field_changes(pristine):
        if level == "sums" and not f"{name}: {path[0]}".startswith(_UNDONE):
            yield name, way, path


def change_one(
    pristine: Path, directory: Path, name: str, way: str, path: tuple[str | int, ...]
) -> bool:
    """Copies a corpus and changes a field of the copy; False if the file stays as it was."""
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(pristine, directory)
    change_field(directory / name, path, way, "sums")
    if (directory / name).read_bytes() == (pristine / name).read_bytes():
        return False
    if name != MANIFEST:
        correct_sums(directory)
    return True


def outcome_of(check: Callable[[], object]) -> str:
    """How a check ends: accepted, refused, or the name of an exception that no user should see."""
    try:
        check()
    except TextmillError:
        return "refused"
    except Exception as error:
        return type(error).__name__
    return "accepted"
