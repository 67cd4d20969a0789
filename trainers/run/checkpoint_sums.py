"""The sha256 of a checkpoint's files, kept with them: what was damaged is never trained on or used.

    OUTPUT/checkpoints/500/SHA256SUMS    in the form of the command sha256sum

Python 3.8 syntax.
"""

import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional

from schemas.errors import DataError
from schemas.manifest import file_sha256

SUMS, DAMAGED = "SHA256SUMS", ".damaged"
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")


def write_sums(checkpoint: Path) -> None:
    """Writes the sums of a checkpoint's files as they are now."""
    sums = _sha256_of([file for file in sorted(checkpoint.iterdir()) if file.name != SUMS])
    with open(str(checkpoint / SUMS), "w", encoding="utf-8") as lines:
        lines.writelines(f"{digest}  {file.name}\n" for file, digest in sums.items())
        lines.flush()
        os.fsync(lines.fileno())


def damage_of(checkpoint: Path) -> Optional[str]:
    """What of a checkpoint is not as it was written, in words; None if all is.

    Raises:
      OSError: a file is there and cannot be read.
    """
    path = checkpoint / SUMS
    if not path.is_file():
        return f"{path} is missing"
    lines = path.read_bytes().decode("utf-8", "replace").split("\n")[:-1]
    matches = [_LINE.fullmatch(line) for line in lines]
    if not lines or not all(matches):
        return f"{path} is broken"
    listed = {checkpoint / match[2]: match[1] for match in matches if match}
    for file in listed:
        if not file.is_file():
            return f"{file} is missing"
    for file in sorted(checkpoint.glob("[!.]*")):  # file systems leave hidden ones of their own
        if file not in listed and file != path:
            return f"{file} is not listed in {SUMS}"
    for file, found in _sha256_of(list(listed)).items():
        if found != listed[file]:
            return f"{file} is not what was written: its sha256 is not that of {SUMS}"
    return None


def check_whole(checkpoint: Path, instead: str) -> None:
    """Refuses a checkpoint that is damaged.

    Args:
      checkpoint: its directory.
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
        aside = checkpoints[newer].with_name(checkpoints[newer].name + DAMAGED)
        shutil.rmtree(str(aside), ignore_errors=True)
        os.replace(str(checkpoints[newer]), str(aside))
        say(
            f"note: the checkpoint after step {newer} is damaged: {damage}. It is kept as {aside}; "
            f"the run goes on from the one after step {step}, and later steps are done again"
        )
    return step


def _sha256_of(files: List[Path]) -> Dict[Path, str]:
    """In threads, since hashing lets go of the interpreter."""
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return dict(zip(files, pool.map(file_sha256, map(str, files))))
