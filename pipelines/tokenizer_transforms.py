"""The Beam wiring of train_tokenizer: blocks -> counts of a block -> counts -> one histogram.

Elements are tables: a block's counts in each bucket of words, never a word. What happens to them
are the functions of `word_counts` and `histogram`.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import PCollection, TaggedOutput

from pipelines import histogram, word_counts
from pipelines.filters import Filtered, Filters, load_filter
from pipelines.progress import Journal
from pipelines.rejects import Stashed, collect, rejects_file, stash
from pipelines.sources import Block, Source, read_block
from pipelines.staging import write_file
from pipelines.tokenizer_output import HISTOGRAM, READ
from pipelines.tokenizer_report import Read, add_read, check_read, text_of
from schemas.typed_json import to_json

_COUNTS, _READ = "counts", "read"
_PENDING = 16  # tables that are added up at once
_DOCUMENT_BYTES = 16 << 20  # counted at once: small files are put together


@dataclass(frozen=True)
class CountJob:
    """What every worker needs to know.

    Attributes:
      source: what is read.
      filters: which documents count.
      add_prefix_space: put a space before documents that do not begin with one.
      staging: the folder for the finished histogram.
      max_rejects: a run with more refused documents fails; below 0 for no limit.
    """

    source: Source
    filters: Filters
    add_prefix_space: bool
    staging: str
    max_rejects: int


def read_of(filtered: Filtered, stashed: tuple[Stashed, ...] = ()) -> Read:
    """What a piece of a file adds."""
    documents = filtered.documents
    return Read(
        documents=len(documents.text),
        bytes=word_counts.array_bytes(documents.text),
        empty=documents.empty,
        rejects=documents.rejects,
        filtered=filtered.dropped,
        stashed=stashed,
        digests=documents.digests,
    )


class CountBlock(beam.DoFn):
    """A block -> (bucket, counts of the block's words in it), and what was read."""

    def __init__(self, job: CountJob):
        self._job = job

    def setup(self) -> None:
        """Opens the journal of the progress display, and imports the user's filter."""
        self._journal = Journal(self._job.staging)
        if self._job.filters.filter:
            load_filter(self._job.filters.filter)

    def process(self, block: Block) -> Iterator:
        """Reads and counts; a block of many small files is counted in few goes."""
        job = self._job
        tables: list[pa.Table] = []
        texts: list[pa.LargeStringArray] = []
        for piece, documents in enumerate(read_block(block, job.source)):
            filtered = job.filters.apply(documents, job.source.roles)
            stashed = stash(filtered.lines, job.staging, block.index, piece)
            yield TaggedOutput(_READ, read_of(filtered, stashed))
            texts.append(filtered.documents.text)
            if sum(text.nbytes for text in texts) >= _DOCUMENT_BYTES:
                yield from self._count(texts, tables)
            self._journal.add(bytes_read=documents.stored_bytes)
        yield from self._count(texts, tables)
        for bucket, counts in word_counts.in_buckets(word_counts.add_counts(tables)):
            yield bucket, word_counts.to_bytes(counts)

    def _count(
        self, texts: list[pa.LargeStringArray], tables: list[pa.Table]
    ) -> Iterator[TaggedOutput]:
        """Counts the texts and forgets them; adds to the tables."""
        if texts:
            text = texts[0] if len(texts) == 1 else pa.concat_arrays(texts)
            texts.clear()
            counts, guarded = word_counts.count_words(
                text, add_prefix_space=self._job.add_prefix_space
            )
            tables.append(counts)
            if len(tables) == _PENDING:
                tables[:] = [word_counts.add_counts(tables)]
            yield TaggedOutput(_READ, Read(guarded=guarded))


class AddCounts(beam.CombineFn):
    """Adds up the tables of a bucket, some at a time. An accumulator is a list of tables."""

    def create_accumulator(self) -> list[bytes]:
        """Nothing yet."""
        return []

    def add_input(self, mutable_accumulator: list[bytes], element: bytes) -> list[bytes]:
        """One table more."""
        mutable_accumulator.append(element)
        return self._added(mutable_accumulator, _PENDING)

    def merge_accumulators(self, accumulators: Iterable[list[bytes]]) -> list[bytes]:
        """All their tables."""
        merged: list[bytes] = []
        for accumulator in accumulators:
            merged = self._added(merged + accumulator, _PENDING)
        return merged

    def compact(self, accumulator: list[bytes]) -> list[bytes]:
        """One table, before it travels."""
        return self._added(accumulator, 2)

    def extract_output(self, accumulator: list[bytes]) -> bytes:
        """The sum of all."""
        return self._added(accumulator, 0)[0]

    def _added(self, tables: list[bytes], at_least: int) -> list[bytes]:
        if len(tables) < at_least:
            return tables
        added = word_counts.add_counts(word_counts.from_bytes(table) for table in tables)
        return [word_counts.to_bytes(added)]


class WriteHistogram(beam.DoFn):
    """All counts and all that was read -> the files in the staging folder."""

    def __init__(self, job: CountJob):
        self._job = job

    def process(self, everything: tuple[int, dict[str, Iterable]]) -> Iterator[str]:
        """Refuses what cannot be trained on, and writes the rest."""
        _, parts = everything
        read = add_read(parts[_READ])
        check_read(read, self._job.max_rejects)
        counts = pa.concat_tables(word_counts.from_bytes(table) for table in parts[_COUNTS])
        origin = histogram.Origin(self._job.add_prefix_space, read.documents, read.bytes)
        sorted_counts = histogram.Histogram(counts.sort_by("word"), origin)
        files = {
            READ: to_json(text_of(read)),
            HISTOGRAM: histogram.to_parquet(sorted_counts),
            **rejects_file(read.rejects),
        }
        for name, content in files.items():
            path = os.path.join(self._job.staging, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_file(path, content)
            yield path
        yield from collect(read.stashed, self._job.staging)


class CountWords(beam.PTransform):
    """Blocks -> the staged histogram."""

    def __init__(self, job: CountJob, blocks: list[Block]):
        super().__init__()
        self._job = job
        self._blocks = blocks

    def expand(self, pipeline: beam.Pipeline) -> PCollection[str]:
        """Wires the pure functions together."""
        counted = (
            pipeline
            | "Blocks" >> beam.Create(self._blocks)
            | "Spread" >> beam.Reshuffle()
            | "Count" >> beam.ParDo(CountBlock(self._job)).with_outputs(_READ, main=_COUNTS)
        )
        bucket_to_counts = counted[_COUNTS] | "Add" >> beam.CombinePerKey(AddCounts())
        all_counts = bucket_to_counts | "ToOne" >> beam.MapTuple(lambda _, counts: (0, counts))
        all_read = (
            counted[_READ]
            | "AddRead" >> beam.CombineGlobally(add_read)
            | "WithOne" >> beam.Map(lambda read: (0, read))
        )
        return (
            {_COUNTS: all_counts, _READ: all_read}
            | "Meet" >> beam.CoGroupByKey()
            | "Write" >> beam.ParDo(WriteHistogram(self._job))
        )
