"""--preflight: checks a command before a cluster costs money, and prints each result.

It writes nothing and starts no job. Checks that would need missing credentials or an unreachable
network are "not checked".
"""

import functools
import os
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from rich.filesize import decimal

from textmill.pipelines import store
from textmill.pipelines.corpus import run as corpus_run
from textmill.pipelines.corpus.decontamination.targets import find_targets
from textmill.pipelines.corpus.filter_documents import load_filters
from textmill.pipelines.corpus.options import CorpusOptions
from textmill.pipelines.corpus.plan import plan_corpus
from textmill.pipelines.corpus.rules.decontamination import Decontamination
from textmill.pipelines.encoding.tokenizer import LoadedTokenizer, load_tokenizer
from textmill.pipelines.readers.files import expand_lists, is_url
from textmill.pipelines.readers.sources import Block, plan_blocks
from textmill.pipelines.runners.beam_run import refuse_bad_runner
from textmill.pipelines.runners.console import Console
from textmill.pipelines.runners.job_servers import reach_job_server
from textmill.pipelines.runners.launch import RunnerFlags, runner_flags
from textmill.pipelines.runners.plan import WORKER_BYTES, RunPlan
from textmill.pipelines.runners.preflight_job import Check, check_flags, check_job
from textmill.pipelines.runners.sample import count_text_bytes
from textmill.pipelines.shards.estimate import estimate
from textmill.pipelines.shards.options import BuildOptions
from textmill.pipelines.shards.prepare import Run, complete
from textmill.pipelines.shards.wire import wire
from textmill.pipelines.tokenizer.check import refuse_unusable
from textmill.pipelines.tokenizer.counting import run_of, wire_counting
from textmill.pipelines.tokenizer.options import TokenizerOptions
from textmill.pipelines.tokenizer.plan import plan_tokenizer
from textmill.pipelines.user_filter import load_filter
from textmill.pipelines.writers.staging import STAGING, Staging
from textmill.schemas.commands.terminal import in_time, number_of
from textmill.schemas.errors import DataError, TextmillError, UsageError, one_line

T = TypeVar("T")
_console = Console(soft_wrap=True)
_NO_INPUTS = "the inputs cannot be read from this machine"
_NO_RUNNER = "the runner cannot be used"
_PATIENCE = 25.0  # seconds; an object store without network or credentials may never answer
# Limits of a shard in the shuffle: Beam's messages have at most 2 GiB, and Flink keeps a key in
# memory.
_MOST_KEY_BYTES, _GOOD_KEY_BYTES = 2_000_000_000, 200_000_000
# Measured bytes of memory besides WORKER_BYTES: batches of examples before they are sent, or a
# multiple of a shard's text while it is written.
_ROUTE_BYTES, _SHARD_TIMES = 700_000_000, 3


@dataclass(frozen=True)
class Command:
    """A command to check; `plan` plans its inputs."""

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
      UsageError: there is no pipeline to check, or the pattern or chat template cannot be used.
    """
    if options.from_histogram:
        raise UsageError("--preflight has nothing to check: --from_histogram runs no pipeline")
    refuse_unusable(options)
    _print_checks("train_tokenizer", _check_tokenizer(options, beam_arguments))


def _print_checks(name: str, checks: Iterable[Check]) -> None:
    """Prints each check when it is done, since some take a minute."""
    _console.print(f"preflight of {name}: nothing is written, no job is started")
    states = []
    for check in checks:
        states.append(check.state)
        _console.print(f"{check.state:12} {check.name:16} {check.detail}")
        if check.remedy:
            _console.print(f"{'':29} -> {check.remedy}")
    failed, skipped = states.count("failed"), states.count("not checked")
    more = f"; {skipped} not checked" if skipped else ""
    if failed:
        raise DataError(f"{failed} of {len(states)} checks failed{more}")
    _console.print(f"0 of {len(states)} checks failed{more}")


def _check_shards(options: BuildOptions, beam_arguments: list[str]) -> Iterator[Check]:
    inputs = options.splitting.inputs.values()
    patterns = tuple(p for some in inputs for p in some) or options.reading.input
    name, output = options.filter, options.output
    command = Command(beam_arguments, patterns, output, name, options.blocks)
    has_runner, blocks = yield from _check_places(command)
    tokenizer = yield from _check_tokenizer_file(options.tokenizer)
    if tokenizer is None:
        yield from _skip(command, "the tokenizer cannot be loaded")
        return
    completed = yield from _attempt(
        "labels",
        lambda: complete(options, blocks or [], _console.print),
        needs_inputs=blocks is None,
        remedy="correct the fields of the task, or --input",
    )
    if completed is None:
        yield from _skip(command, "the task cannot be prepared")
        return
    run = yield from _attempt(
        "tokenizer", lambda: Run.of(completed, tokenizer, blocks or [], beam_arguments)
    )
    if run is None:
        yield from _skip(command, "the tokenizer does not fit the task")
        return
    detail = f"{options.tokenizer}, {tokenizer.vocab_size:,} ids, fits --task={options.task}"
    yield Check("tokenizer", "ok", f"{detail}; it is sent with the job")
    if has_runner:
        yield from check_job(beam_arguments, name, wire(run, as_if_staged(output)))
    elif not command.flags.is_local:
        yield Check("job", "not checked", _NO_RUNNER)
    yield from _check_needs(blocks, lambda: _check_size(run))


def _check_corpus(options: CorpusOptions, beam_arguments: list[str]) -> Iterator[Check]:
    name, output, filters = options.filters.filter, options.output, options.filters
    plan = functools.partial(plan_blocks, options.source)
    command = Command(beam_arguments, options.reading.input, output, name, plan)
    has_runner, blocks = yield from _check_places(command)
    rules = replace(filters, decontamination=Decontamination(), filter="")
    done = yield from _check("rules", lambda: load_filters(rules), "models and lists load here")
    if done and filters.decontamination.decontaminate:
        said: list[str] = []
        done = yield from _check(
            "decontamination", lambda: find_targets(filters, said.append), said
        )
    if not done:
        yield from _skip(command, "rules cannot be loaded")
        return
    run = corpus_run.run_of(options, blocks or [], beam_arguments)
    schema = options.schema(count_text_bytes(options.source, blocks or ()))
    if has_runner:
        job = corpus_run.wire(options, schema, run, as_if_staged(output))
        yield from check_job(beam_arguments, name, job)
    elif not command.flags.is_local:
        yield Check("job", "not checked", _NO_RUNNER)
    yield from _check_needs(blocks, lambda: _describe(plan_corpus(options, schema, run, 1.0).plan))


def _check_tokenizer(options: TokenizerOptions, beam_arguments: list[str]) -> Iterator[Check]:
    name, output = options.reading.filter, options.output
    plan = functools.partial(plan_blocks, options.source)
    command = Command(beam_arguments, options.reading.input, output, name, plan)
    has_runner, blocks = yield from _check_places(command)
    run = run_of(options, blocks or [], beam_arguments)
    if has_runner:
        yield from check_job(
            beam_arguments, name, wire_counting(options, run, as_if_staged(output))
        )
    elif not command.flags.is_local:
        yield Check("job", "not checked", _NO_RUNNER)
    yield from _check_needs(blocks, lambda: _describe(plan_tokenizer(options, run, 1.0).plan))


def _check_tokenizer_file(path: str) -> Generator[Check, None, LoadedTokenizer | None]:
    """Loads --tokenizer; yields a check only if that fails."""
    if is_url(path) and (problem := unreachable(path)):
        yield Check("tokenizer", "not checked", f"{path}: {problem}")
        return None
    return (yield from _attempt("tokenizer", lambda: load_tokenizer(path)))


def _attempt(
    name: str, work: Callable[[], T], *, needs_inputs: bool = False, remedy: str = ""
) -> Generator[Check, None, T | None]:
    """The result of work that a check needs; None after a failure, which is a check.

    Args:
      name: of the check.
      work: what may fail.
      needs_inputs: whether inputs that it may need cannot be read.
      remedy: for the user, where the error has none.
    """
    try:
        return work()
    except TextmillError as error:
        if needs_inputs:
            yield Check(name, "not checked", _NO_INPUTS)
        else:
            yield Check(name, "failed", str(error), remedy)
    except OSError as error:
        yield Check(name, "failed", one_line(error), "check the path and its permissions")
    return None


def _check(
    name: str, work: Callable[[], Any], detail: str | list[str]
) -> Generator[Check, None, bool]:
    """A check that passes if its work raises nothing; the work may append to the detail."""
    done = yield from _attempt(name, lambda: (work(),))
    if done is not None:
        yield Check(name, "ok", detail if isinstance(detail, str) else "; ".join(detail))
    return done is not None


def _skip(command: Command, reason: str) -> Iterator[Check]:
    """The checks that a failure leaves."""
    if not command.flags.is_local:
        yield Check("job", "not checked", reason)
    yield Check("size", "not checked", reason)


def _check_needs(blocks: list[Block] | None, work: Callable[[], Check]) -> Iterator[Check]:
    """Estimates the run from a sample of the inputs."""
    if blocks is None:
        yield Check("size", "not checked", _NO_INPUTS)
    elif check := (yield from _attempt("size", work, remedy="correct the inputs")):
        yield check


def _describe(plan: RunPlan) -> Check:
    """The size of a run's shuffles, and the memory of its workers."""
    facts = plan.facts()
    worker = facts.get("memory of a worker") or facts["memory"]
    warnings = "; ".join(plan.warnings())
    detail = f"{facts['shuffles']} through the shuffles; a worker takes {worker}"
    return Check("size", "ok", detail + f"; {warnings}" * bool(warnings))


def _check_places(command: Command) -> Generator[Check, None, tuple[bool, list[Block] | None]]:
    """Checks runner, flags, inputs, output and filter.

    Returns:
      Whether the job runs on a cluster; the plan of the inputs, None if they cannot be read.
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
    """The staging directory that a run would have; nothing is written."""
    folder = os.path.join(output, STAGING)
    if is_url(output):
        return Staging(folder, os.path.join(tempfile.gettempdir(), STAGING), "preflight")
    return Staging(folder, folder)


def check_runner(command: Command) -> Check:
    """Checks that Beam has the runner, and that its job server answers."""
    flags, workers = command.flags, command.flags.workers
    if flags.is_local:
        detail = "this machine: only the plan remains to be checked, which --dry_run prints"
        return Check("runner", "ok", detail)
    try:
        refuse_bad_runner(command.beam_arguments)
        if flags.job_server:
            reach_job_server(flags.job_server)
    except UsageError as error:
        return Check("runner", "failed", str(error))
    starts = {
        "DOCKER": f"workers start from {workers.image or 'the image of Beam'}",
        "PROCESS": "workers are processes on the cluster's machines",
        "EXTERNAL": "workers come from running pools",
        "LOOPBACK": "workers are threads of this command",
    }.get(workers.environment, f"--environment_type={workers.environment}")
    return Check("runner", "ok", f"{flags.runner_class}; {starts}")


def _check_inputs(command: Command) -> tuple[Check, list[Block] | None]:
    """Plans the inputs, and checks that workers can read them; the plan is None if it fails."""
    try:
        patterns = expand_lists(command.patterns)
        for pattern in filter(is_url, patterns):
            if problem := unreachable(pattern):
                return Check("inputs", "not checked", f"{pattern}: {problem}"), None
        blocks = command.plan()
    except TextmillError as error:
        return Check("inputs", "failed", str(error), "correct --input"), None
    except OSError as error:
        remedy = "check the path and its permissions"
        return Check("inputs", "failed", one_line(error), remedy), None
    files = {part.path: part.size for block in blocks for part in block.parts}
    detail = (
        f"{number_of(len(files), 'file')}, {decimal(sum(files.values()))}, "
        f"{number_of(len(blocks), 'block')}"
    )
    local = [pattern for pattern in patterns if not is_url(pattern)]
    if local and (problem := _local_problem("inputs", local[0], command)):
        return problem, blocks
    return Check("inputs", "ok", detail), blocks


def _check_output(command: Command) -> Check:
    """Checks that workers can reach the output; write permission is not checked."""
    path = command.output
    if is_url(path):
        if problem := unreachable(path):
            return Check("output", "not checked", f"{path}: {problem}")
        return Check("output", "ok", f"{path} can be reached; write permission is not checked")
    return _local_problem("output", path, command) or Check("output", "ok", path)


def _check_filter(name: str) -> Check:
    """Checks that the filter can be imported here; the check of the package does so for workers."""
    try:
        load_filter(name)
    except TextmillError as error:
        return Check("filter", "failed", str(error), "correct --filter")
    return Check("filter", "ok", f"{name} can be imported here")


def _local_problem(name: str, path: str, command: Command) -> Check | None:
    """The check of a local path that workers may not see; None if they do."""
    if command.flags.is_dataflow:
        remedy = "copy it to a bucket in the region of the workers, and use its gs:// path"
        if name == "output":
            remedy = "--output=gs://BUCKET/folder"
        return Check(name, "failed", f"{path} is local: Dataflow's workers cannot see it", remedy)
    if command.flags.is_local or command.flags.workers.environment == "LOOPBACK":
        return None
    detail = f"{path} is a local path, which must be the same for all workers"
    remedy = "use an object store, or a file system that all workers mount at the same path"
    return Check(name, "not checked", detail, remedy)


def unreachable(path: str) -> str:
    """Why the object store of a path cannot be read from here; "" if it can."""
    return _bucket_problem("/".join(path.split("/")[:3]))  # gs://bucket


@functools.cache  # so that inputs and output in one bucket wait once
def _bucket_problem(bucket: str) -> str:
    # Without network or credentials this may hang; the thread is abandoned after a while.
    try:
        in_time(_PATIENCE, lambda: store.exists(f"{bucket}/MANIFEST.json"))
    except TimeoutError as error:
        return f"{error}: no network, or no credentials"
    except Exception as error:
        return f"the object store rejects the request: {one_line(error)[:200]}"
    return ""


def _check_size(run: Run) -> Check:
    """Estimates the size of the shuffle and of the largest shard, from a sample of the inputs."""
    schema, sizes = run.schema, estimate(run)
    # Hashes distribute documents, so the shards of a split differ by a few percent only.
    rows, shards = sum(sizes.rows.values()) or 1.0, sum(schema.shards.values())
    share = max(sizes.rows.get(name, 0) / rows / n for name, n in schema.shards.items())
    key, text = sizes.scratch_bytes * share, sizes.text_bytes * share
    memory = WORKER_BYTES + max(_ROUTE_BYTES, _SHARD_TIMES * text)
    size = (
        f"{decimal(int(sizes.scratch_bytes))} through the shuffle to {shards:,} shards, "
        f"{decimal(int(key))} to the largest; a worker takes up to {decimal(int(memory))}"
    )
    if key > _MOST_KEY_BYTES:
        more = 1 << int(shards * key / _GOOD_KEY_BYTES).bit_length()
        size += f"; the limit of a shard is {decimal(_MOST_KEY_BYTES)}"
        return Check("size", "failed", size, f"--num_shards={min(more, 99_999)}")
    return Check("size", "ok", size)
