"""A run notices lost elements, and Beam's local runner loses none any more."""

import inspect
import re
from collections import Counter
from pkgutil import resolve_name

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
import xxhash
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.worker import data_plane, sdk_worker_main
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.places import ROOT
from tests.tools.python_process import run_python
from textmill.pipelines import build_shards, train_tokenizer
from textmill.pipelines.readers.sources import Block
from textmill.pipelines.readers.stored import Part
from textmill.pipelines.runners.beam_run import run_pipeline
from textmill.pipelines.runners.launch import IN_PROCESS
from textmill.pipelines.runners.shuffle import (
    DeliveryReport,
    ShuffleWriter,
    add_tallies,
    check_deliveries,
    count_and_hash,
    place_of_key,
    receive,
)
from textmill.pipelines.tokenizer.word_counter import BUCKETS
from textmill.schemas.errors import DataError

PLAN = [Block(n, (Part("a.txt", 90, 30 * n, 30 * n + 30),)) for n in range(3)]


@given(st.lists(st.lists(st.tuples(st.integers(0, 5), st.binary(max_size=3)))))
def test_tallies_add_up_in_any_order(bundles):
    counts, sums = Counter(), Counter()
    for key, value in (pair for bundle in bundles for pair in bundle):
        counts[key] += 1
        sums[key] = (sums[key] + xxhash.xxh3_64_intdigest(value)) % 2**64
    expected = [[key, counts[key], sums[key]] for key in sorted(counts)]
    tallies = [count_and_hash(bundle) for bundle in bundles]
    total = add_tallies(tallies)
    assert (total.shape, total.dtype) == ((len(counts), 3), np.uint64)
    assert total.tolist() == add_tallies(tallies[::-1]).tolist() == expected


@pytest.mark.parametrize("shuffle_by", ["runner", "files"])
@pytest.mark.parametrize("shuffle", [(), (3,)])
def test_what_a_shuffle_writer_sends_arrives_with_its_tally(shuffle_by, shuffle, tmp_path):
    """Two batches of a key travel together; by the runner, in parts of about 1 MiB."""
    last, large = (1 << 40) - 1, [b"x" * (2 << 20)] * 3
    values = {last: [list(range(300_000)), [1, 2, 3]], 5: [[0, 1]], 7: [large]}
    batches = [
        (key, pa.record_batch({"n": pa.array(part)})) for key in values for part in values[key]
    ]
    writer = ShuffleWriter(shuffle_by, str(tmp_path), *shuffle)
    assert writer.bytes == 0
    writer.add(batches)
    assert writer.bytes == sum(batch.nbytes for _, batch in batches)
    assert writer.is_full == (shuffle_by == "files")
    sent = writer.send()
    is_cut = shuffle_by == "runner"
    assert Counter(key for key, _ in sent) == {last: 1 + 2 * is_cut, 5: 1, 7: 1 + 2 * is_cut}
    files = list(tmp_path.iterdir())
    assert len(files) == (shuffle_by == "files")
    tallies = []
    for key, parts in values.items():
        arrived = [b"", *(value for other, value in sent if other == key)]
        streams, counted = receive(key, arrived, *shuffle)
        tallies.append(counted)
        columns = [pa.ipc.open_stream(stream).read_all()["n"] for stream in streams]
        assert [x for column in columns for x in column.to_pylist()] == sum(parts, [])
    assert add_tallies(tallies).tolist() == writer.sent.tolist()
    places = [place_of_key(key) for key, *_ in writer.sent.tolist()]
    assert places == [(sum(shuffle), key) for key in (5, 7, last)]
    assert (writer.bytes, writer.send(), list(tmp_path.iterdir())) == (0, [], files)


SENT = count_and_hash([(0, b"a"), (1, b"b"), (1, b"c")])


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            DeliveryReport((0, 2), SENT, SENT),
            r"lost .* block 1 \(a.txt, bytes 30 to 60\): nothing was",
        ),
        (DeliveryReport((1,), SENT, SENT), r"lost .* block 0 .* and of 1 more blocks: nothing"),
        (DeliveryReport((0, 1, 2, 2), SENT, SENT), r"twice .* block 2 \(a.txt, bytes 60 to 90\): "),
        (
            DeliveryReport((0, 1, 2), SENT, SENT[:1]),
            "parts of key 1: 0 of 2 parts arrived; nothing",
        ),
        (
            DeliveryReport((0, 1, 2), SENT[:1], SENT),
            "parts of key 1: 2 of 0 parts arrived; nothing",
        ),
        (
            DeliveryReport((0, 1, 2), SENT, count_and_hash([])),
            "of key 0 and of 1 more keys: 0 of 1 parts",
        ),
        (
            DeliveryReport((0, 1, 2), SENT, count_and_hash([(0, b"a"), (1, b"b"), (1, b"d")])),
            "parts of key 1: different bytes arrived; nothing was published; run",
        ),
    ],
)
def test_a_lost_delivery_is_named(found, words):
    with pytest.raises(DataError, match=words):
        check_deliveries(found, lambda: PLAN, 3, "key {}".format)


def losing(is_lost):
    """Makes of a step that yields elements one that swallows some, as a runner that loses them."""
    return lambda step: lambda *given: (e for e in step(*given) if not is_lost(e))


def lose_a_sum(step):
    """In the second shuffle, one bucket's sum does not reach the last step."""
    return lambda self, everything: step(self, (everything[0], list(everything[1])[1:]))


def lose(monkeypatch, step, leak):
    """Replaces a step by the leaky one."""
    monkeypatch.setattr(f"pipelines.{step}", leak(resolve_name(f"pipelines.{step}")))


THE_END = r"before its last step \(a Dataflow template runs no job\): nothing was"


@pytest.mark.parametrize(
    ("step", "is_lost", "words"),
    [
        (
            "shards.transforms.RouteBlock.finish_bundle",
            lambda e: e.tag == "reports",
            r"its workers' report on block 0 \(.*jsonl, bytes 0 to [\d,]+\): not",
        ),
        (
            "shards.transforms.RouteBlock.process",
            lambda e: e.value[0] == 1,
            "parts of the shard train-00001-of-00003: 0 of 1 parts arrived; nothing",
        ),
        (
            "shards.transforms.WriteShard.process",
            lambda e: "train-00001-of-00003" in e[1].statistics.shards,
            "lost (parts of|its workers' report on) the shard train-00001-of-00003",
        ),
    ],
)
def test_build_shards_notices_what_is_lost(
    step, is_lost, words, corpus, tokenizer_path, tmp_path, monkeypatch
):
    lose(monkeypatch, step, losing(is_lost))
    output = tmp_path / "set"
    flags = [f"--input={corpus}", f"--tokenizer={tokenizer_path}", f"--output={output}"]
    with pytest.raises(DataError, match=words):
        build_shards.main([*flags, "--num_shards=3", f"--runner={IN_PROCESS}"])
    assert not [path.name for path in output.glob("*") if path.name != ".lock"]


def test_an_older_set_is_not_taken_for_a_run_that_lost_its_end(
    corpus, tokenizer_path, tmp_path, monkeypatch
):
    flags = [f"--input={corpus}", f"--tokenizer={tokenizer_path}", f"--output={tmp_path / 'set'}"]
    build_shards.main(flags)
    lose(monkeypatch, "shards.transforms._publish", lambda step: lambda *_: None)
    with pytest.raises(DataError, match=THE_END):
        build_shards.main([*flags, "--overwrite"])


COUNT = "tokenizer.transforms.CountBlocks.finish_bundle"
ADD_UP = "tokenizer.transforms.WriteHistogram.process"


@pytest.mark.parametrize(
    ("step", "leak", "words"),
    [
        (COUNT, losing(lambda e: e.value[0] == -1), r"workers' report on block 0 \("),
        (COUNT, losing(lambda e: e.value[0] == 5), "bucket 5 of the words: 0 of 1"),
        (COUNT, losing(lambda e: e.value[0] == BUCKETS), "the sample: 0 of 1"),
        (ADD_UP, lose_a_sum, r"bucket \d+ of|of the sample: 0 of|said of block 0"),
        (ADD_UP, lambda step: lambda *_: iter(()), THE_END),
    ],
)
def test_train_tokenizer_notices_what_is_lost(step, leak, words, corpus, tmp_path, monkeypatch):
    lose(monkeypatch, step, leak)
    with pytest.raises(DataError, match=words):
        train_tokenizer.main([f"--input={corpus}", f"--output={tmp_path}/t", "--vocab_size=300"])


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
    arguments = [f"--runner={IN_PROCESS}", f"--direct_running_mode={mode}"]
    run_pipeline(
        lambda pipeline: pipeline | beam.Create([1, 2]) | beam.Reshuffle() | beam.Map(abs),
        [*arguments, "--direct_num_workers=2"],
        local=str(tmp_path),
        total_bytes=0,
        label="test",
    )
    assert {type(s) for s in made} == {data_plane.SizeBasedBufferingClosableOutputStream}
    assert sdk_worker_main._get_data_buffer_time_limit_ms([]) == 0  # what worker processes take
    # Else Beam has changed, and patch_beam need not turn its timer off any more.
    assert "\nDATA_BUFFER_TIME_LIMIT_MS = 1000\n" in inspect.getsource(worker_handlers)


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
