"""The job of near-duplicates: what all pairs compared give, in the same rows however it runs."""

import hashlib
import json
import pickle
from fractions import Fraction
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.build_corpus import main
from pipelines.corpus.metadata import read_corpus
from pipelines.corpus.near_duplicates import job
from pipelines.corpus.near_duplicates.flags import Bands, Rule, Shingle
from pipelines.corpus.near_duplicates.job import REMOVALS, FindJob, FindReport, name_tally
from pipelines.corpus.near_duplicates.rows import REMOVED, take_rows
from pipelines.corpus.near_duplicates.transforms import FindNear
from pipelines.corpus.partition import cut_batch, join_equal, read_partition, stage_partition
from pipelines.rows.routing import content_digests
from pipelines.runners import shuffle
from pipelines.runners.shuffle import Deliveries, check_deliveries, receive
from schemas.errors import DataError
from tests.tools.near_factory import digest_of, near_documents, removals

DOCUMENTS = near_documents(400)
# Of 32 bands of 4 hashes, a pair of similarity 0.8 meets with a probability of 0.99999994.
RULE = Rule(Fraction(4, 5), Shingle("word", 5), Bands(32, 4))
BLOCKS = 3  # of the plan, which other steps read


class _Keep(beam.DoFn):
    """Leaves each element in a folder, where the test reads it."""

    def __init__(self, folder):
        self._folder = str(folder)

    def process(self, element):
        content = pickle.dumps(element)
        with open(f"{self._folder}/{hashlib.sha256(content).hexdigest()}", "wb") as file:
            file.write(content)  # a repeated bundle writes it again


def stage(documents, scratch, partitions):
    """Stages documents as build_corpus does; the numbers of the partitions that hold some."""
    text = pa.array(documents, pa.large_string())
    digests = pa.array([bytes(row) for row in content_digests(text)], pa.binary(16))
    copies = pa.array(np.ones(len(text), np.int64))
    batch = join_equal(pa.record_batch({"digest": digests, "text": text, "copies": copies}))
    numbers = []
    for number, some in cut_batch(batch, partitions):
        stage_partition(str(scratch), number, some)
        numbers.append(number)
    return numbers


def find(documents, folder, partitions=4, shuffle_by="files", arguments=()):
    """{removed text: (representative, similarity)}, and the report of all."""
    staging, scratch = folder / ".staging", folder / "scratch"
    for made in (staging, scratch, folder / "removed", folder / "reports"):
        made.mkdir(parents=True)
    (folder / ".lock").write_text("")
    numbers = stage(documents, scratch, partitions)
    run = FindJob(
        rule=RULE,
        partitions=partitions,
        scratch=str(scratch),
        shuffle_by=shuffle_by,
        staging=str(staging),
        run="",
        local=str(staging),
        blocks=BLOCKS,
    )
    options = PipelineOptions(list(arguments))
    with beam.Pipeline("FnApiRunner", options) as pipeline:
        found: Any = pipeline | beam.Create(numbers) | FindNear(run)
        grouped = found["removed"] | beam.GroupByKey() | beam.MapTuple(lambda k, v: (k, list(v)))
        _ = grouped | "KeepRemoved" >> beam.ParDo(_Keep(folder / "removed"))
        _ = found["reports"] | "KeepReports" >> beam.ParDo(_Keep(folder / "reports"))
    reports = [pickle.loads(path.read_bytes())[1] for path in (folder / "reports").iterdir()]
    text_of = {}
    for number in numbers:
        batch = read_partition(str(scratch), number)
        text_of |= dict(zip(batch["digest"].to_pylist(), batch["text"].to_pylist(), strict=True))
    removed = {}
    for path in (folder / "removed").iterdir():
        key, values = pickle.loads(path.read_bytes())
        streams, received = receive(key, values, REMOVALS)
        reports.append(FindReport(deliveries=Deliveries(received=received)))
        text = read_partition(str(scratch), key)["text"]
        for row, whom, similarity in take_rows(streams, REMOVED):
            assert text[row].as_py() not in removed
            removed[text[row].as_py()] = text_of[whom.tobytes()], similarity
    return removed, FindReport.sum(reports), numbers


def check(report, numbers, partitions):
    """The lead of a run checks all reports so: each partition twice, all sent values arrived."""
    due = range(BLOCKS + 2 * partitions)
    others = {*due} - {BLOCKS + n for n in numbers} - {BLOCKS + partitions + n for n in numbers}
    whole = Deliveries.sum([report.deliveries, Deliveries(blocks=tuple(others))])
    check_deliveries(whole, list, len(due), name_tally)


WAYS = [
    (4, "files", ()),
    (1, "files", ()),
    (4, "runner", ()),
    (9, "runner", ("--direct_runner_bundle_repeat=2",)),
    (4, "files", ("--direct_running_mode=multi_threading", "--direct_num_workers=2")),
]


@pytest.mark.parametrize(("partitions", "shuffle_by", "arguments"), WAYS)
def test_any_way_to_run_gives_what_all_pairs_compared_give(
    tmp_path, partitions, shuffle_by, arguments
):
    removed, report, numbers = find(DOCUMENTS, tmp_path / "x", partitions, shuffle_by, arguments)
    expected = removals(DOCUMENTS)
    assert removed == expected and len(expected) > 50
    counts, clusters = (report.observed[n] for n in ("near_duplicates", "near_duplicate_clusters"))
    assert counts["removed"] == len(expected) and counts["compared"] == len(set(DOCUMENTS))
    assert sum(clusters.values()) == len({whom for whom, _ in expected.values()})
    assert counts["verified"] >= len(expected) and "uncompared" not in counts
    check(report, numbers, partitions)


@pytest.mark.parametrize("shuffle_by", ["files", "runner"])
def test_rounds_decide_the_same_and_batches_may_be_sent_at_any_time(
    tmp_path, monkeypatch, shuffle_by
):
    monkeypatch.setattr(job, "_PARTITIONS_OF_ONE_PLACE", 4)  # of more, some decide in rounds
    monkeypatch.setattr(shuffle, "BUFFER_BYTES", 20_000)
    monkeypatch.setattr("pipelines.corpus.near_duplicates.steps._DOCUMENTS_AT_ONCE", 10)
    monkeypatch.setattr("pipelines.corpus.near_duplicates.steps._BYTES_AT_ONCE", 1000)
    monkeypatch.setattr("pipelines.corpus.near_duplicates.buckets._PAIRS_AT_ONCE", 100)
    removed, report, numbers = find(DOCUMENTS, tmp_path / "x", 8, shuffle_by)
    assert removed == removals(DOCUMENTS)
    check(report, numbers, 8)


def test_what_is_lost_is_named(tmp_path):
    removed, report, numbers = find(DOCUMENTS[:100], tmp_path / "x", 2)
    sent, received = report.deliveries.sent, report.deliveries.received
    shuffles = {
        job.MEMBERS: "the buckets of partition",
        job.PAIRS: "the pairs and sets of partition",
        job.NAMES: "the clusters of partition",
        REMOVALS: "the near-duplicates of partition",
        job.ROUNDS: "the edges of round 1",
    }
    for shuffle_number, words in shuffles.items():
        is_lost = received[:, 0] >> np.uint64(40) == shuffle_number
        assert is_lost.any()
        lost = Deliveries(report.deliveries.blocks, sent, received[~is_lost])
        with pytest.raises(DataError, match=f"lost parts of {words}"):
            check(FindReport(deliveries=lost), numbers, 2)


def test_build_corpus_removes_what_all_pairs_of_5000_documents_say(tmp_path):
    documents = near_documents(5_000, seed=1)
    source = tmp_path / "source.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    flags = ["--near_duplicates=jaccard:0.8", "--bands=32x4", "--num_files=5"]
    main([f"--input={source}", f"--output={tmp_path / 'corpus'}", *flags])
    corpus = read_corpus(str(tmp_path / "corpus"))
    names = [file.path for file in corpus.documents], corpus.schema.removed_names()
    kept, removed = (
        pa.concat_tables([pq.read_table(tmp_path / "corpus" / name) for name in some]).to_pylist()
        for some in names
    )
    expected = removals(documents)
    assert len(expected) > 600
    assert {row["text"] for row in kept} == {*documents} - {*expected}
    assert {row["id"]: (row["representative"], row["similarity"]) for row in removed} == {
        digest_of(document).hex(): (digest_of(whom).hex(), similarity)
        for document, (whom, similarity) in expected.items()
    }


@pytest.mark.parametrize("documents", [["one two three four five six"], ["...", "!!!"]])
def test_nothing_near(tmp_path, documents):
    removed, report, numbers = find(documents, tmp_path / "x", 4)
    some = sum(document[0].isalpha() for document in documents)
    assert removed == {}
    assert report.observed == ({"near_duplicates": {"compared": some}} if some else {})
    check(report, numbers, 4)
