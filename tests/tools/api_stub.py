"""Writes textmill/__init__.pyi, from which editors know keywords: python -m tests.tools.api_stub.

The keywords are the flags of the commands, with their types.
"""

import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import MISSING, Field
from typing import Any, Literal, Union, get_args, get_origin

import textmill as tm
from tests.tools.places import ROOT
from textmill.functions import TRAINERS, keywords_of
from textmill.results import Run
from textmill.schemas.commands.options import fields_of, takes_list
from textmill.schemas.commands.values import rule_of
from textmill.tasks import Task
from textmill.trainers.flax_clm import FlaxClmFlags
from textmill.trainers.use.use_flags import options_of
from textmill.trainers.use.verbs import VERBS

PATH = ROOT / "textmill" / "__init__.pyi"
_TOP = """# Written by `python -m tests.tools.api_stub` from the flags of the commands.
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal, TypeAlias, overload

from textmill.functions import describe as describe
from textmill.functions import publish as publish
from textmill.functions import verify as verify
from textmill.results import Corpus as Corpus
from textmill.results import Dataset as Dataset
from textmill.results import Output
from textmill.results import QualityModel as QualityModel
from textmill.results import Tokenizer as Tokenizer
from textmill.schemas.errors import DataError as DataError
from textmill.schemas.errors import UsageError as UsageError
from textmill.tasks import Task as Task
from textmill.trainers.data.shard_set import ShardSet as ShardSet
from textmill.trainers.run.training_task import Prediction
"""
_ALIASES = """
_Text: TypeAlias = str | PathLike[str]
_Texts: TypeAlias = _Text | Sequence[Any] | Mapping[Any, Any]
__all__: list[str]

def open(directory: _Text) -> Corpus | Dataset | Tokenizer | Run: ...
"""
_WRITES = ("max_new_tokens", "temperature", "top_k", "top_p", "precision", "seed")
_CHECKPOINT = "checkpoint: _Text | int = ..."
_READS = ("shards", "validation_split", "evaluation_rows", "verify", "follow_links", "cache_dir")
_READS += ("cache_gigabytes", "batch_size", "precision", "report")
# Methods of a run: parameters, result, and flags of their commands that are keywords.
_VERBS = [
    *(
        (verb, f"{first}: str, *{more}, {_CHECKPOINT}", result, _WRITES)
        for verb, first in (("generate", "text"), ("chat", "message"))
        for more, result in ((", samples: int", "list[str]"), ("", "str"))
    ),
    ("evaluate", '*, checkpoint: Literal["all"]', "list[dict[str, float]]", _READS),
    ("evaluate", f"*, {_CHECKPOINT}", "dict[str, float]", _READS),
    (
        "predict",
        f"texts: _Text | Sequence[str | Sequence[str]], *, {_CHECKPOINT}",
        "list[Prediction]",
        ("batch_size", "precision", "output"),
    ),
    ("export", f"output: _Text, *, {_CHECKPOINT}", "str", ()),
]


def write_stub() -> str:
    """The text of the file."""
    places: dict[str, str] = {}

    def keywords(*options: type, but: str = "") -> Iterator[str]:
        for name, field in fields_of(*options).items():
            hidden = "Suppress" in map(str, getattr(field.type, "__metadata__", ()))
            if name != but and not hidden:
                default = "" if field.default is field.default_factory is MISSING else " = ..."
                yield f"{name}: {_hint(field, places)}{default}"

    def function(name: str, result: str, *parameters: str) -> str:
        return f"def {name}({', '.join(parameters)}) -> {result}: ...\n"

    more = ["config: _Text = ...", "**beam: Any"]
    names = ("build_corpus", "train_tokenizer", "build_shards", "train_quality_model")
    corpus, tokenizer, shards, model = (keywords_of(name).options() for name in names)
    parts = [
        function("build_corpus", "Corpus", "*", *keywords(*corpus), *more),
        function("train_tokenizer", "Tokenizer", "*", *keywords(*tokenizer), *more),
        function(
            "build_shards",
            "Dataset",
            "task: Task | str = ...",
            "*",
            *keywords([*shards][0], but="task"),
            *more,
        ),
        function("train_quality_model", "QualityModel", "*", *keywords(*model)),
    ]
    for name in TRAINERS:
        own = keywords(*keywords_of(name).options())
        first = (f"trainer: Literal[{name!r}]", "*", more[0])
        parts.append("@overload\n" + function("train", "Run", *first, *own))
    for name in tm.__all__:
        kind = getattr(tm, name)
        if isinstance(kind, type) and issubclass(kind, Task):
            own = keywords(*kind.options())
            make = function("__init__", "None", "self", "*", "max_length: int = ...", *own)
            parts.append(f'class {name}(Task):\n    """{kind.__doc__}"""\n    {make}')
    parts.append(_run_class(places))
    imports = (f"from {place} import {name} as {name}\n" for name, place in sorted(places.items()))
    return _format("".join([_TOP, *imports, _ALIASES, *parts]))


def _run_class(places: dict[str, str]) -> str:
    """The class of a run, whose methods have flags of commands as keywords."""
    lines = [f'class Run(Output):\n    """{Run.__doc__}"""', "    settings: dict[str, Any]"]
    lines.append("    def metrics(self) -> list[dict[str, Any]]: ...")
    verbs = [verb for verb, *_ in _VERBS]
    for verb, parameters, result, names in _VERBS:
        command = VERBS["export_model" if verb == "export" else verb]
        fields = fields_of(options_of(command, FlaxClmFlags()))
        own = (f"{name}: {_hint(fields[name], places)} = ..." for name in names)
        overload = "    @overload\n" * (verbs.count(verb) > 1)
        more = "" if verb == "export" else ", **settings: Any"  # of the trainer
        signature = f"{', '.join(['self', parameters, *own])}{more}"
        lines.append(f"{overload}    def {verb}({signature}) -> {result}: ...")
    return "\n".join(lines) + "\n"


def _hint(field: Field[Any], places: dict[str, str]) -> str:
    """The type of a keyword: that of the field, and its text where it is not only text."""
    hint = field.type.__origin__ if hasattr(field.type, "__metadata__") else field.type  # type: ignore
    text = _TEXTS if takes_list(field) or field.name in ("shards", "stages") else _TEXT
    found = _write(hint, text, places)
    has_text = rule_of(field.type) is not None
    return " | ".join(dict.fromkeys([*found.split(" | "), *[text] * has_text]))


_TEXT, _TEXTS = "_Text", "_Texts"


def _write(hint: Any, text: str, places: dict[str, str]) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if origin in (types.UnionType, Union):
        return " | ".join(_write(each, text, places) for each in arguments)
    if origin in (tuple, list):
        inner = _write(arguments[0], _TEXT, places)
        return _TEXTS if inner == _TEXT else f"Sequence[{inner}]"
    if origin is dict:
        return f"Mapping[{', '.join(_write(each, 'str', places) for each in arguments)}]"
    if hint in (str, type(None)):
        return text if hint is str else "None"
    if hint not in (bool, int, float):
        places[hint.__name__] = hint.__module__
    return hint.__name__


def _format(code: str) -> str:
    command = [sys.executable, "-m", "ruff"]
    path = ["--stdin-filename", str(PATH), "-"]
    for how in (["check", "--fix", "--quiet", "--select=I,UP"], ["format", "--quiet"]):
        done = subprocess.run(
            [*command, *how, *path], input=code, capture_output=True, text=True, check=True
        )
        code = done.stdout
    return code


if __name__ == "__main__":
    PATH.write_text(write_stub(), encoding="utf-8")
