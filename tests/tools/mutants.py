"""Mutation testing: how many wrong programs do the fast tests let pass?

    python -m tests.tools.mutants --sample=20 --seed=0 rows.packing schemas.records

Changes one operator, constant or statement of a module at a time, in a copy of the repository, and
runs the fast tests of that module (`TARGETS`). A mutant that no test notices is a survivor: a
missing test, a line that nothing needs, or the same program (equivalent_mutants.md says why).

(DeMillo, Lipton, Sayward, "Hints on Test Data Selection", 1978.) The process imports the libraries
once and forks for every mutant.
"""

import ast
import copy
import math
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import cache_from_source
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

from schemas.commands.entry import run_entry
from schemas.errors import UsageError
from tests.tools.places import ROOT

_ROWS, _TASKS, _SCHEMAS = "tests/pipelines/rows", "tests/pipelines/tasks", "tests/schemas"
_PINS = "tests/golden/test_pins.py::test_values_are_those_of_before"
_NEAR = "tests/pipelines/corpus/near_duplicates"
_TRAINER_TASKS = "tests/trainers/tasks"
_BPE = "tests/pipelines/train/test_bpe.py"
_WORDPIECE = (
    "tests/pipelines/train/test_wordpiece.py::test_merges_are_those_of_tokenizers_given_its_order"
)
TARGETS: dict[str, tuple[str, list[str]]] = {
    "packing": (
        "pipelines/rows/packing.py",
        [f"{_PINS}[packings]", f"{_ROWS}/test_packing.py"],
    ),
    "masking": (
        "pipelines/rows/masking.py",
        [f"{_PINS}[masks]", f"{_ROWS}/test_masking.py"],
    ),
    "routing": (
        "pipelines/rows/routing.py",
        [f"{_PINS}[routes]", f"{_ROWS}/test_routing.py"],
    ),
    "example_batch": (
        "pipelines/rows/example_batch.py",
        [f"{_ROWS}/test_example_batch.py"],
    ),
    "noise_spans": (
        "pipelines/tasks/span_corruption.py",
        [
            f"{_PINS}[noises]",
            f"{_TASKS}/test_noise_spans.py",
            f"{_TASKS}/test_span_corruption.py",
        ],
    ),
    "ragged": ("pipelines/rows/ragged.py", [f"{_ROWS}/test_ragged.py"]),
    "codec": (
        "schemas/codec.py",
        [f"{_SCHEMAS}/test_codec.py", f"{_SCHEMAS}/test_records.py"],
    ),
    "records": (
        "schemas/records.py",
        [f"{_SCHEMAS}/test_records.py"],
    ),
    "features": (
        "schemas/features.py",
        [f"{_SCHEMAS}/{name}.py" for name in ("test_features", "test_metadata", "test_codec")],
    ),
    "row_order": (
        "trainers/data/row_order.py",
        ["tests/trainers/data/test_row_order.py", f"{_PINS}[orders]"],
    ),
    "chat_turns": (
        "pipelines/tasks/chat_turns.py",
        [f"{_TASKS}/test_chat_turns.py"],
    ),
    "merge_loop": (
        "pipelines/train/merge_loop.py",
        # The first takes no time to compile.
        [f"{_BPE}::test_tables_grow_before_they_are_full", _BPE, _WORDPIECE],
    ),
    "resolve": ("pipelines/corpus/near_duplicates/resolve.py", [f"{_NEAR}/test_resolve.py"]),
    "shingles": (
        "pipelines/corpus/near_duplicates/shingles.py",
        [f"{_NEAR}/test_shingles.py", f"{_PINS}[near_duplicates]"],
    ),
    "class_scores": (
        "trainers/metrics/class_scores.py",
        ["tests/trainers/metrics/test_class_scores.py"],
    ),
    "questions": (
        "trainers/tasks/qa.py",
        [f"{_TRAINER_TASKS}/{name}.py" for name in ("test_questions", "test_tasks")],
    ),
    "metadata": (
        "schemas/metadata.py",
        [f"{_SCHEMAS}/test_metadata.py", f"{_SCHEMAS}/test_set_files.py"],
    ),
    "agreement": (
        "schemas/agreement.py",
        [f"{_SCHEMAS}/test_metadata.py", f"{_SCHEMAS}/test_untrusted_sets.py"],
    ),
    "deliveries": (
        "pipelines/runners/shuffle.py",
        [f"tests/pipelines/runners/{name}.py" for name in ("test_costs", "test_shuffle")],
    ),
    "losses": ("trainers/tasks/language_models.py", [f"{_TRAINER_TASKS}/test_tasks.py"]),
}
"""Name -> a module that must never be wrong, and the files with its fast tests."""

EQUIVALENT = Path(__file__).with_name("equivalent_mutants.md")
"""A table of the mutants that are the same program."""

_SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


class Mutant(NamedTuple):
    """A changed program."""

    target: str
    line: int
    change: str
    source: str

    def __str__(self) -> str:
        return f"{self.target}:{self.line} {self.change}"


def is_explained(mutant: Mutant, original: list[str]) -> bool:
    """Whether `EQUIVALENT` has a mutant of a module, given as lines."""
    line = original[mutant.line - 1].strip()
    rows = [row.strip("| \n").split(" | ") for row in EQUIVALENT.read_text().splitlines()[7:]]
    return any(
        target == mutant.target
        and line.startswith(code.strip("`"))
        and mutant.change in changes.split(", ")
        for target, code, changes, _ in rows
    )


@dataclass(frozen=True)
class Options:
    """Which modules to change, and how often."""

    targets: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Names of TARGETS. Default: all."""
    sample: int = 0
    """Mutants of each module. 0: all."""
    seed: int = 0
    """Seed of the sample."""
    seconds: int = 20
    """Least limit of a test run's CPU time; otherwise three times that of the unchanged module. A
    mutant that loops is noticed."""


def mutants_of(name: str, source: str) -> list[Mutant]:
    """All mutants of a module, in the order of its lines."""
    tree = ast.parse(source)
    found = []
    for index in range(sum(1 for _ in _changes(tree))):
        changed = copy.deepcopy(tree)
        for number, (line, what, change) in enumerate(_changes(changed)):
            if number == index:
                change()
                found.append(Mutant(name, line, what, ast.unparse(changed)))
                break
    return sorted(found, key=lambda mutant: mutant.line)


def _changes(tree: ast.Module) -> Iterator[tuple[int, str, Any]]:
    """Line, description and function of every change that is possible in a tree."""
    for node in _code_nodes(tree):
        if isinstance(node, ast.Compare):
            for place, operator in enumerate(node.ops):
                yield _swap(node, node.ops, place, operator)
        elif isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp):
            if type(node.op) in _SWAPS:
                new = _SWAPS[type(node.op)]()
                what = f"{type(node.op).__name__} to {type(new).__name__}"
                yield node.lineno, what, lambda node=node, new=new: setattr(node, "op", new)
        elif isinstance(node, ast.Constant) and type(node.value) in (bool, int, float):
            value: Any = node.value
            new = not value if isinstance(value, bool) else value + 1
            what = f"{value} to {new}"
            yield node.lineno, what, lambda node=node, new=new: setattr(node, "value", new)
        elif isinstance(node, ast.If | ast.While | ast.IfExp):
            test = ast.UnaryOp(ast.Not(), node.test)
            yield node.lineno, "negated", lambda node=node, new=test: setattr(node, "test", new)
        for body in (getattr(node, "body", None), getattr(node, "orelse", None)):
            if isinstance(body, list):
                yield from _removals(body)


def _removals(body: list[ast.stmt]) -> Iterator[tuple[int, str, Any]]:
    for place, statement in enumerate(body):
        is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
        if is_call or isinstance(statement, ast.AugAssign):
            remove = lambda at=place: body.__setitem__(at, ast.Pass())  # noqa: E731
            yield statement.lineno, "removed", remove


def _swap(node: ast.Compare, ops: list, place: int, operator: ast.cmpop) -> tuple[int, str, Any]:
    new = _SWAPS[type(operator)]()
    what = f"{type(operator).__name__} to {type(new).__name__}"
    return node.lineno, what, lambda: ops.__setitem__(place, new)


def _code_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes outside annotations, decorators, assertions and type-checking blocks."""
    if isinstance(tree, ast.If) and ast.unparse(tree.test) == "TYPE_CHECKING":
        return
    if isinstance(tree, ast.keyword) and tree.arg == "strict":
        return
    yield tree
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list") or isinstance(tree, ast.JoinedStr):
            continue
        children = value if isinstance(value, list) else [value]
        for child in children:
            if isinstance(child, ast.AST) and not isinstance(child, ast.Raise):
                yield from _code_nodes(child)


def survives(
    copied: Path, path: str, tests: list[str], mutant: Mutant, seconds: float, killers: list[str]
) -> bool:
    """Whether all tests pass with a changed module; restores it.

    Pins run first in Python, without numba, since compiling takes seconds.

    Args:
      copied: the copy of the repository.
      path: of the module in it.
      tests: node ids, or files.
      mutant: the changed module.
      seconds: of CPU time; a mutant that takes more is noticed.
      killers: names of tests to run first; the test that failed becomes the first of them.
    """
    module = copied / path
    original = module.read_text()
    _write_alike(module, mutant.source)
    found = copied / "killer"
    found.write_text("")
    pins = [test for test in tests if test.startswith(_PINS)]
    try:
        for some in filter(None, (pins, tests)):
            child = os.fork()
            if not child:
                _run_tests(copied, some, _Order(killers, found), seconds, compiles=some is tests)
            if _exit_code(child):
                return False
        return True
    finally:
        module.write_text(original)
        if killer := found.read_text():
            killers[:] = [killer, *(other for other in killers if other != killer)]


def _exit_code(child: int) -> int:
    """That of a process, which is killed after ten minutes."""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def _write_alike(module: Path, source: str) -> None:
    """Writes a module of the same size and time whatever the source, and removes its bytecode.

    numba keeps machine code while size and time stay, and a changed loop has another name (see
    `pipelines.host.compiled`): so it alone is compiled again.
    """
    module.write_bytes(f"{source}\n#".encode().ljust(1 << 17, b"#"))
    os.utime(module, (0, 0))
    Path(cache_from_source(module)).unlink(missing_ok=True)


class _Order:
    """A plugin of pytest: tests that killed other mutants come first; writes down which failed."""

    def __init__(self, killers: list[str], found: Path) -> None:
        self._killers, self._found = list(killers), found

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        at = {name: place for place, name in enumerate(self._killers)}
        items.sort(key=lambda item: at.get(item.nodeid, len(at)))

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self._found.write_text(report.nodeid)


def _run_tests(
    copied: Path, tests: list[str], order: _Order, seconds: float, *, compiles: bool
) -> None:
    """Runs pytest in a child; never returns."""
    import pytest
    from numba.core import config

    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), math.ceil(seconds)))
    if not compiles:
        config.DISABLE_JIT = 1  # pyright: ignore[reportAttributeAccessIssue]
    os.chdir(copied)
    sys.path[:] = [str(copied), *(entry for entry in sys.path if Path(entry or ".") != ROOT)]
    for name in [name for name in sys.modules if _is_ours(name)]:
        del sys.modules[name]
    log = os.open(copied / "tests.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    flags = ["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", f"--rootdir={copied}"]
    flags += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    flags += [] if compiles else ["-W", "ignore:overflow encountered:RuntimeWarning"]
    code = 1
    try:
        code = int(pytest.main([*flags, *tests], plugins=[order]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _cpu_seconds() -> float:
    """CPU time of all children so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] in ("pipelines", "trainers", "schemas", "tests")


def main(argv: list[str]) -> None:
    """Prints each survivor, and a table."""
    options = tyro.cli(Options, prog="python -m tests.tools.mutants", args=argv)
    names = options.targets or tuple(TARGETS)
    if unknown := [name for name in names if name not in TARGETS]:
        raise UsageError(f"unknown target {unknown[0]}: give some of {', '.join(TARGETS)}")
    # Imported once, before the forks, with the libraries that the tests import.
    import numba

    import tests.conftest

    assert tests.conftest
    numba.njit(lambda: 0)()  # starts LLVM
    for name in names:
        for path in dict.fromkeys(test.partition("::")[0] for test in TARGETS[name][1]):
            import_module(path.removesuffix(".py").replace("/", "."))
    print(
        "| module | mutants | tried | killed | equivalent | survivors |\n|---|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copied = Path(folder) / "tree"
        for part in ("pipelines", "schemas", "trainers", "tests"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / part, copied / part, ignore=ignored)
        shutil.copy(ROOT / "pyproject.toml", copied)
        for name in names:
            _try_target(name, copied, options)


def _try_target(name: str, copied: Path, options: Options) -> None:
    path, tests = TARGETS[name]
    source = (ROOT / path).read_text()
    mutants = mutants_of(name, source)
    unchanged = Mutant(name, 0, "", ast.unparse(ast.parse(source)))
    before = _cpu_seconds()
    if not survives(copied, path, tests, unchanged, 600, []):
        log = (copied / "tests.log").read_text()[-2000:]
        raise UsageError(f"{name}: its tests fail without any change:\n{log}")
    limit = max(options.seconds, 3 * (_cpu_seconds() - before))
    killers: list[str] = []
    tried = list(mutants)
    if options.sample:
        tried = random.Random(options.seed).sample(mutants, min(options.sample, len(mutants)))
    alive = [m for m in tried if survives(copied, path, tests, m, limit, killers)]
    left = [mutant for mutant in alive if not is_explained(mutant, source.splitlines())]
    killed = len(tried) - len(alive)
    explained = len(alive) - len(left)
    print(
        f"| {name} | {len(mutants)} | {len(tried)} | {killed} | {explained} | {len(left)} |",
        *(f"survivor {mutant}" for mutant in left),
        sep="\n",
        flush=True,
    )


if __name__ == "__main__":
    run_entry(main)
