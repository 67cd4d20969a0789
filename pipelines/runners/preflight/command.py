"""--preflight: checks a command before a cluster costs money, and prints what would fail.

Nothing is written and no job is started. A check that takes credentials or a network, where there
are none, is "not checked".
"""

import functools
import os
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass

from rich.filesize import decimal

from pipelines.build.options import BuildOptions
from pipelines.build.plan import Run, estimate
from pipelines.build.run import complete, wire
from pipelines.corpus import run as corpus_run
from pipelines.corpus.options import CorpusOptions
from pipelines.encoding.tokenizer import load_tokenizer
from pipelines.readers.files import expand_lists, is_url
from pipelines.readers.sources import Block, plan_blocks
from pipelines.runners.beam_flags import RunnerFlags, runner_flags
from pipelines.runners.beam_run import refuse_bad_runner
from pipelines.runners.console import Console
from pipelines.runners.job_servers import reach_job_server
from pipelines.runners.preflight.job import Check, check_flags, check_job
from pipelines.storage import store
from pipelines.train.options import TokenizerOptions
from pipelines.train.run import refuse_unusable, run_of, wire_counting
from pipelines.user_filter import load_filter
from pipelines.writers.staging import STAGING, Staging
from schemas.commands.terminal import in_time, number_of
from schemas.errors import DataError, TextmillError, UsageError, one_line

_console = Console(soft_wrap=True)
_PATIENCE = 25.0  # seconds: a store without network or credentials may never answer
# Of a shard in the shuffle: Beam's messages hold 2 GiB, and Flink keeps all of a key in memory.
_MOST_KEY_BYTES, _GOOD_KEY_BYTES = 2_000_000_000, 200_000_000
# Bytes of memory, measured: a worker with Beam and RoBERTa's tokenizer; beside that, example
# batches of blocks that wait for others, or a shard's text so many times while it is written.
_WORKER_BYTES, _ROUTE_BYTES, _SHARD_TIMES = 500_000_000, 700_000_000, 3


@dataclass(frozen=True)
class Command:
    """A command that is to run on a cluster; `plan` reads the plan of its inputs."""

    beam_arguments: list[str]
    patterns: tuple[str, ...]
    output: str
    filter_name: str
    plan: Callable[[], list[Block]]

    @property
    def flags(self) -> RunnerFlags:
        """Beam's flags of runner and workers."""
        return runner_flags(self.beam_arguments)


def preflight_shards(options: BuildOptions, beam_arguments: list[str]) -> None:
    """Checks a build_shards command; raises DataError if a check fails."""
    _print_checks("build_shards", _check_shards(options, beam_arguments))


def preflight_corpus(options: CorpusOptions, beam_arguments: list[str]) -> None:
    """Checks a build_corpus command; raises DataError if a check fails."""
    _print_checks("build_corpus", _check_corpus(options, beam_arguments))


def preflight_tokenizer(options: TokenizerOptions, beam_arguments: list[str]) -> None:
    """Checks a train_tokenizer command; raises DataError if a check fails.

    Raises:
      UsageError: there is no pipeline to check, or a flag is no pattern or no chat template.
    """
    if options.from_histogram:
        raise UsageError("--from_histogram runs no pipeline: --preflight has nothing to check")
    refuse_unusable(options)
    _print_checks("train_tokenizer", _check_tokenizer(options, beam_arguments))


def _print_checks(name: str, checks: Iterable[Check]) -> None:
    """Prints checks as they come: some take a minute."""
    _console.print(f"preflight of {name}: nothing is written, no job is started")
    states = []
    for check in checks:
        states.append(check.state)
        _console.print(f"{check.state:12} {check.name:16} {check.found}")
        if check.remedy:
            _console.print(f"{'':29} -> {check.remedy}")
    failed, skipped = states.count("failed"), states.count("not checked")
    left_out = f"; {skipped} could not be made" if skipped else ""
    if failed:
        raise DataError(f"{failed} of {len(states)} checks failed{left_out}")
    _console.print(f"nothing failed in {len(states)} checks{left_out}")


def _check_shards(options: BuildOptions, beam_arguments: list[str]) -> Iterator[Check]:
    given = options.splitting.given()
    patterns = tuple(p for some in given.values() for p in some) or options.reading.input
    name, output, path = options.filter, options.output, options.tokenizer
    command = Command(beam_arguments, patterns, output, name, options.blocks)
    has_runner, blocks = yield from _check_places(command)
    if is_url(path) and (problem := unreachable(path)):
        yield Check("tokenizer", "not checked", f"{path}: {problem}")
        return
    try:
        tokenizer = load_tokenizer(path)
        options = complete(options, blocks or [], _console.print)
        run = Run.of(options, tokenizer, blocks or [], beam_arguments)
    except TextmillError as error:
        yield Check("tokenizer", "failed", str(error))
        return
    found = f"{path}, {tokenizer.vocab_size:,} ids, fits --task={options.task}"
    yield Check("tokenizer", "ok", f"{found}; it goes with the job")
    if has_runner:
        yield from check_job(beam_arguments, name, wire(run, as_if_staged(output)))
    if blocks is None:
        yield Check("size", "not checked", "the inputs could not be read from here")
    else:
        yield _check_size(run)


def _check_corpus(options: CorpusOptions, beam_arguments: list[str]) -> Iterator[Check]:
    name, output = options.filters.filter, options.output
    plan = functools.partial(plan_blocks, options.source())
    command = Command(beam_arguments, options.reading.input, output, name, plan)
    has_runner, blocks = yield from _check_places(command)
    if has_runner:
        run = corpus_run.run_of(options, blocks or [], beam_arguments)
        schema = options.schema(corpus_run.count_text_bytes(blocks or ()))
        job = corpus_run.wire(options, schema, run, as_if_staged(output))
        yield from check_job(beam_arguments, name, job)


def _check_tokenizer(options: TokenizerOptions, beam_arguments: list[str]) -> Iterator[Check]:
    name, output = options.reading.filter, options.output
    plan = functools.partial(plan_blocks, options.source())
    command = Command(beam_arguments, options.reading.input, output, name, plan)
    has_runner, blocks = yield from _check_places(command)
    if has_runner:
        run = run_of(options, blocks or [], beam_arguments)
        yield from check_job(
            beam_arguments, name, wire_counting(options, run, as_if_staged(output))
        )


def _check_places(command: Command) -> Generator[Check, None, tuple[bool, list[Block] | None]]:
    """Checks runner, flags, inputs, output and filter.

    Returns:
      Whether there is a cluster's runner; the plan of the inputs, None where they cannot be read.
    """
    runner = check_runner(command)
    yield runner
    if command.flags.is_dataflow:
        yield check_flags(command.beam_arguments)
    inputs, blocks = _check_inputs(command)
    yield inputs
    yield _check_output(command)
    if command.filter_name:
        yield _check_filter(command.filter_name)
    return runner.state == "ok" and not command.flags.is_local, blocks


def as_if_staged(output: str) -> Staging:
    """Where a run would keep its files; nothing is written there."""
    folder = os.path.join(output, STAGING)
    if is_url(output):
        return Staging(folder, os.path.join(tempfile.gettempdir(), STAGING), "preflight")
    return Staging(folder, folder)


def check_runner(command: Command) -> Check:
    """Checks whether Beam has it, and whether it has a job server to run on."""
    flags, workers = command.flags, command.flags.workers
    if flags.is_local:
        said = "this machine: there is nothing to check but the plan, which --dry_run prints"
        return Check("runner", "ok", said)
    try:
        refuse_bad_runner(command.beam_arguments)
        if flags.job_server:
            reach_job_server(flags.job_server)
    except UsageError as error:
        return Check("runner", "failed", str(error))
    starts = {
        "DOCKER": f"workers start from {workers.image or 'the image of Beam'}",
        "PROCESS": "workers are processes of the cluster's machines",
        "EXTERNAL": "workers come from pools that run already",
        "LOOPBACK": "workers are threads of this command",
    }.get(workers.environment, f"--environment_type={workers.environment}")
    return Check("runner", "ok", f"{flags.runner_class}; {starts}")


def _check_inputs(command: Command) -> tuple[Check, list[Block] | None]:
    """Plans the inputs, and checks whether workers reach them; None where no plan is possible."""
    try:
        patterns = expand_lists(command.patterns)
        for pattern in filter(is_url, patterns):
            if problem := unreachable(pattern):
                return Check("inputs", "not checked", f"{pattern}: {problem}"), None
        blocks = command.plan()
    except TextmillError as error:
        return Check("inputs", "failed", str(error), "mend --input"), None
    files = {part.path: part.size for block in blocks for part in block.parts}
    found = (
        f"{number_of(len(files), 'file')}, {decimal(sum(files.values()))}, "
        f"{number_of(len(blocks), 'block')}"
    )
    local = [pattern for pattern in patterns if not is_url(pattern)]
    if local and (problem := _local_problem("inputs", local[0], command)):
        return problem, blocks
    return Check("inputs", "ok", found), blocks


def _check_output(command: Command) -> Check:
    """Checks whether workers reach it; whether they may write there, the store decides."""
    path = command.output
    if is_url(path):
        if problem := unreachable(path):
            return Check("output", "not checked", f"{path}: {problem}")
        found = f"{path} can be reached; whether workers may write is not known"
        return Check("output", "ok", found)
    return _local_problem("output", path, command) or Check("output", "ok", path)


def _check_filter(name: str) -> Check:
    """Checks whether it can be imported here; the check of the package does so for workers."""
    try:
        load_filter(name)
    except TextmillError as error:
        return Check("filter", "failed", str(error), "mend --filter")
    return Check("filter", "ok", f"{name} can be imported here")


def _local_problem(name: str, path: str, command: Command) -> Check | None:
    """Why workers may not see a path of this machine; None where they do."""
    if command.flags.is_dataflow:
        remedy = "copy it into a bucket in the region of the workers, and give its gs:// path"
        if name == "output":
            remedy = "--output=gs://BUCKET/folder"
        return Check(name, "failed", f"{path} is local: workers of Dataflow do not see it", remedy)
    if command.flags.is_local or command.flags.workers.environment == "LOOPBACK":
        return None
    found = f"{path} is a path here, and has to be the same for every worker"
    remedy = "a file system that all of them mount at the same place, or a store"
    return Check(name, "not checked", found, remedy)


def unreachable(path: str) -> str:
    """Why a store cannot be read from here; "" if it can."""
    return _bucket_problem("/".join(path.split("/")[:3]))  # gs://bucket


@functools.cache  # one wait for inputs and output of a bucket
def _bucket_problem(bucket: str) -> str:
    # Without network or credentials this may hang: after a while its thread is left behind.
    try:
        in_time(_PATIENCE, lambda: store.exists(f"{bucket}/MANIFEST.json"))
    except TimeoutError as error:
        return f"{error}: no network here, or no credentials"
    except Exception as error:
        return f"the store refuses: {one_line(error)[:200]}"
    return ""


def _check_size(run: Run) -> Check:
    """Sizes the shuffle and the largest shard, from a sample of the inputs."""
    schema = run.schema
    try:
        found = estimate(run)
    except TextmillError as error:
        return Check("size", "failed", str(error), "mend the inputs")
    # Documents go to shards by their hash: those of a split are of one size, but for a few percent.
    rows, shards = sum(found.rows.values()) or 1.0, sum(schema.shards.values())
    share = max(found.rows.get(name, 0) / rows / n for name, n in schema.shards.items())
    key, text = found.scratch_bytes * share, found.text_bytes * share
    memory = _WORKER_BYTES + max(_ROUTE_BYTES, _SHARD_TIMES * text)
    size = (
        f"{decimal(int(found.scratch_bytes))} through the shuffle to {shards:,} shards, "
        f"{decimal(int(key))} to the largest; a worker takes up to {decimal(int(memory))}"
    )
    if key > _MOST_KEY_BYTES:
        more = 1 << int(shards * key / _GOOD_KEY_BYTES).bit_length()
        size += f"; a shard can get {decimal(_MOST_KEY_BYTES)} at most"
        return Check("size", "failed", size, f"--num_shards={min(more, 99_999)}")
    return Check("size", "ok", size)
