"""The steps of `transforms` that sign documents, or read signatures of older ones."""

from collections.abc import Iterator

from apache_beam.pvalue import TaggedOutput

from textmill.pipelines.corpus.ancestors import load_older
from textmill.pipelines.corpus.job import CorpusReport
from textmill.pipelines.corpus.near_duplicates.job import FindJob
from textmill.pipelines.corpus.near_duplicates.rows import OLDER, signed_type
from textmill.pipelines.corpus.near_duplicates.signature_files import read_signed, stage_signed
from textmill.pipelines.corpus.near_duplicates.steps import make_members, observe, sign
from textmill.pipelines.corpus.partition import read_partition
from textmill.pipelines.corpus.shuffles import Shuffle
from textmill.pipelines.runners.shuffle import DeliveryReport
from textmill.pipelines.runners.steps import SendingStep, tag_of
from textmill.pipelines.writers.staging import check_turn


class ComputeSignatures(SendingStep[FindJob]):
    """A partition -> members of buckets, and an empty value that makes `Fetch` visit it."""

    REPORT = CorpusReport

    def process(self, number: int) -> Iterator:
        """Signs the documents in parts."""
        job = self._job
        check_turn(job.staging, job.run)
        yield TaggedOutput(tag_of(Shuffle.ASKS), (number, b""))
        text, parts = read_partition(job.scratch, number)["text"], []
        with self._journal.phase(job.phase(1, "signing"), job.keys):
            for signed in sign(text, job.rule):
                self.put(Shuffle.MEMBERS, make_members(number, signed, job.partitions))
                self.add(CorpusReport.of_counts(observe(compared=len(signed))))
                parts.append(signed)
                yield from self.send()
        if not job.paragraphs:
            stage_signed(parts, number, job, signed_type(job.rule.bands.bands))
        self.report(deliveries=DeliveryReport(blocks=(job.blocks + number,)))


class Recall(SendingStep[FindJob]):
    """A file of an older corpus -> members of buckets."""

    REPORT = CorpusReport

    def process(self, number: int) -> Iterator:
        """Reads signatures, or signs the documents."""
        job = self._job
        check_turn(job.staging, job.run)
        signed = read_signed(load_older(job.against).files[number], job.rule)
        self.put(Shuffle.MEMBERS, make_members(OLDER + number, signed, job.partitions))
        yield from self.send()
        self.report(deliveries=DeliveryReport(blocks=(job.blocks + 2 * job.partitions + number,)))
