"""What `build_shards --dry_run` prints: the plan of a run, with what it will take."""

import os
import shutil
import tempfile
from dataclasses import dataclass, field

import psutil
from filelock import FileLock, Timeout
from rich.filesize import decimal
from rich.table import Table

from pipelines.build.estimate import Estimate
from pipelines.readers.sources import CLUSTER_WORKERS, Block, uneven
from pipelines.storage import store
from pipelines.writers.reuse import differences, set_of
from pipelines.writers.staging import LOCK
from schemas.commands.terminal import number_of
from schemas.drops import Drop, describe_dropped
from schemas.errors import DataError
from schemas.manifest import MANIFEST
from schemas.sidecar import Schema

# Measured: Beam in memory, and what a worker holds of a block (text, ids, example batches) and of a
# shard (example batches, segments, a chunk of rows), in times of its bytes of text.
_BEAM_BYTES = 100_000_000
_TIMES_BLOCK, _TIMES_SHARD = 6, 3
_BLOCK_BYTES = 16 << 20
_BEGIN_SECONDS = 4.0  # until a worker is at work, and for the sidecars
# Of a worker, once all have started: they share memory and disk, threads the interpreter.
_GAIN = 0.8


@dataclass(frozen=True)
class Plan:
    """All that is known before a run.

    Attributes:
      output: the set's directory.
      schema: of the set.
      blocks: of the inputs.
      encoded_by: which engine makes the ids, and why not a faster one.
      estimate: from the sample.
      how: the way to run, in words.
      workers: `--direct_num_workers`, 1 if in this process; 0 for an unknown cluster.
      processes: whether workers are processes.
      by_files: whether scratch files carry the exchange.
      overwrite: whether another set may be replaced.
      near: what is said of near-duplicates, where they are looked for.
    """

    output: str
    schema: Schema
    blocks: list[Block]
    encoded_by: str
    estimate: Estimate
    how: str
    workers: int
    processes: bool
    by_files: bool
    overwrite: bool
    near: dict[str, str] = field(default_factory=dict)

    def disk_bytes(self) -> float:
        """Needed at most of this machine: shards, and the scratch files that they are made of."""
        shards = 0 if store.is_url(self.output) else self.estimate.shard_bytes
        return shards + self.estimate.scratch_bytes * self.by_files

    def free_bytes(self) -> int:
        """Free on the disk that the output will lie on, or what makes it for a store."""
        remote = store.is_url(self.output)
        path = tempfile.gettempdir() if remote else os.path.abspath(self.output)
        while not os.path.exists(path):
            path = os.path.dirname(path)
        return shutil.disk_usage(path).free

    def seconds(self) -> float:
        """Expected from the command to the finished set."""
        gain = max(1.0, self.workers * _GAIN)
        return _BEGIN_SECONDS * (1 + self.processes) + self.estimate.seconds / gain

    def memory_bytes(self) -> float:
        """Expected at most, of all workers of this machine together."""
        base = psutil.Process().memory_info().rss + _BEAM_BYTES
        block = min(_BLOCK_BYTES, self.estimate.text_bytes)
        shard = self.estimate.text_bytes * max(
            self.estimate.rows.get(split, 0) / max(sum(self.estimate.rows.values()), 1) / count
            for split, count in self.schema.shards.items()
        )
        held = _TIMES_BLOCK * block + _TIMES_SHARD * shard
        workers = max(self.workers, 1)
        return base * (1 + workers * self.processes) + held * workers

    def output_state(self) -> str:
        """What lies in the output directory, and what the run would do about it."""
        if _is_locked(self.output):
            return "in use: another run writes there"
        if not store.exists(os.path.join(self.output, MANIFEST)):
            return "nothing: the set is made"
        replaced = "it is replaced (--overwrite)"
        try:
            found = set_of(self.output)
        except DataError as error:
            return f"a damaged set: {replaced if self.overwrite else f'the run refuses: {error}'}"
        differing = differences(found, self.schema, self.blocks)
        if not differing and not self.overwrite:
            return (
                "a set of these settings, from inputs of these sizes: if their content is the "
                "same too, nothing is done"
            )
        if self.overwrite:
            return f"a set, fingerprint {found.schema.fingerprint[:12]}: {replaced}"
        return f"another set ({'; '.join(differing)}): the run refuses, unless with --overwrite"


def warnings(plan: Plan) -> list[str]:
    """What would go wrong, each a sentence."""
    said = []
    need, free = plan.disk_bytes(), plan.free_bytes()
    if need > free:
        said.append(
            f"the disk of {plan.output} does not suffice: about {decimal(int(need))} are needed "
            f"and {decimal(free)} are free; give another --output, or take fewer copies or one "
            "format"
        )
    available = psutil.virtual_memory().available
    if plan.memory_bytes() > available:
        said.append(
            f"memory may not suffice: about {decimal(int(plan.memory_bytes()))} are needed and "
            f"{decimal(available)} are available; give fewer --direct_num_workers or more "
            "--num_shards"
        )
    if waiting := uneven(plan.blocks, plan.workers or CLUSTER_WORKERS):
        said.append(waiting)
    return said


def plan_table(plan: Plan) -> Table:
    """The plan for people to read."""
    schema, estimate = plan.schema, plan.estimate
    files = {part.path: part.size for block in plan.blocks for part in block.parts}
    about = "" if estimate.whole else "about "
    sample = (
        "read whole"
        if estimate.whole
        else f"estimated from {decimal(estimate.sampled_bytes)} spread over them"
    )

    def write(drop: Drop, number: float) -> str:
        # Of repeats a sample knows its own alone.
        about = "" if estimate.whole else "at least " if drop.by_shard else "about "
        return about + _round_number(number, plan)

    # Two digits: 2,137.4 -> 2,100.
    error = (
        f" ± {int(float(f'{estimate.documents_error:.2g}')):,}" if estimate.documents_error else ""
    )
    length = schema.row_tokens
    rows = sum(estimate.rows.values())
    filled = "; each document is one"
    if not schema.holds_documents:
        density = estimate.tokens_in_rows / max(rows * length, 1)
        filled = f"; {length} tokens each, {density:.1%} filled, {schema.codec().stride} bytes"
    disk = f"{decimal(int(estimate.shard_bytes))} of shards"
    if plan.by_files:
        disk += f" and {decimal(int(estimate.scratch_bytes))} of scratch"
    values = {
        "inputs": f"{number_of(len(files), 'file')}, {decimal(sum(files.values()))}, "
        f"{number_of(len(plan.blocks), 'block')}; {sample}",
        "text": f"{about}{decimal(int(estimate.text_bytes))}",
        "documents": f"{about}{_round_number(estimate.documents, plan)}{error}",
        **describe_dropped(estimate.dropped, ("duplicates",), write),
        **plan.near,
        "tokens": f"{about}{_round_number(estimate.tokens, plan)} + "
        f"{_round_number(estimate.specials, plan)} special",
        "rows": ", ".join(
            f"{split} {about}{_round_number(number, plan)}"
            for split, number in sorted(estimate.rows.items())
        )
        + filled,
        "shards": ", ".join(f"{split} {count:,}" for split, count in schema.shards.items()),
        "disk": f"about {disk}; {decimal(plan.free_bytes())} free",
        "memory": f"about {decimal(int(plan.memory_bytes()))}; "
        f"{decimal(psutil.virtual_memory().available)} available",
        "time": f"about {_duration(plan.seconds())}, {plan.how}"
        if plan.workers
        else f"about {_duration(estimate.seconds)} of one core of this machine, {plan.how}",
        "task": f"{schema.task}, packing {schema.packing}",
        "features": ", ".join(f"{f.name} {f.dtype}{list(f.shape)}" for f in schema.features),
        "tokenizer": f"{schema.vocab_size:,} ids, sha256 {schema.tokenizer_sha256[:12]}; "
        f"ids by {plan.encoded_by}",
        "fingerprint": schema.fingerprint,
        "output holds": plan.output_state(),
    }
    table = Table(title="plan (nothing was written)", show_header=False, title_justify="left")
    table.add_column()
    table.add_column(overflow="fold")  # a path or fingerprint that is cut cannot be copied
    for name, value in values.items():
        table.add_row(name, value)
    return table


def _round_number(number: float, plan: Plan) -> str:
    """Three digits, as many as an estimate is good for: 74,045.3 -> 74,000."""
    if plan.estimate.whole:
        return f"{round(number):,}"
    return f"{int(float(f'{number:.3g}')):,}"


def _duration(seconds: float) -> str:
    """8.4 -> `8 s`, 100 -> `1.7 min`."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.{0 if seconds >= 10 * size else 1}f} {unit}"
    return f"{max(1, round(seconds))} s"


def _is_locked(output: str) -> bool:
    """Whether another run is at work there; makes no file."""
    path = os.path.join(output, LOCK)
    if store.is_url(output) or not os.path.exists(path):
        return False  # in a store it takes a while to tell: the run does
    try:
        with FileLock(path, timeout=0):
            return False
    except (Timeout, OSError):
        return True
