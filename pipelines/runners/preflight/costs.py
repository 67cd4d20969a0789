"""What --preflight says of keys, memory and work, from the plan and rates that were measured."""

from collections.abc import Iterator

import psutil
from rich.filesize import decimal

from pipelines.runners.preflight.cloud_flags import Check, most_workers
from pipelines.runners.preflight.places import Asked
from pipelines.runners.preflight.scale import Costs, Rates

# Beam's messages hold 2 GiB, and Flink keeps all of a key in memory while it is read.
_MOST_KEY_BYTES, _GOOD_KEY_BYTES = 2_000_000_000, 200_000_000
# Measured: a worker with Beam, the engines and a tokenizer (RoBERTa's); and what it takes beside
# that for blocks, with example batches that wait for others, and for counting words.
_WORKER_BYTES, _ROUTE_BYTES, _COUNT_BYTES = 500_000_000, 700_000_000, 200_000_000


def check_shards(asked: Asked, taken: Costs, shards: int) -> Iterator[Check]:
    """Keys, memory a worker and work, from the plan."""
    brings = f"{shards:,} shards; the largest key brings {decimal(int(taken.key_bytes))}"
    more = 1 << max(0, (int(shards * taken.key_bytes / _GOOD_KEY_BYTES)).bit_length())
    remedy = f"--num_shards={min(more, 99_999)}"
    if taken.key_bytes > _MOST_KEY_BYTES:
        limit = decimal(_MOST_KEY_BYTES)
        yield Check("keys", "failed", f"{brings}: more than {limit}", remedy)
    else:
        yield Check("keys", "ok", brings)
    remedy = remedy if taken.key_memory > _ROUTE_BYTES else ""
    yield _memory(asked, _WORKER_BYTES + max(_ROUTE_BYTES, taken.key_memory), remedy)
    yield _work(asked, taken.cpu_hours, taken.shuffle_bytes)


def check_counting(asked: Asked, stored_bytes: int) -> Iterator[Check]:
    """Memory a worker and work of train_tokenizer.

    Args:
      asked: the command.
      stored_bytes: of the inputs, as they lie there.
    """
    rates, workers = Rates(), most_workers(asked.beam_arguments) or 1
    yield _memory(asked, _WORKER_BYTES + _COUNT_BYTES, "")
    seconds = stored_bytes / 1e9 * rates.count_ms_a_megabyte + rates.start_seconds * workers
    yield _work(asked, seconds / 3600, None)


def _memory(asked: Asked, need: float, remedy: str) -> Check:
    """Whether a worker has what it takes.

    Args:
      asked: the command.
      need: bytes.
      remedy: what makes it less.
    """
    needs = f"a worker takes up to {decimal(int(need))}"
    if asked.here:
        has = psutil.virtual_memory().total
        said = f"{needs}; this machine has {decimal(has)} for all of them"
        return Check("memory", "ok" if need < has else "failed", said, remedy * (need >= has))
    if asked.on_dataflow:
        said = f"{needs}, and Dataflow starts one for each vCPU"
        remedy = remedy or "take a --machine_type with more memory than that for each vCPU"
        return Check("memory", "not checked", said, remedy)
    return Check("memory", "not checked", f"{needs}; what one has is the cluster's to say", remedy)


def _work(asked: Asked, cpu_hours: float, shuffle_bytes: float | None) -> Check:
    workers = most_workers(asked.beam_arguments)
    parts = [f"about {cpu_hours:,.2f} hours of a core (a vCPU is half of one)"]
    if workers:
        parts.append(f"{cpu_hours / workers:,.2f} h with {workers:,} workers of one")
    if shuffle_bytes is not None:
        parts.append(f"{decimal(int(shuffle_bytes))} through the shuffle")
    return Check(
        "work", "ok", f"{', '.join(parts)}; by rates of one machine (docs/performance.md, Scale)"
    )
