"""Documents of the files that --input names."""

from collections.abc import Iterable
from typing import Any

from textmill.pipelines.readers.documents import TEXT_ROLES, Documents, Role
from textmill.pipelines.readers.sources import Source, plan_blocks, read_block

LABELED = (*TEXT_ROLES, Role("label", "label", "label"))


def read_all(*patterns: object, **settings: Any) -> list[Documents]:
    """The documents of every block of a source."""
    source = Source(tuple(map(str, patterns)), **settings)
    return [docs for block in plan_blocks(source) for docs in read_block(block, source)]


def rows_of(pieces: Iterable[Documents]) -> list[dict[str, Any]]:
    return [row for piece in pieces for row in piece.columns.to_pylist()]


def texts_of(pieces: Iterable[Documents]) -> list[str]:
    return [text for piece in pieces for text in piece.text.to_pylist()]


def rejects_of(pieces: Iterable[Documents]) -> list[tuple[int | None, str]]:
    """Offset and reason of every document that was rejected."""
    return [(reject.offset, reject.reason) for piece in pieces for reject in piece.rejects]


def sizes_of(*patterns: object, **settings: Any) -> list[tuple[str, int]]:
    """The planned files with their sizes in bytes, sorted by path."""
    blocks = plan_blocks(Source(tuple(map(str, patterns)), **settings))
    return sorted({(part.path, part.size) for block in blocks for part in block.parts})
