"""Whether workers get equal shares of the inputs, and what to do where they cannot. Pure."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.filesize import decimal

from pipelines.readers.formats.table import FORMATS
from pipelines.readers.stored import PACKINGS, Part, extension, inner_extension, is_compressed

if TYPE_CHECKING:
    from pipelines.readers.sources import Block

# Read by one worker in half a minute or more; of what is smaller, nobody waits long for the last.
_LONG_BYTES = 256 << 20
_UNEVEN = 1.5  # times the share of a worker
CLUSTER_WORKERS = 16  # at least, where they cannot be known


def uneven(blocks: "Sequence[Block]", workers: int) -> str | None:
    """What is said of an input that holds workers up, as one of them has to read all of it.

    Plain text, JSON Lines and CSV are cut anywhere, Arrow between batches: a file of any size is
    spread as well as many small ones. A compressed file is not, nor a row group of Parquet.

    Args:
      blocks: of all inputs.
      workers: that read at once.
    """
    largest = max(blocks, key=lambda block: block.bytes)
    total = sum(block.bytes for block in blocks)
    if largest.bytes < _LONG_BYTES or largest.bytes * workers < _UNEVEN * total:
        return None
    part = max(largest.parts, key=lambda part: part.bytes)
    return (
        f"one of {workers} workers reads {largest.bytes / total:.0%} of the input while the others "
        f"wait for it: {part.path} ({decimal(part.bytes)}) {_remedy(part)}"
    )


def _remedy(part: Part) -> str:
    if part.format == "parquet":
        return "has a row group of this size; write it with smaller ones"
    if not is_compressed(part.path):
        return "cannot be cut; give it in several files"
    packer = PACKINGS[extension(part.path)].name
    if FORMATS[part.format].cuts != "anywhere":
        return f"is compressed as a whole; unpack it: {packer} -dk {shlex.quote(part.path)}"
    name = shlex.quote(part.path)
    end = inner_extension(part.path) + extension(part.path)
    filtered = shlex.quote(f"{packer} > $FILE{end}")
    return (
        "is compressed as a whole; unpack it, or pack it in parts, one for each worker or more: "
        f"{packer} -dc {name} | split -l 1000000 --filter={filtered} - part-"
    )
