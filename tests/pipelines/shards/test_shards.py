"""Documents -> the rows of a shard: nothing lost, nothing left to chance."""

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.segments import segments
from tests.tools.shard_factory import mlm_schema
from textmill.pipelines.rows.example_batch import MARK, ExampleBatch, keep, to_stream
from textmill.pipelines.rows.ragged import Ragged
from textmill.pipelines.runners.shuffle import ShuffleWriter
from textmill.pipelines.shards.steps import RowMaker
from textmill.pipelines.tasks.mlm import Mlm
from textmill.pipelines.writers.scratch import load, write_scratch
from textmill.schemas.format.drops import mark_of
from textmill.schemas.format.features import unmask
from textmill.schemas.format.statistics import ShardStatistics, Statistics

VOCABULARY = 300


def schema(**changes):
    one_shard = {"splits": {"train": 1.0}, "shards": {"train": 1}}
    return mlm_schema(**{"vocab_size": VOCABULARY, **one_shard, **changes})


def example_batch(documents, numbers):
    """Documents with made-up content hashes: `numbers` spread over 128 bits."""
    digests = np.array(
        [list((n * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128).to_bytes(16)) for n in numbers],
        np.uint8,
    ).reshape(-1, 16)
    ids = np.array([i for d in documents for i in d], np.uint16)
    offsets = np.cumsum([0] + [len(d) for d in documents]).astype(np.int64)
    return ExampleBatch.of(
        digests, np.array([len(d) * 4 for d in documents]), {"ids": Ragged(ids, offsets)}
    )


def maker(contract):
    tokenizer: Any = None  # masks need the schema alone
    return RowMaker(contract, Mlm(), Mlm().finish(contract, tokenizer))


def make(documents, numbers=None, split="train", **changes):
    contract = schema(**changes)
    numbers = range(len(documents)) if numbers is None else numbers
    shard = maker(contract).make(keep(example_batch(documents, numbers)), split)
    assert shard is not None
    rows = [contract.codec().decode(chunk) for chunk in shard.chunks()]
    return shard, {name: np.concatenate([r[name] for r in rows]) for name in rows[0]}


documents_of_any_length = st.lists(
    st.lists(st.integers(5, VOCABULARY - 1), min_size=1, max_size=50), min_size=1, max_size=30
)


@given(
    documents_of_any_length, st.booleans(), st.integers(1, 3), st.sampled_from(["best_fit", "none"])
)
def test_every_piece_of_every_document_is_in_the_rows(documents, static, copies, packing):
    copies, numbers = copies if static else 1, [*range(len(documents)), 0, 0]
    changes = {"static_masking": static, "mask_copies": copies, "packing": packing}
    shard, columns = make(documents + documents[:1] * 2, numbers, **changes)
    pieces = [
        (0, *document[i : i + 14], 2) for document in documents for i in range(0, len(document), 14)
    ]
    assert sorted(segments(columns)) == sorted(pieces * copies)
    statistics = shard.statistics
    assert statistics.documents == len(documents) and statistics.dropped["duplicates"] == 2
    assert statistics.tokens == sum(map(len, documents))
    assert statistics.specials_added == 2 * len(pieces)
    due = (statistics.tokens + statistics.specials_added) * copies
    assert statistics.tokens_in_rows == due == int((columns["segment_ids"] > 0).sum())
    assert statistics.rows == len(columns["input_ids"])
    assert statistics.segments == len(pieces) * copies
    if static:
        assert statistics.masked == int(columns["masked_weights"].sum())
    padding = columns["segment_ids"] == 0
    assert (columns["input_ids"][padding] == 1).all()


@given(documents_of_any_length)
def test_the_stream_is_cut_and_whole(documents):
    shard, columns = make(documents, packing="concat")
    tokens = sorted(i for segment in segments(columns) for i in segment)
    assert tokens == sorted(i for d in documents for i in (0, *d, 2))
    full = (columns["segment_ids"] > 0).all(axis=1)
    assert (~full).sum() <= 1, "only the stream's last row may have padding"
    assert shard.statistics.specials_added == 2 * len(documents)


@given(documents_of_any_length, st.randoms())
def test_the_order_of_arrival_never_shows(documents, random):
    _, columns = make(documents)
    order = list(range(len(documents)))
    random.shuffle(order)
    _, again = make([documents[i] for i in order], order)
    assert all((columns[name] == again[name]).all() for name in columns)


@given(documents_of_any_length, st.integers(1, 3), st.sampled_from(["best_fit", "concat", "none"]))
def test_only_training_splits_have_copies(documents, copies, packing):
    changes = {"splits": {"train": 0.5, "validation": 0.5}, "shards": {"train": 1, "validation": 1}}
    changes |= {"packing": packing}
    once, rows = make(documents, split="validation", **changes, mask_copies=1)
    again, same = make(documents, split="validation", **changes, mask_copies=copies)
    assert again.statistics == once.statistics
    assert all((rows[name] == same[name]).all() for name in rows)
    trained, _ = make(documents, split="train", **changes, mask_copies=copies)
    assert trained.statistics.rows == copies * once.statistics.rows
    stats = Statistics(
        documents_read=2 * once.statistics.documents,
        shards={
            "train-00000-of-00001": trained.statistics,
            "validation-00000-of-00001": again.statistics,
        },
    )
    contract = schema(**changes, mask_copies=copies)
    assert (contract.copies_of("train"), contract.copies_of("validation")) == (copies, 1)
    assert stats.broken_equations(contract.copies_of) == []


def test_copies_are_masked_differently_and_spread():
    documents = [
        [int(i) for i in row] for row in np.random.default_rng(0).integers(5, 300, (99, 14))
    ]
    _, columns = make(documents, mask_copies=3)
    plain = [tuple(row.tolist()) for row in unmask(columns)]
    places = {}
    for row, positions in zip(plain, columns["masked_positions"], strict=True):
        places.setdefault(row, []).append(tuple(positions.tolist()))
    assert all(len(p) == 3 for p in places.values())
    assert np.mean([len(set(p)) for p in places.values()]) > 2.8
    neighbours = sum(a == b for a, b in zip(plain, plain[1:], strict=False))
    assert neighbours < 20, "copies do not lie side by side"


def test_the_seed_changes_masks_and_order_but_no_segment():
    documents = [[5 + i, 6 + i, 7 + i] for i in range(50)]
    (_, one), (_, other) = make(documents, seed=1), make(documents, seed=2)
    assert (one["input_ids"] != other["input_ids"]).any()
    assert sorted(segments(one)) == sorted(segments(other))


def test_no_documents_make_no_rows():
    contract = schema()
    held_out = example_batch([[]], [1])
    held_out = ExampleBatch(held_out.batch.append_column(MARK, pa.array([mark_of("held_out")])))
    shard = maker(contract).make(keep(held_out), "train")
    assert list(shard.chunks()) == [] and shard.statistics == ShardStatistics()
    assert [mark_of(reason) for reason in ("held_out", "near_duplicates")] == [2, 3]


def test_example_batches_survive_the_journey(tmp_path):
    first = example_batch([[5, 6], [7]], [1, 2])
    sent = [to_stream(first.slice(1, 2).batch), to_stream(example_batch([[8, 9, 9]], [3]).batch)]
    pointers = write_scratch(str(tmp_path), sent)
    assert [load(pointer) for pointer in pointers] == [load(value) for value in sent] == sent
    # Those of a route travel together.
    held = ShuffleWriter("runner", "")
    examples = example_batch([[5, 6], [7]], [1, 2]), example_batch([[8]], [3])
    held.add([(3, examples[0].batch), (0, examples[1].batch)])
    assert held.bytes == 3 * (16 + 8 + 8) + 4 * 2  # digests, lengths, places, ids
    held.add([(3, example_batch([[9]], [4]).batch)])
    taken = {route: ExampleBatch(batch) for route, batch in held.take()}
    assert taken[3].ragged("ids", "uint16")[0].tolist() == [5, 6, 7, 9]
    assert taken[0].ragged("ids", "uint16")[0].tolist() == [8]
    assert (held.bytes, held.take()) == (0, [])
