"""A run notices lost elements, and Beam's local runner loses none any more."""

import json
import re
import time
from collections import Counter

import apache_beam as beam
import numpy as np
import pytest
import xxhash
from apache_beam.runners.worker import data_plane, sdk_worker_main
from hypothesis import given
from hypothesis import strategies as st

from pipelines import build_shards, train_tokenizer
from pipelines.build import transforms
from pipelines.readers.sources import Block
from pipelines.readers.stored import Part
from pipelines.runners.beam_run import run_pipeline
from pipelines.runners.launch import IN_PROCESS
from pipelines.runners.shuffle import (
    Deliveries,
    add_tallies,
    check_deliveries,
    tally,
)
from pipelines.train import transforms as counting
from pipelines.train.word_counter import BUCKETS
from schemas.errors import DataError
from tests.tools.places import ROOT
from tests.tools.python_process import run_python

PLAN = [Block(n, (Part("a.txt", 90, 30 * n, 30 * n + 30),)) for n in range(3)]


def hashed(value):
    return xxhash.xxh3_64_intdigest(value)


def test_a_tally_by_hand():
    found = tally([(7, b"x"), (9, b"y"), (7, b"x")])
    assert found.dtype == np.uint64
    assert found.tolist() == [[7, 2, 2 * hashed(b"x") % 2**64], [9, 1, hashed(b"y")]]
    assert tally([]).shape == add_tallies([]).shape == (0, 3)


@given(st.lists(st.lists(st.tuples(st.integers(0, 5), st.binary(max_size=3)))))
def test_tallies_add_up_in_any_order(bundles):
    counts, sums = Counter(), Counter()
    for key, value in (pair for bundle in bundles for pair in bundle):
        counts[key] += 1
        sums[key] = (sums[key] + hashed(value)) % 2**64
    expected = [[key, counts[key], sums[key]] for key in sorted(counts)]
    tallies = [tally(bundle) for bundle in bundles]
    assert add_tallies(tallies).tolist() == add_tallies(tallies[::-1]).tolist() == expected


SENT = tally([(0, b"a"), (1, b"b"), (1, b"c")])


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Deliveries((0, 2), SENT, SENT), r"lost .* block 1 \(a.txt, bytes 30 to 60\): nothing was"),
        (Deliveries((1,), SENT, SENT), r"lost .* block 0 .* and of 1 more blocks: nothing"),
        (Deliveries((0, 1, 2, 2), SENT, SENT), r"twice .* block 2 \(a.txt, bytes 60 to 90\): "),
        (Deliveries((0, 1, 2), SENT, SENT[:1]), "parts of key 1: 0 of 2 parts arrived; nothing"),
        (Deliveries((0, 1, 2), SENT, tally([])), "of key 0 and of 1 more keys: 0 of 1 parts"),
        (
            Deliveries((0, 1, 2), SENT, tally([(0, b"a"), (1, b"b"), (1, b"d")])),
            "parts of key 1: different bytes arrived; nothing was published; run",
        ),
    ],
)
def test_a_lost_delivery_is_named(found, words):
    with pytest.raises(DataError, match=words):
        check_deliveries(found, lambda: PLAN, 3, "key {}".format)


def test_whole_deliveries_pass():
    parts = [
        Deliveries((2,), SENT[1:]),
        Deliveries((), received=SENT),
        Deliveries((1, 0), SENT[:1]),
    ]
    check_deliveries(Deliveries.sum(parts), lambda: PLAN, 3, "key {}".format)


# Each swallows some elements that a step gives, as a runner would that loses them.
LOSSES = {
    "a bundle's report": ("RouteBlock.finish_bundle", lambda e: e.tag == "reports"),
    "a shard's examples": ("RouteBlock.process", lambda e: e.value[0] == 1),
    "a shard's report": (
        "WriteShard.process",
        lambda e: "train-00001-of-00003" in e[1].statistics.shards,
    ),
    "the end": ("_publish", lambda e: True),
}
SAID = {
    "a bundle's report": r"its workers' report on block 0 \(.*jsonl, bytes 0 to [\d,]+\): not",
    "a shard's examples": "parts of the shard train-00001-of-00003: 0 of 1 parts arrived; nothing",
    "a shard's report": "lost (parts of|its workers' report on) the shard train-00001-of-00003",
    "the end": r"before its last step \(a Dataflow template runs no job\): nothing was",
}


def swallow(monkeypatch, module, place, is_lost):
    owner, name = place.split(".") if "." in place else ("", place)
    holder = getattr(module, owner) if owner else module
    step = getattr(holder, name)

    def leaky(*arguments):
        if place == "_publish":  # whose element is the report of everything
            return None
        return (element for element in step(*arguments) if not is_lost(element))

    monkeypatch.setattr(holder, name, leaky)


@pytest.mark.parametrize("lost", LOSSES)
def test_build_shards_notices_what_is_lost(lost, corpus, tokenizer_path, tmp_path, monkeypatch):
    swallow(monkeypatch, transforms, *LOSSES[lost])
    output = tmp_path / "set"
    flags = [f"--input={corpus}", f"--tokenizer={tokenizer_path}", f"--output={output}"]
    with pytest.raises(DataError, match=SAID[lost]):
        build_shards.main([*flags, "--num_shards=3", f"--runner={IN_PROCESS}"])
    assert not [path.name for path in output.glob("*") if path.name != ".lock"]


def test_an_older_set_is_not_taken_for_a_run_that_lost_its_end(
    corpus, tokenizer_path, tmp_path, monkeypatch
):
    flags = [f"--input={corpus}", f"--tokenizer={tokenizer_path}", f"--output={tmp_path / 'set'}"]
    build_shards.main(flags)
    swallow(monkeypatch, transforms, *LOSSES["the end"])
    with pytest.raises(DataError, match=SAID["the end"]):
        build_shards.main([*flags, "--overwrite"])


@pytest.mark.parametrize(
    ("place", "is_lost", "words"),
    [
        ("CountBlocks.finish_bundle", lambda e: e.value[0] == -1, r"workers' report on block 0 \("),
        (
            "CountBlocks.finish_bundle",
            lambda e: e.value[0] == 5,
            "bucket 5 of the words: 0 of 1",
        ),
        (
            "CountBlocks.finish_bundle",
            lambda e: e.value[0] == BUCKETS,
            "the sample: 0 of 1",
        ),
        ("WriteHistogram.process", lambda e: True, SAID["the end"]),
    ],
)
def test_train_tokenizer_notices_what_is_lost(place, is_lost, words, corpus, tmp_path, monkeypatch):
    swallow(monkeypatch, counting, place, is_lost)
    if "Write" in place:
        monkeypatch.setattr(counting.WriteHistogram, "process", lambda *_: iter(()))
    with pytest.raises(DataError, match=words):
        train_tokenizer.main([f"--input={corpus}", f"--output={tmp_path}/t", "--vocab_size=300"])


def test_train_tokenizer_notices_a_sum_that_is_lost(corpus, tmp_path, monkeypatch):
    """In the second shuffle, one bucket's sum does not reach the last step."""
    process = counting.WriteHistogram.process

    def leaky(self, everything):
        key, values = everything
        yield from process(self, (key, list(values)[1:]))

    monkeypatch.setattr(counting.WriteHistogram, "process", leaky)
    with pytest.raises(DataError, match=r"bucket \d+ of|of the sample: 0 of|said of block 0"):
        train_tokenizer.main([f"--input={corpus}", f"--output={tmp_path}/t", "--vocab_size=300"])


ALL = list(range(25))


class EmitSlowly(beam.DoFn):
    """A number -> 25 elements in 2.5 seconds."""

    def process(self, number):
        for part in ALL:
            time.sleep(0.1)
            yield number, part


def run_with(mode, tmp_path, build):
    arguments = [f"--runner={IN_PROCESS}", f"--direct_running_mode={mode}"]
    arguments += ["--direct_num_workers=2"]
    run_pipeline(build, arguments, local=str(tmp_path), total_bytes=0, label="test")


def test_a_flush_that_dawdles_loses_nothing(tmp_path, monkeypatch):
    """Beam flushes from a second thread what another one writes; here that is sure to meet."""

    def dawdle(stream):
        data = stream.get()
        stream._flush_callback(data)
        time.sleep(0.5)
        stream._clear()

    monkeypatch.setattr(data_plane.SizeBasedBufferingClosableOutputStream, "flush", dawdle)

    def build(pipeline):
        _ = (
            pipeline
            | beam.Create([1, 2])
            | beam.Reshuffle()
            | beam.ParDo(EmitSlowly())
            | beam.GroupByKey()
            | beam.Map(lambda keyed: (tmp_path / str(keyed[0])).write_text(str(list(keyed[1]))))
        )

    run_with("multi_threading", tmp_path, build)
    assert [sorted(json.loads((tmp_path / name).read_text())) for name in "12"] == [ALL, ALL]


@pytest.mark.parametrize(
    "mode", ["multi_threading", pytest.param("multi_processing", marks=pytest.mark.slow)]
)
def test_no_stream_of_a_local_run_is_flushed_by_a_timer(mode, tmp_path, monkeypatch):
    made = []
    create = data_plane.ClosableOutputStream.create

    def keep(*arguments):
        made.append(create(*arguments))
        return made[-1]

    monkeypatch.setattr(data_plane.ClosableOutputStream, "create", staticmethod(keep))
    run_with(mode, tmp_path, lambda p: p | beam.Create([1, 2]) | beam.Reshuffle() | beam.Map(abs))
    assert {type(s) for s in made} == {data_plane.SizeBasedBufferingClosableOutputStream}
    assert sdk_worker_main._get_data_buffer_time_limit_ms([]) == 0  # what worker processes take


@pytest.mark.slow
def test_the_reproduction_on_the_page_runs(tmp_path):
    """Quickly: it gives so few elements that no flush meets them."""
    page = (ROOT / "docs" / "beam_local_runner.md").read_text()
    [code] = re.findall("```python\n(.*?)```", page, re.S)
    assert len(code.splitlines()) <= 30
    program = tmp_path / "lost.py"
    program.write_text(code.replace("100_000", "100"))
    run = run_python(program, check=True)
    assert sorted(run.stdout.splitlines()) == [f"key {k}: 0 of 100 elements lost" for k in "abcd"]
