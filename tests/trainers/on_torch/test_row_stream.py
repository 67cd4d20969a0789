"""A stream of rows has the batches of ShardSet.batches with any workers and ranks, also resumed.

Tests of torchdata are skipped without it: `pip install torchdata`, which is pure Python.
"""

from itertools import islice

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from tests.tools.clm_factory import write_clm_set
from tests.tools.python_process import run_python
from tests.tools.shard_factory import write_mlm_set
from textmill.schemas.errors import UsageError
from textmill.schemas.format.layouts import huggingface
from textmill.trainers.on_torch.row_stream import RowStream
from textmill.trainers.reader import ShardSet, open_shards

pytestmark = [
    # torchdata 0.11 asks PyTorch for what 2.15 deprecates.
    pytest.mark.filterwarnings(r"ignore:'set_vital' is deprecated:UserWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker processes:UserWarning"),
]
BATCH, SEED = 12, 3
STEPS = 9  # of 12 rows: over the end of two epochs of 40 rows


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("stream") / "set"
    write_clm_set(directory)
    return str(directory)


@pytest.fixture(scope="module")
def shards(directory):
    return ShardSet(directory)


@pytest.fixture(scope="module")
def expected(shards):
    """Rows of each step, by the reader that needs no PyTorch."""
    batches = shards.batches("train", batch_size=BATCH, seed=SEED, stop_step=2 * STEPS)
    return [batch["row_index"].tolist() for batch in batches]


@pytest.fixture(scope="module")
def stateful():
    reason = "torchdata is not installed: pip install torchdata"
    return pytest.importorskip("torchdata.stateful_dataloader", reason=reason).StatefulDataLoader


def stream_of(shards, **changes):
    return RowStream(shards, **{"batch_size": BATCH, "seed": SEED, "stop_step": STEPS, **changes})


def rows_of(batches):
    return [batch["row_index"].tolist() for batch in batches]


MANY = [pytest.param(*numbers, marks=pytest.mark.slow) for numbers in ((1, 1), (1, 3), (4, 2))]


@pytest.mark.parametrize("ranks, workers", [(1, 0), (3, 0), (2, 2), *MANY])
def test_ranks_with_any_number_of_workers_share_the_batches(shards, expected, ranks, workers):
    streams = [stream_of(shards, rank=rank, ranks=ranks) for rank in range(ranks)]
    loaders = [DataLoader(stream, batch_size=None, num_workers=workers) for stream in streams]
    for _ in range(2):  # each time from the start
        found = [
            {name: np.concatenate([part[name].numpy() for part in step]) for name in step[0]}
            for step in zip(*loaders, strict=True)
        ]
        assert rows_of(found) == expected[:STEPS]
    for name, column in shards.read("train", np.array(expected[4])).items():
        np.testing.assert_array_equal(found[4][name], column)


SLOW = [
    pytest.param(*numbers, marks=pytest.mark.slow) for numbers in ((1, 1), (2, 4), (3, 1), (3, 4))
]


@pytest.mark.parametrize("workers, every", [(0, 1), (0, 4), *SLOW])
def test_a_loader_goes_on_where_it_stopped(stateful, shards, expected, workers, every):
    """Twice, at random steps; states are taken after every step, or rarely and counted on."""

    def loader_of():
        settings = {"num_workers": workers, "snapshot_every_n_steps": every}
        return stateful(stream_of(shards), batch_size=None, **settings)

    for seed in range(2):
        first, second = np.sort(np.random.default_rng(seed).choice(STEPS, 2, replace=False))
        loader = loader_of()
        found = rows_of(islice(loader, first))
        state = loader.state_dict()
        loader = loader_of()
        loader.load_state_dict(state)
        found += rows_of(islice(loader, second - first))
        state = loader.state_dict()
        loader = loader_of()
        loader.load_state_dict(state)
        assert found + rows_of(loader) == expected[:STEPS]
        assert rows_of(loader) == expected[:STEPS], "the next pass is whole"


@pytest.mark.parametrize(("before", "after", "stop"), [(0, 2, 1), (2, 0, 5), (3, 2, 0), (1, 3, 5)])
def test_another_number_of_workers_goes_on_by_resume(
    stateful, shards, expected, before, after, stop
):
    loader = stateful(
        stream_of(shards), batch_size=None, num_workers=before, snapshot_every_n_steps=2
    )
    found = rows_of(islice(loader, stop))
    resumed = stream_of(shards).resume(loader.state_dict())
    loader = stateful(resumed, batch_size=None, num_workers=after)
    found += rows_of(islice(loader, 2))
    again = stream_of(shards).resume(loader.state_dict())
    assert found + rows_of(DataLoader(again, batch_size=None)) == expected[:STEPS]


def test_another_number_of_ranks_goes_on_by_resume(stateful, shards, expected):
    """The state of any rank tells the step of all."""
    loaders = [
        stateful(stream_of(shards, rank=rank, ranks=2), batch_size=None, num_workers=2)
        for rank in range(2)
    ]
    parts = [rows_of(islice(loader, 4)) for loader in loaders]
    for state in [loader.state_dict() for loader in loaders]:
        streams = [stream_of(shards, rank=rank, ranks=3).resume(state) for rank in range(3)]
        later = [rows_of(DataLoader(stream, batch_size=None)) for stream in streams]
        steps = [*zip(*parts, strict=True), *zip(*later, strict=True)]
        assert [sum(step, []) for step in steps] == expected[:STEPS]


def test_without_a_loader(shards, expected):
    steps = iter(stream_of(shards, stop_step=None))
    assert rows_of(islice(steps, 5)) == expected[:5]
    again = iter(stream_of(shards, stop_step=None))
    again.load_state_dict(steps.state_dict())
    assert rows_of(islice(again, 5)) == rows_of(islice(steps, 5)) == expected[5:10]
    resumed = stream_of(shards, stop_step=11).resume(steps.state_dict())
    assert rows_of(resumed) == expected[10:11]


def test_what_a_batch_becomes_is_made_in_the_worker(shards, expected):
    stream = stream_of(shards, convert=huggingface, start_step=2, stop_step=3)
    (batch,) = DataLoader(stream, batch_size=None, num_workers=1)
    due = huggingface(shards.read("train", np.array(expected[2])))
    assert set(batch) == {"input_ids", "labels", "position_ids"} == set(due)
    for name, column in due.items():
        np.testing.assert_array_equal(batch[name].numpy(), column)
    assert batch["labels"].dtype == torch.int64


def test_a_mixture_is_read_by_its_weights(directory, tmp_path):
    write_clm_set(tmp_path / "other", train=20)
    mixture = ShardSet.mix({directory: 0.75, str(tmp_path / "other"): 0.25}, seed=SEED)
    batches = list(DataLoader(stream_of(mixture), batch_size=None, num_workers=2))
    due = list(mixture.batches("train", batch_size=BATCH, seed=SEED, stop_step=STEPS))
    for name in ("set_index", "row_index", "input_ids"):
        for batch, other in zip(batches, due, strict=True):
            np.testing.assert_array_equal(batch[name].numpy(), other[name])
    assert [int(batch["set_index"].sum()) for batch in batches] == [BATCH // 4] * STEPS


def test_a_mixture_in_stages(directory, tmp_path):
    """The state has the stages: the stream of others is another one."""
    write_clm_set(tmp_path / "other", train=20)
    paths = f"{directory},{tmp_path}/other"
    mixtures = [
        open_shards(paths, seed=SEED, batch_size=BATCH, stages=stages)
        for stages in ("0:set=1;4:other=1", "0:set=1;5:other=1")
    ]
    batches = list(DataLoader(stream_of(mixtures[0]), batch_size=None))
    due = mixtures[0].batches("train", batch_size=BATCH, seed=SEED, stop_step=STEPS)
    for batch, other in zip(batches, due, strict=True):
        np.testing.assert_array_equal(batch["row_index"].numpy(), other["row_index"])
    assert [int(batch["set_index"].sum()) for batch in batches] == [0] * 4 + [BATCH] * 5
    state = iter(stream_of(mixtures[0])).state_dict()
    stream_of(mixtures[0]).check(state)
    due = "order was '0:set=1;4:other=1, shares of tokens, steps of 12 rows' and is '0:set=1;5:"
    with pytest.raises(UsageError, match=due):
        stream_of(mixtures[1]).check(state)


def test_a_state_that_does_not_fit_is_refused(shards, tmp_path):
    """A stream resumes no other stream, task, text or worker, and no other content."""
    stream = stream_of(shards)
    state = iter(stream).state_dict()
    write_mlm_set(tmp_path / "mlm")
    write_clm_set(tmp_path / "text", step=0)
    splits = "split was 'train' and is 'validation'; rows was 40 and is 10"
    for other, said in (
        (stream_of(shards, seed=4), "seed was 3 and is 4"),
        (stream_of(shards, batch_size=24), "batch_size was 12 and is 24"),
        (stream_of(shards, split="validation"), splits),
        (stream_of(ShardSet(str(tmp_path / "mlm"))), "fingerprint was"),
        (stream_of(ShardSet(str(tmp_path / "text"))), "fingerprint was"),
    ):
        with pytest.raises(UsageError, match=said):
            iter(other).load_state_dict(state)
        with pytest.raises(UsageError, match=said):
            other.resume({"deep": {"down": state}})
    with pytest.raises(UsageError, match="of worker 1 of 2, and this is 0 of 1: use Row"):
        iter(stream).load_state_dict(dict(state, worker=1, workers=2))
    for content in ({}, {"step": 3}, {"one": dict(state, workers=2)}):
        with pytest.raises(UsageError, match="not a state of a RowStream"):
            stream.resume(content)


def test_ranks_that_are_not_known_are_refused(shards, monkeypatch):
    with pytest.raises(UsageError, match="12 rows cannot be shared by 5 processes"):
        stream_of(shards, rank=0, ranks=5)
    with pytest.raises(UsageError, match="give both rank and ranks"):
        stream_of(shards, rank=0)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="each process would read all rows"):
        stream_of(shards)
    assert stream_of(shards, rank=1, ranks=2)


@pytest.mark.slow  # four processes that train, and their workers
def test_two_processes_under_ddp_are_one():
    """Also resumed; in a process of its own, which can fork before threads of other tests run."""
    done = run_python("-m", "tests.interop.ddp_on_two_processes")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the same rows") == 2
    print(done.stdout)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_workers": 2},
        pytest.param({"num_workers": 2, "persistent_workers": True}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_passes_after_a_resumed_one_begin_at_the_first_step(shards, expected, options):
    loader = DataLoader(stream_of(shards, start_step=5), batch_size=None, **options)
    passes = [rows_of(loader) for _ in range(3)]
    assert passes == [expected[5:STEPS], expected[:STEPS], expected[:STEPS]]


def test_a_pass_that_was_left_begins_where_it_began(shards, expected):
    stream = stream_of(shards, start_step=5)
    for _ in range(2):
        assert rows_of(islice(stream, 2)) == expected[5:7]
    assert rows_of(stream) == expected[5:STEPS] and rows_of(stream) == expected[:STEPS]
