"""Checks that this machine, and the workers, can reach the inputs and the output."""

import functools
from collections.abc import Callable, Generator, Iterator

from rich.filesize import decimal

from textmill.pipelines.preflight.check import CannotCheck, Check, attempt
from textmill.pipelines.readers.files import expand_lists
from textmill.pipelines.readers.sources import Block, Source
from textmill.pipelines.runners.runner_flags import RunnerFlags
from textmill.schemas.commands.terminal import in_time, number_of
from textmill.schemas.errors import flag, one_line
from textmill.schemas.files import store

_PATIENCE = 25.0  # seconds; an object store without network or credentials may never answer


def reach(path: str) -> None:
    """Raises CannotCheck if a path is in an object store that cannot be read from here."""
    if store.is_url(path) and (problem := _bucket_problem("/".join(path.split("/")[:3]))):
        raise CannotCheck(f"{path}: {problem}")


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


def check_inputs(
    sources: tuple[Source, ...], plan: Callable[[], list[Block]], flags: RunnerFlags
) -> Generator[Check, None, list[Block] | None]:
    """Plans the inputs, and checks that workers can read them.

    Returns:
      The blocks; None if the inputs cannot be read from here.
    """

    def read() -> tuple[list[str], list[Block]]:
        paths = [path for each in sources for path in expand_lists(each.patterns, each.field)]
        for path in paths:
            reach(path)
        return [path for path in paths if not store.is_url(path)], plan()

    flags_of_inputs = " or ".join(flag(each.field) for each in sources)
    planned = yield from attempt("inputs", read, f"correct {flags_of_inputs}")
    if planned is None:
        return None
    [(local, blocks)] = planned
    files = {part.path: part.size for block in blocks for part in block.parts}
    detail = (
        f"{number_of(len(files), 'file')}, {decimal(sum(files.values()))}, "
        f"{number_of(len(blocks), 'block')}"
    )
    problem = _local_problem("inputs", local[0], flags) if local else None
    yield problem or Check("inputs", "ok", detail)
    return blocks


def check_output(path: str, flags: RunnerFlags) -> Iterator[Check]:
    """Checks that workers can reach the output; write permission is not checked."""
    if not store.is_url(path):
        yield _local_problem("output", path, flags) or Check("output", "ok", path)
    elif (yield from attempt("output", lambda: reach(path))) is not None:
        detail = f"{path} can be reached; write permission is not checked"
        yield Check("output", "ok", detail)


def _local_problem(name: str, path: str, flags: RunnerFlags) -> Check | None:
    """The check of a local path that workers may not see; None if they do."""
    if flags.is_dataflow:
        remedy = "copy it to a bucket in the region of the workers, and use its gs:// path"
        if name == "output":
            remedy = flag("output", "gs://BUCKET/folder")
        return Check(name, "failed", f"{path} is local: Dataflow's workers cannot see it", remedy)
    if flags.is_local or flags.workers.environment == "LOOPBACK":
        return None
    detail = f"{path} is a local path, which must be the same for all workers"
    remedy = "use an object store, or a file system that all workers mount at the same path"
    return Check(name, "not checked", detail, remedy)
