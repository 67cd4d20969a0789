"""Files of flags (`--config=FILE.yaml`), and the file that repeats a run.

Textmill's own files are in `pipelines/configs/`; users give their bare names (--config=fineweb).

A file is a mapping of flags to values. A file for a whole job holds one such mapping for each
command, by the command's name. Flags of the command line win, wherever they stand.

Only this module imports PyYAML, when it reads the first file.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Mapping

from textmill.schemas.commands.options import Given, fields_of, is_switch, takes_list
from textmill.schemas.commands.values import OF_THIS_RUN, text_of
from textmill.schemas.errors import UsageError, flag, one_line

Fields = Mapping[str, "dataclasses.Field[Any]"]
FLAG, CONFIG = "--config", "config.yaml"
CONFIGS = Path(__file__).resolve().parents[2] / "pipelines" / "configs"  # read, never imported
_MOST_BYTES = 1 << 18  # far above any file of flags, and read in 2 s
_MOST_ALIASES = 20  # nested in one another, they multiply values by 1,000 at most
_MOST_DIGITS = 400


def read_config(
    argv: list[str],
    command: str,
    options: Callable[[], Iterable[type]],
    *,
    folder: Path = CONFIGS,
) -> tuple[list[str], dict[str, Given]]:
    """The values of `--config=FILE`, except of flags that are typed, and the other arguments.

    ["--config=job.yaml", "--seed=3"], with `seed: 1` and `max_length: 64` in the file, gives
    ["--seed=3"] and the value 64 of max_length.

    Args:
      argv: as typed.
      command: name of the part to read, if the file has parts: build_shards.
      options: returns the dataclasses of the command's flags; called only if they are needed.
      folder: holds NAME.yaml of `--config=NAME`.

    Raises:
      UsageError: there is no such file, or it has a different form; names the file. Or a flag whose
        value is a list is given twice.
    """
    typed = [each[2:].partition("=")[0].replace("-", "_") for each in argv if each[:2] == "--"]
    twice = sorted({name for name in typed if typed.count(name) > 1})
    files, rest = _split(argv)
    known = fields_of(*options()) if files or twice else {}
    for name in twice:
        if name in known and takes_list(known[name]):  # the first of two would be lost silently
            raise UsageError(
                f"{flag(name)} is given {typed.count(name)} times: separate the values by commas "
                f"in one ({flag(name, 'A,B')})"
            )
    if not files:
        return argv, {}
    if len(files) > 1:
        raise UsageError(
            f"{flag('config')} is given {len(files)} times: put the flags into one file"
        )
    path = _find(files[0], folder)
    values = _part(_load(path), command, known, path)
    ours = _names(rest, known)
    given = {name: Given(value, path) for name, value in values.items() if value is not None}
    return rest, {name: one for name, one in given.items() if name not in ours}


def config_bytes(module: str, options: Any) -> bytes:
    """The file that repeats a run: all its flags and defaults, except those of this run alone.

    Args:
      module: of the command: pipelines.build_shards.
      options: the dataclass of its flags; dataclasses in it hold more.
    """
    plain = dict(_flags(options))
    # PyYAML would write U+0085 as it is, and read it as a space.
    unicode = r"\x85" not in repr(plain)
    text = _import_yaml().safe_dump(plain, sort_keys=False, allow_unicode=unicode, width=100)
    head = f"# Again: python -m {module} --config=THIS_FILE --output=DIR"
    return f"{head}\n{text}".encode()


def _flags(options: Any) -> Iterator[tuple[str, Any]]:
    """Names and values for YAML, without those that are empty or None by default.

    A value that a user types as a word (None, True or False) is a string.
    """
    for field in dataclasses.fields(options):
        if OF_THIS_RUN.items() <= field.metadata.items():
            continue
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


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
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


def _load(path: str) -> dict[str, Any]:
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


def _part(values: dict[str, Any], command: str, known: Fields, path: str) -> dict[str, Any]:
    """The command's part of a file that has parts; else the whole file."""
    if command in values and command not in known:
        values = values[command] or {}
        if not isinstance(values, dict):
            raise UsageError(f"{path}: {command} must be a mapping of flags to values")
    elif values and all(isinstance(v, dict) and k not in known for k, v in values.items()):
        raise UsageError(f"{path} has no part {command}; its parts: {', '.join(map(str, values))}")
    return {str(name).lstrip("-").replace("-", "_"): value for name, value in values.items()}


def _names(argv: Iterable[str], known: Fields) -> set[str]:
    """The flags that arguments set: `--max-length=3` and `--no_resume` set max_length, resume."""
    names = set()
    for argument in argv:
        if argument.startswith("--"):
            name = argument[2:].partition("=")[0].replace("-", "_")
            positive = name[len("no_") :] if name.startswith("no_") else name
            names.add(positive if positive in known and is_switch(known[positive]) else name)
    return names
