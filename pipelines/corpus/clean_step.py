"""The step of build_corpus on blocks: reads, filters and edits documents."""

from collections.abc import Iterator

from textmill.pipelines.corpus.counting import count_piece
from textmill.pipelines.corpus.decontamination.finders import load_finder
from textmill.pipelines.corpus.filter_documents import load_filters
from textmill.pipelines.corpus.forget_documents import filter_others
from textmill.pipelines.corpus.job import CorpusJob, CorpusReport
from textmill.pipelines.corpus.partition import cut_batch, make_batch
from textmill.pipelines.corpus.shuffles import Shuffle
from textmill.pipelines.readers.forget import load_digests
from textmill.pipelines.readers.page_hosts import count_pages
from textmill.pipelines.readers.sources import Block
from textmill.pipelines.runners.shuffle import DeliveryReport
from textmill.pipelines.runners.steps import BlockStep, SendingStep, count
from textmill.pipelines.writers.rejects import stash
from textmill.schemas.format.corpus_metadata import CorpusStatistics


class Clean(BlockStep[CorpusJob], SendingStep[CorpusJob]):
    """Blocks -> filtered documents, by partition."""

    REPORT = CorpusReport

    def setup(self) -> None:
        """Loads models and lists of rules."""
        super().setup()
        job = self._job
        self._filters = load_filters(job.filters)
        self._finder = load_finder(job.index) if job.index else None

    def process(self, block: Block) -> Iterator:
        """Reads and filters documents, and sends them to their partitions."""
        job = self._job
        for piece, documents in enumerate(self.read(block)):
            forgotten = filter_others(
                self._filters, documents, load_digests(job.forget), self._finder
            )
            filtered = forgotten.filtered
            batch = make_batch(filtered.documents, keep_source=job.keep_source)
            self.put(Shuffle.DOCUMENTS, cut_batch(batch, job.partitions))
            yield from self.send()
            stashed = stash(filtered.lines, job.scratch, block.index, piece)
            words = int(batch["words"].to_numpy() @ batch["copies"].to_numpy())
            observed, hosts = count_pages(filtered.documents.pages)
            counted = count_piece(filtered, words, observed), forgotten.statistics
            statistics = CorpusStatistics.sum(counted)
            count("documents_read", statistics.documents_read)
            for reason, number in statistics.dropped.items():
                count(f"documents_dropped_{reason}", number)
            counts = {"statistics": statistics, "hits": filtered.hits, "stashed": stashed}
            counts |= {"hosts": hosts, "forgotten": forgotten.found.digests}
            counts |= {"scored": filtered.scored}
            self.add(CorpusReport.of(documents, **counts))
        self.report(deliveries=DeliveryReport(blocks=(block.index,)))
