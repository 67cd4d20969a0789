"""Sums of checkpoints that a test has changed."""

from hashlib import sha256
from pathlib import Path


def sign(checkpoint: Path) -> None:
    """Writes the sums of a checkpoint's files as they are now."""
    files = [checkpoint / name for name in ("progress.json", "state.safetensors")]
    lines = [f"{sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (checkpoint / "SHA256SUMS").write_text("".join(lines))
