"""The sha256 of a checkpoint's files, kept with them: what was damaged is never trained on or used.

    OUTPUT/checkpoints/500/SHA256SUMS            of a checkpoint that is a directory
    OUTPUT/checkpoints/step-00000500.pt.sha256   of one that is a file

They are in the form of the command sha256sum. A checkpoint without sums passes: it is of an older
version, or of a run that was killed just before it wrote them. Python 3.8 syntax.
"""

import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional

from schemas.errors import DataError
from schemas.manifest import file_sha256

SUMS, SUFFIX, DAMAGED = "SHA256SUMS", ".sha256", ".damaged"
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")


def numbered(directory: Path) -> Dict[int, Path]:
    """The checkpoints that are directories by their steps: {500: OUTPUT/checkpoints/500}."""
    if not directory.is_dir():
        return {}
    return {int(path.name): path for path in directory.iterdir() if path.name.isdecimal()}


def sums_path(checkpoint: Path) -> Path:
    """Where the sums of a checkpoint lie."""
    if checkpoint.is_dir():
        return checkpoint / SUMS
    return checkpoint.with_name(checkpoint.name + SUFFIX)


def write_sums(checkpoint: Path) -> None:
    """Writes the sums of a checkpoint's files as they are now, whole or not at all."""
    path = sums_path(checkpoint)
    files = [checkpoint]
    if checkpoint.is_dir():
        files = [file for file in sorted(checkpoint.rglob("*")) if file.is_file() and file != path]
    sums = _sha256_of(files)
    partial = path.with_name(path.name + ".partial")
    with open(str(partial), "w", encoding="utf-8") as file:
        for name in files:
            file.write(f"{sums[name]}  {name.relative_to(path.parent).as_posix()}\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(str(partial), str(path))


def damage_of(checkpoint: Path) -> Optional[str]:
    """What of a checkpoint is not as it was written, in words; None if all is, or it has no sums.

    Raises:
      OSError: a file is there and cannot be read.
    """
    path = sums_path(checkpoint)
    if not path.exists():
        return None
    lines = path.read_bytes().decode("utf-8", "replace").split("\n")[:-1]
    matches = [_LINE.fullmatch(line) for line in lines]
    if not lines or not all(matches):
        return f"{path} is broken (remove it to use the checkpoint unchecked)"
    listed = {path.parent / match[2]: match[1] for match in matches if match}
    for file in listed:
        if not file.is_file():
            return f"{file} is missing"
    for file, found in _sha256_of(list(listed)).items():
        if found != listed[file]:
            return f"{file} is not what was written: its sha256 is not that of {path.name}"
    return None


def check_whole(checkpoint: Path, instead: str) -> None:
    """Refuses a checkpoint that is damaged.

    Args:
      checkpoint: a directory or a file.
      instead: what to do, for the error.

    Raises:
      DataError: names the file.
    """
    try:
        damage = damage_of(checkpoint)
    except OSError as error:
        raise DataError(f"{checkpoint} cannot be read: {error}") from error
    if damage is not None:
        raise DataError(f"the checkpoint {checkpoint} is damaged: {damage}. {instead}")


def newest_whole(checkpoints: Mapping[int, Path], say: Callable[[str], None]) -> Optional[int]:
    """The step to go on from: that of the newest checkpoint that is whole; None without any.

    Newer ones, which are damaged, get names that end in .damaged, and `say` gets a line for each.

    Args:
      checkpoints: the finished ones by their steps.
      say: tells the user.

    Raises:
      DataError: all are damaged; nothing was renamed.
      OSError: one cannot be read.
    """
    damages: Dict[int, str] = {}
    for step in sorted(checkpoints, reverse=True):
        damage = damage_of(checkpoints[step])
        if damage is None:
            break
        damages[step] = damage
    else:
        if damages:
            raise DataError(
                f"no checkpoint is whole: {'; '.join(damages.values())}. Copy one from a backup, "
                "or start anew with another --output"
            )
        return None
    for newer, damage in damages.items():
        aside = _set_aside(checkpoints[newer])
        say(
            f"note: the checkpoint after step {newer} is damaged: {damage}. It is kept as {aside}; "
            f"the run goes on from the one after step {step}, and later steps are done again"
        )
    return step


def _set_aside(checkpoint: Path) -> Path:
    aside = checkpoint.with_name(checkpoint.name + DAMAGED)
    if aside.is_dir():
        shutil.rmtree(str(aside))
    sums = sums_path(checkpoint)
    os.replace(str(checkpoint), str(aside))
    if sums.parent == checkpoint.parent:
        sums.unlink()
    return aside


def _sha256_of(files: List[Path]) -> Dict[Path, str]:
    """In threads, since hashing lets go of the interpreter."""
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return dict(zip(files, pool.map(file_sha256, map(str, files))))
