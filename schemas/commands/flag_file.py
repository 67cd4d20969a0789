"""Files of flags (`--config=FILE.yaml`): their values become arguments of the command line.

Textmill's own files are in `pipelines/configs/`; users give their bare names (--config=fineweb).

A file is a mapping of flags to values. A file for a whole job holds one such mapping for each
command, by the command's name. Flags of the command line win, wherever they stand.

Only this module imports PyYAML, when it reads the first file.
"""

import dataclasses
import difflib
import os
import reprlib
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple, TypeVar

from textmill.schemas.commands.values import join_list, rule_of, text_of
from textmill.schemas.errors import UsageError, flag, one_line

FLAG, CONFIG = "--config", "config.yaml"
CONFIGS = Path(__file__).resolve().parents[2] / "pipelines" / "configs"  # read, never imported
# Flags that say where one run writes and how it runs; config.yaml leaves them to the next run.
_OF_THIS_RUN = {"output", "overwrite", "resume", "stop_after", "dry_run", "preflight", "shuffle_by"}
_OF_THIS_RUN |= {"assume_bytes"}
_SCALARS = (str, int, float)
_MOST_BYTES = 1 << 18  # far above any file of flags, and read in 2 s
_MOST_ALIASES = 20  # nested in one another, they multiply values by 1,000 at most
_MOST_DIGITS = 400


def with_config(
    argv: List[str],
    command: str,
    options: Callable[[], Iterable[type]],
    check_unknown: Optional[Callable[[List[str]], object]] = None,
    *,
    folder: Path = CONFIGS,
) -> List[str]:
    """The arguments, preceded by those of `--config=FILE`.

    ["--config=job.yaml", "--seed=3"], with `seed: 1` and `max_length: 64` in the file, gives
    ["--max_length=64", "--seed=3"].

    Args:
      argv: as typed.
      command: name of the part to read, if the file has parts: build_shards.
      options: returns the dataclasses of the command's flags; called only if they are needed.
      check_unknown: receives flags that the command does not have, and raises UsageError if Beam
        does not have them either. None: the command accepts no other flags.
      folder: holds NAME.yaml of `--config=NAME`.

    Raises:
      UsageError: there is no such file, or it has another form. Names the file, the key and the
        nearest flag. Or a flag whose value is a list is given twice.
    """
    typed = [each[2:].partition("=")[0].replace("-", "_") for each in argv if each[:2] == "--"]
    twice = sorted({name for name in typed if typed.count(name) > 1})
    files, rest = _split(argv)
    known = kinds_of(*options()) if files or twice else {}
    for name in twice:
        if known.get(name) in ("names", "quoted"):  # the first of two would be lost silently
            raise UsageError(
                f"{flag(name)} is given {typed.count(name)} times: separate the values by commas "
                f"in one ({flag(name, 'A,B')})"
            )
    if not files:
        return argv
    if len(files) > 1:
        raise UsageError(
            f"{flag('config')} is given {len(files)} times: put the flags into one file"
        )
    path = _find(files[0], folder)
    values = _part(_load(path), command, known, path)
    unknown = [name for name in values if name not in known]
    if unknown and check_unknown is None:
        near = difflib.get_close_matches(unknown[0], known, 1)
        hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(sorted(known))}"
        raise UsageError(f"{path}: {command} has no flag {unknown[0]!r}{hint}")
    if unknown and check_unknown:
        # The error names the key of `resume: false`, not --no_resume.
        on = {name: True if values[name] is False else values[name] for name in unknown}
        others = arguments_of(on, known, path)
        try:
            check_unknown(others)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from error
    ours = _names(rest, known)
    return arguments_of({n: v for n, v in values.items() if n not in ours}, known, path) + rest


def kinds_of(*options: type) -> Dict[str, str]:
    """The flags of dataclasses, nested ones too, to their kinds.

    bool, list (repeatable), names (one value, whose parts commas separate: its metavar ends with
    ",..."), quoted (names that may be in double quotes) or value.
    """
    return {name: _kind_of(field.type) for name, field in fields_of(*options).items()}


def fields_of(*options: type) -> "Dict[str, dataclasses.Field[Any]]":
    """The flags of dataclasses, nested ones too, to their fields."""
    fields: Dict[str, dataclasses.Field[Any]] = {}
    for field in (field for cls in options for field in dataclasses.fields(cls)):
        kind: Any = getattr(field.type, "__origin__", field.type)  # of Annotated[kind, ...]
        is_group = isinstance(kind, type) and dataclasses.is_dataclass(kind)
        if is_group and rule_of(field.type) is None:
            fields.update(fields_of(kind))
        elif not isinstance(kind, TypeVar):  # that stands for a dataclass given beside
            fields[field.name] = field
    return fields


def _kind_of(hint: Any) -> str:
    hints, has_rule = getattr(hint, "__metadata__", ()), rule_of(hint) is not None
    if "tuple[" in str(hint).lower() and not has_rule:
        return "list"
    if getattr(hint, "__origin__", hint) in (bool, "bool"):
        return "bool"
    if any((getattr(each, "metavar", None) or "").endswith(",...") for each in hints):
        return "quoted" if has_rule else "names"
    return "value"


def config_bytes(module: str, options: Any) -> bytes:
    """The file that repeats a run: all its flags and defaults, except those of this run alone.

    Args:
      module: of the command: pipelines.build_shards.
      options: the dataclass of its flags; dataclasses in it hold more.
    """
    plain = {name: value for name, value in _flags(options) if name not in _OF_THIS_RUN}
    # PyYAML would write U+0085 as it is, and read it as a space.
    unicode = r"\x85" not in repr(plain)
    text = _import_yaml().safe_dump(plain, sort_keys=False, allow_unicode=unicode, width=100)
    head = f"# Again: python -m {module} --config=THIS_FILE --output=DIR"
    return f"{head}\n{text}".encode()


def _flags(options: Any) -> "Iterator[Tuple[str, Any]]":
    """Names and values for YAML, without those that are empty or None by default.

    A value that a user types as a word (None, True or False) is a string.
    """
    for field in dataclasses.fields(options):
        value = text_of(field.type, getattr(options, field.name))
        if dataclasses.is_dataclass(value):
            yield from _flags(value)
        elif is_word(field, value):
            yield field.name, str(value)
        elif value is not None and value != ():
            yield field.name, list(value) if isinstance(value, tuple) else value


def is_word(field: dataclasses.Field, value: Any) -> bool:
    """Whether a user types this value as a word, such as None where it is not the default."""
    if value is None:
        return field.default not in (None, dataclasses.MISSING)
    return isinstance(value, bool) and not isinstance(field.default, bool)


def _split(argv: List[str]) -> "Tuple[List[str], List[str]]":
    files, rest = [], []
    arguments = iter(argv)
    for argument in arguments:
        if argument == FLAG:
            files.append(next(arguments, ""))
        elif argument.startswith(FLAG + "="):
            files.append(argument[len(FLAG) + 1 :])
        else:
            rest.append(argument)
    if "" in files:
        raise UsageError(f"{flag('config')} names no file: give {flag('config', 'FILE.yaml')}")
    return files, rest


def _find(name: str, folder: Path) -> str:
    """The path of a file: as given, or of one of `folder` by its bare name."""
    ready = sorted(path.stem for path in folder.glob("*.yaml"))
    if os.path.isfile(name):
        return name
    if name in ready:
        return str(folder / f"{name}.yaml")
    near = difflib.get_close_matches(name, ready, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UsageError(
        f"{flag('config', name)}: there is no such file; Textmill's own are "
        f"{', '.join(ready) or 'not installed here'}{hint}"
    )


def _import_yaml() -> Any:
    # Commands without --config start faster, and a trainer's host may have no PyYAML.
    import yaml

    return yaml


def _load(path: str) -> Dict[str, Any]:
    yaml = _import_yaml()
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise UsageError(
                f"{flag('config', path)} is larger than {_MOST_BYTES:,} bytes, too large for "
                f"flags; put a long list of inputs into its own file: {flag('input', '@LIST.txt')}"
            )
        values = _loader(yaml, path)(content.decode("utf-8")).get_single_data()
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        reason = one_line(error)
        raise UsageError(f"{flag('config', path)} cannot be read as YAML: {reason}") from error
    if not isinstance(values, dict):
        raise UsageError(
            f"{path} holds {'nothing' if values is None else type(values).__name__}, and must be a "
            "mapping of flags to values, such as `max_length: 128`"
        )
    return values


def _loader(yaml: Any, path: str) -> Any:
    """YAML's safe loader, which in addition refuses what that loader accepts silently.

    A few lines of aliases can stand for 10**12 values, a number can have 100 kB of digits, and the
    last of two equal keys would win.
    """

    class Loader(yaml.SafeLoader):
        aliases = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            self.aliases += self.check_event(yaml.AliasEvent)
            if self.aliases > _MOST_ALIASES:
                raise UsageError(
                    f"{path} has more than {_MOST_ALIASES} aliases (*name): write the values out"
                )
            return super().compose_node(parent, index)

        def compose_scalar_node(self, anchor: Any) -> Any:
            node = super().compose_scalar_node(anchor)
            digits = len(node.value) if node.tag.endswith((":int", ":float")) else 0
            if digits > _MOST_DIGITS:
                line = node.start_mark.line + 1
                raise UsageError(f"{path}, line {line}: a number of {digits:,} digits")
            return node

        def compose_mapping_node(self, anchor: Any) -> Any:
            node = super().compose_mapping_node(anchor)
            names = set()
            for key, _ in node.value:
                if str(key.value) in names:
                    line = key.start_mark.line + 1
                    raise UsageError(f"{path}, line {line}: {key.value} is given twice")
                names.add(str(key.value))
            return node

    return Loader


def _part(
    values: Dict[str, Any], command: str, known: Mapping[str, str], path: str
) -> Dict[str, Any]:
    """The command's part of a file that has parts; else the whole file."""
    if command in values and command not in known:
        values = values[command] or {}
        if not isinstance(values, dict):
            raise UsageError(f"{path}: {command} must be a mapping of flags to values")
    elif values and all(isinstance(v, dict) and k not in known for k, v in values.items()):
        raise UsageError(f"{path} has no part {command}; its parts: {', '.join(map(str, values))}")
    return {str(name).lstrip("-").replace("-", "_"): value for name, value in values.items()}


def _names(argv: Iterable[str], known: Mapping[str, str]) -> "set[str]":
    """The flags that arguments set: `--max-length=3` and `--no_resume` set max_length, resume."""
    names = set()
    for argument in argv:
        if argument.startswith("--"):
            name = argument[2:].partition("=")[0].replace("-", "_")
            positive = name[len("no_") :] if name.startswith("no_") else name
            names.add(positive if known.get(positive) == "bool" else name)
    return names


def arguments_of(values: Mapping[str, Any], known: Mapping[str, str], path: str) -> List[str]:
    """The arguments that set flags: --seed=1 --no_resume --input=a --input=b --splits=train:1.

    Args:
      values: {"seed": 1, "resume": False, "input": ["a", "b"], "splits": {"train": 1}}.
      known: the command's flags to their kinds, see `kinds_of`.
      path: of the file, for messages; or the function that has the values.

    Raises:
      UsageError: a value has another form.
    """
    arguments = []
    for name, value in values.items():
        kind = known.get(name)
        if value is None:  # an empty value, as if the key were missing
            continue
        if isinstance(value, bool) and kind in ("bool", None):
            arguments.append(f"--{name}" if value else f"--no_{name}")
            continue
        if kind == "bool" or isinstance(value, bool):
            wanted = "true or false" if kind == "bool" else "a value; YAML reads a bare yes, no, on"
            wanted += "" if kind == "bool" else " and off as true and false: put them in quotes"
            raise UsageError(f"{path}: {name} is {reprlib.repr(value)}, and must be {wanted}")
        items = value if isinstance(value, list) else [value]
        if isinstance(value, dict):
            items = list(value.values())
        if not all(isinstance(i, _SCALARS) and not isinstance(i, bool) for i in items):
            raise UsageError(
                f"{path}: {name} is {reprlib.repr(value)}, and must be a value or a list of them"
            )
        texts = [str(item) for item in items]
        if any(text == "~" or text.startswith("~/") for text in texts):
            raise UsageError(
                f"{path}: {name} is {reprlib.repr(value)}, and ~ is not expanded: write the home "
                f"directory as {os.path.expanduser('~')}"
            )
        if kind == "quoted" and isinstance(value, list):
            texts = [join_list(texts)]
        is_repeated = kind in ("list", None)  # as Beam's lists are
        if not is_repeated and len(texts) > 1 and any("," in text for text in texts):
            raise UsageError(
                f"{path}: {name} is {reprlib.repr(value)}, but commas separate its values: write "
                "all of them as one text, as on the command line"
            )
        if isinstance(value, dict):
            texts = [f"{key}:{text}" for key, text in zip(value, texts)]
        arguments += [f"--{name}={t}" for t in (texts if is_repeated else [",".join(texts)])]
    return arguments
