"""Repositories of models in a cache as huggingface_hub keeps them."""

from collections.abc import Mapping
from pathlib import Path

COMMIT = "607a30d783dfa663caf39e06633721c8d4cfcd7e"


def cached(home: Path, name: str, files: Mapping[str, bytes]) -> Path:
    """Writes a repository into the cache of HF_HOME, as after a download; returns its snapshot."""
    root = home / "hub" / f"models--{name.replace('/', '--')}"
    snapshot = root / "snapshots" / COMMIT
    for folder in (snapshot, root / "refs", root / "blobs"):
        folder.mkdir(parents=True)
    (root / "refs" / "main").write_text(COMMIT)
    for number, (file, content) in enumerate(files.items()):
        (root / "blobs" / str(number)).write_bytes(content)
        (snapshot / file).symlink_to(f"../../blobs/{number}")
    return snapshot
