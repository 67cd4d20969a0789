"""Mutation testing: how many wrong programs do the fast tests let pass?

    python -m tests.tools.mutants --sample=20 --seed=0 packing records

Changes one operator, constant or statement of a module at a time, in a copy of the repository, and
runs the fast tests of that module (`TARGETS`). A mutant that no test notices is a survivor: a
missing test, a line that nothing needs, or the same program (equivalent_mutants.md says why).

(DeMillo, Lipton, Sayward, "Hints on Test Data Selection", 1978.) The process imports the libraries
once and forks for every mutant.
"""

import ast
import math
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import cache_from_source
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

from tests.tools.places import ROOT
from textmill.schemas.commands.entry import run_entry
from textmill.schemas.errors import UsageError

_PINS = "tests/golden/test_pins.py::test_values_are_those_of_before"


class Target(NamedTuple):
    """A module that must never be wrong, and its fast tests, which are in the folder of its name.

    Attributes:
      module: its path.
      tests: their files, or `file::test`.
      pins: the parameter of `_PINS` for its values; "" for none.
    """

    module: str
    tests: tuple[str, ...]
    pins: str = ""

    def node_ids(self) -> list[str]:
        """What to pass to pytest."""
        folder = f"tests/{os.path.dirname(self.module)}"
        names = [test.partition("::") for test in self.tests]
        pins = [f"{_PINS}[{self.pins}]"] if self.pins else []
        return [*pins, *(f"{folder}/{file}.py{colons}{test}" for file, colons, test in names)]


_NEAR = "pipelines/corpus/near_duplicates"
_GROWS = "test_tables_grow_before_they_are_full"  # takes no time to compile
_MERGES = "test_merges_are_those_of_tokenizers_given_its_order"
TARGETS = {
    "packing": Target("pipelines/rows/packing.py", ("test_packing",), "packings"),
    "masking": Target("pipelines/rows/masking.py", ("test_masking",), "masks"),
    "routing": Target("pipelines/rows/routing.py", ("test_routing",), "routes"),
    "example_batch": Target("pipelines/rows/example_batch.py", ("test_example_batch",)),
    "noise_spans": Target(
        "pipelines/tasks/span_corruption.py", ("test_noise_spans", "test_span_corruption"), "noises"
    ),
    "ragged": Target("pipelines/rows/ragged.py", ("test_ragged",)),
    "codec": Target("schemas/format/codec.py", ("test_codec", "test_records")),
    "records": Target("schemas/format/records.py", ("test_records",)),
    "features": Target(
        "schemas/format/features.py", ("test_features", "test_metadata", "test_codec")
    ),
    "row_order": Target("trainers/data/row_order.py", ("test_row_order",), "orders"),
    "chat_turns": Target("pipelines/tasks/chat_turns.py", ("test_chat_turns",)),
    "merge_loop": Target(
        "pipelines/tokenizer/merge_loop.py",
        (f"test_bpe::{_GROWS}", "test_bpe", f"test_wordpiece::{_MERGES}"),
    ),
    "resolve": Target(f"{_NEAR}/resolve.py", ("test_resolve",)),
    "shingles": Target(f"{_NEAR}/shingles.py", ("test_shingles",), "near_duplicates"),
    "class_scores": Target("trainers/metrics/class_scores.py", ("test_class_scores",)),
    "questions": Target("trainers/tasks/qa.py", ("test_questions", "test_tasks")),
    "squad_scores": Target("trainers/metrics/squad_scores.py", ("test_questions", "test_tasks")),
    "metadata": Target("schemas/format/metadata.py", ("test_metadata", "test_agreement")),
    "agreement": Target("schemas/format/agreement.py", ("test_agreement",)),
    "deliveries": Target("pipelines/runners/shuffle.py", ("test_costs", "test_shuffle")),
    "losses": Target("trainers/tasks/language_models.py", ("test_tasks",)),
}

_OURS = ("pipelines", "schemas", "trainers", "tests")
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.md")
"""A table of the mutants that are the same program."""

_PAIRS = (
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot)),
    *((ast.In, ast.NotIn), (ast.Add, ast.Sub), (ast.LShift, ast.RShift), (ast.And, ast.Or)),
)
_SWAPS: dict[type, type] = {
    **dict(_PAIRS),
    **{second: first for first, second in _PAIRS},
    **{ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv},
    **{ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitAnd},
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
    tree, found = ast.parse(source), []
    for line, change, holder, key, new in [*_changes(tree)]:
        old, holder[key] = holder[key], new
        found.append(Mutant(name, line, change, ast.unparse(tree)))
        holder[key] = old
    return sorted(found, key=lambda mutant: mutant.line)


def _changes(tree: ast.Module) -> Iterator[tuple[int, str, Any, Any, Any]]:
    """Line and description of every change that is possible in a tree, and `holder[key] = new`."""
    for node in _code_nodes(tree):
        if isinstance(node, ast.Compare):
            for place, operator in enumerate(node.ops):
                yield _swap(node, operator, node.ops, place)
        elif isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in _SWAPS:
            yield _swap(node, node.op, vars(node), "op")
        elif isinstance(node, ast.Constant) and type(node.value) in (bool, int, float):
            value: Any = node.value
            new = not value if isinstance(value, bool) else value + 1
            yield node.lineno, f"{value} to {new}", vars(node), "value", new
        elif isinstance(node, ast.If | ast.While | ast.IfExp):
            test = ast.UnaryOp(ast.Not(), node.test)
            yield node.lineno, "negated", vars(node), "test", test
        for body in (getattr(node, "body", None), getattr(node, "orelse", None)):
            for place, statement in enumerate(body if isinstance(body, list) else ()):
                is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
                if is_call or isinstance(statement, ast.AugAssign):
                    yield statement.lineno, "removed", body, place, ast.Pass()


def _swap(node: Any, operator: ast.AST, *where: Any) -> tuple[int, str, Any, Any, Any]:
    new = _SWAPS[type(operator)]()
    return node.lineno, f"{type(operator).__name__} to {type(new).__name__}", *where, new


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


def survives(copied: Path, target: Target, mutant: Mutant, seconds: float) -> bool:
    """Whether all tests pass with a changed module; restores it.

    Pins run first in Python, without numba, since compiling takes seconds.

    Args:
      copied: the copy of the repository.
      target: the module and its tests.
      mutant: the changed module.
      seconds: of CPU time; a mutant that takes more is noticed.
    """
    module, tests = copied / target.module, target.node_ids()
    original = module.read_text()
    _write_alike(module, mutant.source)
    try:
        for some in filter(None, (tests[: bool(target.pins)], tests)):
            arguments = copied, some, seconds, some is tests
            child = multiprocessing.get_context("fork").Process(target=_run_tests, args=arguments)
            child.start()
            child.join(600)
            if child.exitcode is None:
                os.killpg(child.pid or 0, signal.SIGKILL)
                child.join()
            if child.exitcode != 0:
                return False
        return True
    finally:
        module.write_text(original)


def _write_alike(module: Path, source: str) -> None:
    """Writes a module of the same size and time whatever the source, and removes its bytecode.

    numba keeps machine code while size and time stay, and a changed loop has another name (see
    `pipelines.runtime.compiled`): so it alone is compiled again.
    """
    module.write_bytes(f"{source}\n#".encode().ljust(1 << 17, b"#"))
    os.utime(module, (0, 0))
    Path(cache_from_source(module)).unlink(missing_ok=True)


class _Order:
    """A plugin of pytest: tests that killed mutants come first, the newest before all others."""

    def __init__(self, killers: Path) -> None:
        self._killers = killers  # a file with a line for each test that failed

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        known = self._killers.read_text().splitlines() if self._killers.exists() else []
        at = {name: -place for place, name in enumerate(known, 1)}
        items.sort(key=lambda item: at.get(item.nodeid, 0))

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            with open(self._killers, "a") as file:
                file.write(f"{report.nodeid}\n")


def _run_tests(copied: Path, tests: list[str], seconds: float, compiles: bool) -> None:
    """Runs pytest in a child; never returns."""
    import pytest
    from numba.core import config

    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), math.ceil(seconds)))
    if not compiles:
        config.DISABLE_JIT = 1  # pyright: ignore[reportAttributeAccessIssue]
    os.chdir(copied)
    sys.path[:] = [str(copied), *(entry for entry in sys.path if Path(entry or ".") != ROOT)]
    for name in [*sys.modules]:
        if name.partition(".")[0] in _OURS:
            del sys.modules[name]
    log = os.open(copied / "tests.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    flags = ["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", f"--rootdir={copied}"]
    flags += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    flags += [] if compiles else ["-W", "ignore:overflow encountered:RuntimeWarning"]
    code = 1
    try:
        code = int(pytest.main([*flags, *tests], plugins=[_Order(copied / "killers")]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


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
        for path in dict.fromkeys(test.partition("::")[0] for test in TARGETS[name].node_ids()):
            import_module(path.removesuffix(".py").replace("/", "."))
    print(
        "| module | mutants | tried | killed | equivalent | survivors |\n|---|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copied = Path(folder) / "tree"
        for part in _OURS:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / part, copied / part, ignore=ignored)
        shutil.copy(ROOT / "pyproject.toml", copied)
        for name in names:
            _try_target(name, copied, options)


def _try_target(name: str, copied: Path, options: Options) -> None:
    target = TARGETS[name]
    source = (ROOT / target.module).read_text()
    tried = mutants = mutants_of(name, source)
    unchanged = Mutant(name, 0, "", ast.unparse(ast.parse(source)))
    before = os.times()
    if not survives(copied, target, unchanged, 600):
        log = (copied / "tests.log").read_text()[-2000:]
        raise UsageError(f"{name}: its tests fail without any change:\n{log}")
    took = sum(os.times()[2:4]) - sum(before[2:4])  # CPU time of children
    limit = max(options.seconds, 3 * took)
    if options.sample:
        tried = random.Random(options.seed).sample(mutants, min(options.sample, len(mutants)))
    alive = [mutant for mutant in tried if survives(copied, target, mutant, limit)]
    left = [mutant for mutant in alive if not is_explained(mutant, source.splitlines())]
    counts = len(mutants), len(tried), len(tried) - len(alive), len(alive) - len(left), len(left)
    print(
        f"| {name} | {' | '.join(map(str, counts))} |",
        *(f"survivor {mutant}" for mutant in left),
        sep="\n",
        flush=True,
    )


if __name__ == "__main__":
    run_entry(main)
