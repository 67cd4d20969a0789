"""`--evaluate_only`: what a checkpoint is worth on a split, and how fast it runs."""

import json
import time
from contextlib import closing
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from schemas.errors import DataError, UsageError
from schemas.terminal import say
from trainers.data.batches import BatchReader
from trainers.models.set_tokenizer import TOKENIZER, check_same_tokens, set_file
from trainers.on_flax.clm_config import EvaluateConfig, check_fits
from trainers.on_flax.clm_task import causal_sums, measured, rows_of, said_of, text_of
from trainers.on_flax.decoder import graph_of
from trainers.on_flax.decoder_checkpoint import load_decoder
from trainers.on_flax.programs import abstract_batch, compute_dtype, place
from trainers.on_flax.task import Sums
from trainers.run.flags import check_task
from trainers.run.journal import ProgressLine


def evaluate(config: EvaluateConfig, shards: BatchReader) -> dict[str, Any]:
    """Measures a checkpoint and prints it.

    Args:
      config: which, and on what.
      shards: the set.

    Returns:
      What `--report` gets: measurements, and `compile_seconds`, `tokens_per_second`,
      `batch_median_seconds`, `batch_p95_seconds`.

    Raises:
      UsageError: checkpoint and set do not go together.
      DataError: the split has no rows, or files are broken.
    """
    check_task(config.task, shards.schema, config.shards)
    if not shards.rows(config.split):
        raise shards.no_rows(config.split)
    devices = jax.local_devices()
    if config.batch_size % len(devices):
        raise UsageError(
            f"--batch_size={config.batch_size} cannot be shared by {len(devices)} devices: give a "
            "multiple of their number"
        )
    decoder = load_decoder(config.checkpoint)
    at = f"--checkpoint={config.checkpoint}"
    check_fits(decoder.config, shards.schema, shards=config.shards, place=f"{at}: the model")
    check_same_tokens(set_file(shards, TOKENIZER), decoder.directory, flag="--checkpoint")

    mesh = Mesh(np.array(devices), ("rows",))
    replicated = NamedSharding(mesh, PartitionSpec())
    by_row = NamedSharding(mesh, PartitionSpec("rows"))
    graph = graph_of(decoder.config, compute_dtype(config.precision))
    params = jax.device_put(decoder.params, replicated)
    shapes = abstract_batch(shards.schema, config.batch_size, by_row)

    def sums_of(params: Any, batch: Any) -> Sums:
        return causal_sums(nnx.merge(graph, params), rows_of(batch), None)

    began = time.perf_counter()
    program = jax.jit(sums_of, out_shardings=replicated).lower(params, shapes).compile()
    compile_seconds = time.perf_counter() - began

    total, seconds, tokens = np.zeros(len(Sums._fields)), [], 0
    line, batches = ProgressLine(), -(-shards.rows(config.split) // config.batch_size)
    began = time.perf_counter()
    with closing(shards.in_order(config.split, batch_size=config.batch_size)) as read:
        for number, batch in enumerate(read, 1):
            placed = jax.block_until_ready(place(batch, names=tuple(shapes), sharding=by_row))
            if number == 1:  # threads and buffers are made at the first call
                jax.block_until_ready(program(params, placed))
                began = time.perf_counter()
            before = time.perf_counter()
            total += np.array(jax.device_get(program(params, placed)), np.float64)
            seconds.append(time.perf_counter() - before)
            tokens += int((batch["segment_ids"] > 0).sum())
            line.update(f"batch {number} of {batches}")
    whole = time.perf_counter() - began
    if not total[Sums._fields.index("counted")]:
        raise DataError(
            f"{shards.name}: no token of split {config.split!r} counts, its loss_weights are all "
            "0: there is nothing to measure. Give another --split"
        )
    found = measured(Sums(*total.tolist()), text_of(shards, config.split))
    report = {
        "checkpoint": decoder.name,
        "shards": shards.name,
        "split": config.split,
        **found,
        "compile_seconds": round(compile_seconds, 3),
        "tokens_per_second": round(tokens / whole, 1),
        "batch_median_seconds": round(float(np.median(seconds)), 6),
        "batch_p95_seconds": round(float(np.percentile(seconds, 95)), 6),
        "batches": len(seconds),
    }
    say(f"{decoder.name} on {config.split} of {shards.name}: {said_of(found)}")
    say(
        f"  compiled in {compile_seconds:.1f} s; {report['tokens_per_second']:,.0f} tokens/s; a "
        f"batch of {config.batch_size} rows takes {report['batch_median_seconds'] * 1e3:.1f} ms "
        f"(median), {report['batch_p95_seconds'] * 1e3:.1f} ms (95th percentile)"
    )
    if config.report is not None:
        _append(config.report, report)
    return report


def _append(path: str, report: dict[str, Any]) -> None:
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(report) + "\n")
    except OSError as error:
        raise DataError(f"--report={path} cannot be written: {error}") from error
