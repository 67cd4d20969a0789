"""Traces of runs on built datasets equal the documents decoded from the batches of all hosts.

Each document repeats one word of its own, so that any token of it names it.
"""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

from tests.tools.numpy_program import NumpyProgram, run_numpy
from tests.tools.shard_factory import tokenizer_json
from textmill.pipelines.build_shards import main as build_shards
from textmill.schemas.format.digests import Digests
from textmill.schemas.format.features import unmask
from textmill.trainers.flags.command_line import make_flags
from textmill.trainers.flax_clm import FlaxClmFlags
from textmill.trainers.flax_mlm import FlaxMlmFlags
from textmill.trainers.run.journal import METRICS, MetricsFile
from textmill.trainers.run.plan import plan_run
from textmill.trainers.run.prepare import prepare_directory
from textmill.trainers.use.trace_reports import find_nothing, report_document, report_step
from textmill.trainers.use.traced_run import open_traced

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_picture")]
WORDS = 400
FIRST = 5  # id of the first word
SETS = {
    "mlm_best_fit": ("--task=mlm",),
    "mlm_concat": ("--task=mlm", "--packing=concat", "--no_static_masking"),
    "mlm_copies": ("--task=mlm", "--packing=none", "--mask_copies=3"),
    "clm_best_fit": ("--task=clm",),
    "clm_concat": ("--task=clm", "--packing=concat"),
    "clm_none": ("--task=clm", "--packing=none"),
}
STAGES = "0:clm_best_fit=0.7,clm_concat=0.3;9:clm_none=1;60%:clm_none=0.1,clm_concat=0.9"
MIXED = "{clm_best_fit}:0.5,{clm_concat}:0.2,{clm_none}:0.3"
RUNS = {  # name: --shards, hosts, other flags
    "mlm_best_fit": ("{mlm_best_fit}", 1, {}),
    "mlm_concat": ("{mlm_concat}", 1, {"seed": 7}),
    "mlm_copies": ("{mlm_copies}", 3, {}),
    "clm_best_fit": ("{clm_best_fit}", 3, {"epochs": 4.5}),
    "clm_concat": ("{clm_concat}", 1, {"epochs": 3}),
    "clm_none": ("{clm_none}", 1, {}),
    "mixture": (MIXED, 1, {"seed": 2}),
    "mixture_3": (MIXED, 3, {"tokens": 20_000}),
    "windowed": ("{clm_concat}", 3, {"order": "window", "epochs": 2.5}),
    "windowed_stages": (
        "{clm_best_fit},{clm_concat},{clm_none}",
        1,
        {"order": "window", "stages": STAGES},
    ),
    "stages": ("{clm_best_fit},{clm_concat},{clm_none}", 3, {"stages": STAGES, "steps": 110}),
}


@pytest.fixture(scope="module")
def sets(tmp_path_factory) -> dict[str, str]:
    """Directories by name."""
    folder = tmp_path_factory.mktemp("sets")
    lengths = np.random.default_rng(0).integers(2, 60, WORDS).tolist()
    (folder / "tokenizer.json").write_bytes(tokenizer_json(FIRST + WORDS))
    (folder / "text.txt").write_text("".join(f"{_text(n, k)}\n" for n, k in enumerate(lengths)))
    found = {}
    for name, flags in SETS.items():
        found[name] = str(folder / name)
        build_shards(
            [
                f"--input={folder}/text.txt",
                f"--tokenizer={folder}/tokenizer.json",
                f"--output={folder}/{name}",
                *("--document=line", "--max_length=32", "--num_shards=train:3,validation:1"),
                *flags,
            ]
        )
    return found


def _text(number: int, length: int) -> str:
    return " ".join([f"w{FIRST + number}"] * length)


@pytest.fixture(scope="module")
def digests(sets) -> dict[int, str]:
    """The digest of each document, by the id of its word."""
    lines = Path(sets["clm_none"]).parent.joinpath("text.txt").read_bytes().splitlines()
    return {FIRST + n: xxhash.xxh3_128_hexdigest(line) for n, line in enumerate(lines)}


def decode(batch: dict[str, np.ndarray]) -> tuple[Counter[int], list[Counter[int]]]:
    """Tokens of each word's segments in a batch (0: of no word), and those of each row."""
    rows = []
    for ids, segments in zip(unmask(batch), batch["segment_ids"], strict=True):
        counts: Counter[int] = Counter()
        for segment in range(1, int(segments.max()) + 1):
            own = ids[segments == segment]
            counts[int(own.max()) if own.max() >= FIRST else 0] += len(own)
        rows.append(counts)
    return sum(rows, Counter()), rows


def read_of_hosts(flags: Any, steps: int, hosts: int) -> Iterator[dict[str, np.ndarray]]:
    """The batches of all hosts, put together."""
    parts = [
        flags.open().batches(
            flags.data.train_split,
            batch_size=flags.compute.batch_size,
            seed=flags.compute.seed,
            stop_step=steps,
            process_index=index,
            process_count=hosts,
            prefetch=0,
        )
        for index in range(hosts)
    ]
    for batches in zip(*parts, strict=True):
        yield {name: np.concatenate([one[name] for one in batches]) for name in batches[0]}


def check(run: Path, seen: dict[int, dict[str, np.ndarray]], digests: dict[int, str]) -> None:
    """Compares the traces of 120 steps and 120 documents with what was seen."""
    traced, choose = open_traced(str(run)), random.Random(1)
    assert traced.steps == max(seen)
    steps_of: dict[str, Counter[int]] = {digest: Counter() for digest in digests.values()}
    odd = 0
    for step, batch in seen.items():
        for row in decode(batch)[1]:
            odd += row[0]
            for word in row.keys() - {0}:
                steps_of[digests[word]][step] += 1
    for step in choose.sample(sorted(seen), min(120, len(seen))):
        counts = decode(seen[step])[0]
        unknown = counts.pop(0, 0)
        due = {digests[word]: count for word, count in counts.items()}
        report = report_step(traced, step, find_nothing)
        found = {one["document"]: one["tokens"] for one in report["documents"]}
        if not unknown:
            assert found == due
        assert all(found[digest] >= count for digest, count in due.items())
        assert sum(found.values()) == sum(due.values()) + unknown == report["tokens"]
    chosen = choose.sample(sorted(steps_of), 120)
    listed = Digests(b"".join(map(bytes.fromhex, [*chosen, "ab" * 16])))
    assert traced.sightings_of(listed) == {
        digest: traced.sightings(digest)
        for digest in map(bytes.fromhex, sorted(chosen))
        if traced.has(digest)
    }
    for digest in chosen:
        report = report_document(traced, bytes.fromhex(digest), find_nothing)
        found = Counter({one["step"]: len(one["rows"]) for one in report["steps"]})
        assert found == steps_of[digest] or (odd and found > steps_of[digest])


@pytest.mark.parametrize("name", RUNS)
def test_runs_of_all_packings(sets, digests, tmp_path, name):
    shards, hosts, settings = RUNS[name]
    kind = FlaxMlmFlags if "mlm" in name else FlaxClmFlags
    given = {"steps": 120, "batch_size": 6} if not settings.keys() & {"epochs", "tokens"} else {}
    given = {"batch_size": 6, "model": "tiny", **given, **settings}
    output = tmp_path / "run"
    flags = make_flags(kind, shards=shards.format(**sets), output=str(output), **given)
    output.mkdir()
    opened = flags.open()
    plan, _ = plan_run(flags, opened, print)
    prepare_directory(plan, opened, print)
    metrics, seen = MetricsFile(str(output / METRICS)), {}
    for step, batch in enumerate(read_of_hosts(flags, plan.steps, hosts), 1):
        seen[step] = batch
        metrics.write({"kind": "train", "step": step, "loss": 1.0})
    metrics.close()
    check(output, seen, digests)


def test_a_resumed_run_over_several_epochs(sets, digests, tmp_path, monkeypatch):
    """Interrupted between checkpoints; what came after the checkpoint is done again."""
    seen, train = {}, NumpyProgram.train

    def record(self, placed, step):
        seen[step + 1] = batches[step]
        np.testing.assert_array_equal(placed["input_ids"], batches[step]["input_ids"])
        return train(self, placed, step)

    settings: Any = {"steps": 130, "learning_rate": 0.01, "evaluate_every": 50}
    flags = make_flags(FlaxClmFlags, shards=sets["clm_best_fit"], batch_size=4)
    batches = list(read_of_hosts(flags, 130, 1))
    monkeypatch.setattr(NumpyProgram, "train", record)
    for stop in (31, 77, 130):
        run_numpy(
            sets["clm_best_fit"], tmp_path / "run", stop_after=stop, resume=stop > 31, **settings
        )
        check(tmp_path / "run", seen, digests)
