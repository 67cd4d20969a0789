"""A sample of the inputs, from which plans estimate a run.

It is spread evenly over the bytes of the inputs, so the same inputs give the same sample, unless
reading takes so long that it ends earlier. Small inputs are read whole.
"""

import itertools
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from textmill.pipelines.readers.compression import is_compressed
from textmill.pipelines.readers.documents import Documents
from textmill.pipelines.readers.formats.table import FORMATS
from textmill.pipelines.readers.sources import Block, Source, read_block
from textmill.pipelines.readers.stored import Part
from textmill.pipelines.runtime.imports import pc
from textmill.schemas.errors import TextmillError

_PLACE_BYTES = 256 << 10
_PLACES = 24
_WHOLE_BYTES = 8 << 20  # inputs up to this are read whole
_PATIENCE = 4.0  # seconds of reading after which the sample ends
_MOST_BYTES = 32 << 20  # bytes of text after which it ends: a part may have large documents
_FEW_PLACES = 6  # of the sample that measures how much text compressed files and web pages hold
_PACKED = 3  # ratio of text to stored bytes of files that cannot be read, as the run will report


@dataclass
class Sample:
    """A sample of blocks.

    Attributes:
      stored: bytes read from disk.
      text: bytes of their content after decompression.
      taken: bytes of that in `pieces`; the rest only measures the two above.
      pieces: documents.
      seconds: of reading `text`.
      cpu_seconds: of all threads of this process meanwhile.
    """

    stored: int = 0
    text: int = 0
    taken: int = 0
    pieces: list[Documents] = field(default_factory=list)
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @property
    def document_bytes(self) -> int:
        """UTF-8 bytes of the documents in `pieces`."""
        return sum(text_bytes(piece) for piece in self.pieces)


def text_bytes(documents: Documents) -> int:
    """UTF-8 bytes of the text of documents."""
    return int(pc.sum(pc.binary_length(documents.text)).as_py() or 0)


def take_sample(
    source: Source, blocks: Sequence[Block], *, places: int = _PLACES, patience: float = _PATIENCE
) -> Sample:
    """Reads a sample of about `places` x 256 KiB of text, or small inputs whole.

    Args:
      source: how to read the blocks.
      blocks: all of the inputs, or those of a split.
      places: maximum number of parts of the inputs that are sampled.
      patience: seconds after which no further part is read.

    Raises:
      DataError: a file cannot be read.
    """
    # The bytes of text in a small archive or Parquet file are unknown: it is sampled like a large
    # one.
    packed = any(_is_packed(part) for block in blocks for part in block.parts)
    small = not packed and sum(block.bytes for block in blocks) <= _WHOLE_BYTES
    chosen = blocks if small else list(_places(blocks, source, places))
    wanted = None if small else max(_PLACE_BYTES, places * _PLACE_BYTES // len(chosen))
    _take(Sample(), chosen[0], source, 1)  # compiles and fills caches
    sample = Sample()
    began, cpu_began = time.perf_counter(), time.process_time()
    for place in chosen:
        if sample.pieces and (sample.seconds > patience or sample.taken > _MOST_BYTES):
            break
        _take(sample, place, source, wanted)
        sample.seconds = time.perf_counter() - began
        sample.cpu_seconds = time.process_time() - cpu_began
    return sample


def count_text_bytes(source: Source, blocks: Iterable[Block]) -> int:
    """Bytes of text of all inputs; those of compressed files and web pages from a sample.

    It decides the number of a corpus' files, so it does not depend on the time that reading takes.
    """
    blocks = list(blocks)
    total = sum(block.bytes for block in blocks)
    packed = [block for block in blocks if any(map(_is_packed, block.parts))]
    if not packed:
        return total
    try:
        sample = take_sample(source, packed, places=_FEW_PLACES, patience=float("inf"))
    except TextmillError:  # the run reports it, and where
        sample = Sample()
    ratio: float = _PACKED
    if sample.stored and sample.taken:
        ratio = sample.text / sample.stored * sample.document_bytes / sample.taken
    stored = sum(block.bytes for block in packed)
    return total - stored + round(stored * ratio)


def _is_packed(part: Part) -> bool:
    """Whether the stored bytes of a part are not those of its text."""
    row = FORMATS[part.format]
    return is_compressed(part.path) or not row.packs or row.is_web


def _places(blocks: Sequence[Block], source: Source, places: int) -> Iterator[Block]:
    """Yields blocks or parts of them, spread evenly over the bytes of all."""
    ends = list(itertools.accumulate(block.bytes for block in blocks))
    last = -1
    for number in range(places):
        offset = int((number + 0.5) / places * ends[-1])
        index = bisect_right(ends, offset)
        block = blocks[index]
        [part, *others] = block.parts
        in_part = offset - (ends[index] - block.bytes)
        by_lines = FORMATS[part.format].cuts == "anywhere" and not is_compressed(part.path)
        is_document = source.document == "file" and part.bytes == part.size  # is not cut
        if by_lines and not others and not is_document:
            start = part.start + min(in_part, max(part.bytes - _PLACE_BYTES, 0))
            stop = min(start + _PLACE_BYTES, part.stop)
            yield replace(block, parts=(replace(part, start=start, stop=stop),))
        elif index != last:  # read from its start, once
            yield block
        last = index


def _take(sample: Sample, place: Block, source: Source, wanted: int | None) -> None:
    """Takes the first documents of a block or a part of one, and reads until its size is known.

    The stored bytes of formats with rows are known at the end of a part. Compressed files are read
    a buffer at a time: a piece that begins a new buffer began it at an unknown position, and all
    text before the piece came from the earlier buffers.

    Args:
      sample: receives the documents.
      place: the block or part.
      source: how to read it.
      wanted: bytes of text to take; None for all.
    """
    compressed = is_compressed(place.parts[0].path)
    if wanted is not None:
        source = replace(source, block_bytes=_PLACE_BYTES)
    stored = taken = unmatched = 0  # the last: bytes of text whose stored bytes are not known yet
    for documents in read_block(place, source):
        is_new = documents.stored_bytes or not compressed
        if wanted is not None and taken >= wanted and stored and is_new:
            sample.text += documents.source_bytes // 2 if compressed else 0
            break
        unmatched += documents.source_bytes
        if documents.stored_bytes or compressed:
            stored += documents.stored_bytes
            sample.text += unmatched
            unmatched = 0
        if wanted is None or taken < wanted:
            taken += documents.source_bytes
            sample.pieces.append(documents)
    sample.stored += stored
    sample.taken += taken
