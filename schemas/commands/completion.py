"""Completion of `textmill` in shells: `textmill completion bash` prints a script.

The script holds the commands, their flags and the choices of these, so that pressing TAB starts no
Python. (tyro's own completion knows one parser; textmill's commands have one each.) Python 3.8
syntax.
"""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout, suppress
from importlib import import_module
from typing import Iterator, Mapping, NamedTuple, Sequence

from textmill.schemas.format.features import TASKS

SHELLS = ("bash", "zsh", "fish")
INSTALL = {
    "bash": "textmill completion bash > ~/.local/share/bash-completion/completions/textmill",
    "zsh": "textmill completion zsh > ~/.zfunc/_textmill",
    "fish": "textmill completion fish > ~/.config/fish/completions/textmill.fish",
}


class Word(NamedTuple):
    """A flag as it is completed.

    Attributes:
      name: "--document".
      takes_value: whether a value follows: --document=line.
      choices: the values that there are; () for any, such as a path.
    """

    name: str
    takes_value: bool
    choices: tuple[str, ...] = ()


class CompletedCommand(NamedTuple):
    """A command with the sentence about it and its flags."""

    name: str
    about: str
    words: Sequence[Word] = ()
    choices: tuple[str, ...] = ()  # of its argument, which is a file if there are none
    trains: bool = False


def words_of(module: str) -> list[Word]:
    """The flags of a command; none if its packages are not installed.

    Args:
      module: pipelines.build_shards.
    """
    tasks = TASKS if module == "pipelines.build_shards" else ()  # which have flags of their own
    words: dict[str, Word] = {}
    for arguments in ([], *([f"--task={task}"] for task in tasks)):
        out = io.StringIO()
        with redirect_stdout(out), suppress(SystemExit, ImportError):
            import_module(f"textmill.{module}").main([*arguments, "--help=flags"])
        for line in out.getvalue().splitlines():
            words.update({word.name: word for word in _words(line)})
    return [*words.values(), Word("--help", False)] if words else []


def _words(typed: str) -> Iterator[Word]:
    """--document=line|file -> the flag with two choices; "--bos, --no_bos" -> two flags."""
    for each in typed.split(", "):
        name, equals, value = each.partition("=")
        if name.startswith("--"):
            choices = value.split("|") if re.fullmatch(r"[a-z0-9][\w.]*(\|[\w.]+)+", value) else ()
            yield Word(name, bool(equals), tuple(choices))


def script(shell: str, commands: Sequence[CompletedCommand]) -> str:
    """The script for a shell."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](commands)


def _head(shell: str) -> str:
    return f"# Completion of textmill: {INSTALL[shell]}\n"


_BASH = r"""
_textmill() {
    local line=${COMP_LINE:0:COMP_POINT} words current= command= first=1
    local names= flags= flag= choices=
    read -ra words <<< "$line"
    [[ $line == *[[:space:]] ]] || { current=${words[-1]}; unset 'words[-1]'; }
    [[ ${words[1]} == train ]] && first=2
    command=${words[first]//_/-}
    COMPREPLY=()
    if [[ -z $command ]]; then
        names="@NAMES@"
        ((first == 2)) && names="@TRAINERS@"
        COMPREPLY=($(compgen -W "$names" -- "${current//_/-}"))
        return
    fi
    case $command in
@FLAGS@
    esac
    if [[ $current == --*=* ]]; then
        flag=${current%%=*} current=${current#*=}
    elif [[ $current == -* ]]; then
        current=${current:2}
        COMPREPLY=($(compgen -W "$flags" -- "--${current//-/_}"))
        [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2> /dev/null
        return
    elif [[ ${words[-1]} == --* && ${words[-1]} != *=* ]]; then
        flag=${words[-1]}
    fi
    flag=${flag:2}
    case "$command ${flag//-/_}" in
@CHOICES@
    esac
    if [[ $choices ]]; then
        COMPREPLY=($(compgen -W "$choices" -- "$current"))
    else
        local IFS=$'\n'
        COMPREPLY=($(compgen -f -- "$current"))
        compopt -o filenames 2> /dev/null
    fi
}
complete -F _textmill textmill
"""


def _bash(commands: Sequence[CompletedCommand]) -> str:
    flags, choices = [], []
    for name, words in ((command.name, command.words) for command in commands if command.words):
        every = " ".join(word.name + "=" * word.takes_value for word in words)
        flags.append(f'        {name}) flags="{every}" ;;')
        choices += [
            f'        "{name} {word.name[2:]}") choices="{" ".join(word.choices)}" ;;'
            for word in words
            if word.choices
        ]
    choices += [
        f'        "{command.name} ") choices="{" ".join(command.choices)}" ;;'
        for command in commands
        if command.choices
    ]
    values = {
        "NAMES": " ".join(command.name for command in commands),
        "TRAINERS": " ".join(command.name for command in commands if command.trains),
        "FLAGS": "\n".join(flags),
        "CHOICES": "\n".join(choices),
    }
    return _head("bash") + _filled(_BASH, values).lstrip()


_ZSH = r"""
_textmill() {
    local state
    local -a commands trainers
    commands=(
@NAMES@
    )
    trainers=(
@TRAINERS@
    )
    _arguments -C '1: :->command' '*:: :->arguments' && return
    case $state in
        command) _describe command commands; return ;;
    esac
    if [[ $words[1] == train ]]; then
        if (( CURRENT == 2 )); then
            _describe trainer trainers
            return
        fi
        shift words
        (( CURRENT-- ))
    fi
    case ${words[1]//_/-} in
@FLAGS@
    esac
}
if [[ $funcstack[1] == _textmill ]]; then  # a function that zsh loads when it is first called
    _textmill "$@"
else
    compdef _textmill textmill
fi
"""


def _zsh(commands: Sequence[CompletedCommand]) -> str:
    def described(command: CompletedCommand) -> str:
        about = command.about.replace("'", "'\\''")
        return f"        '{command.name}:{about}'"

    flags = []
    for command in commands:
        words = "".join(f"{_zsh_word(word)} " for word in command.words)
        others = f"({' '.join(command.choices)})" if command.choices else "_files"
        flags.append(f"        {command.name}) _arguments {words}'*: :{others}' ;;")
    values = {
        "NAMES": "\n".join(map(described, commands)),
        "TRAINERS": "\n".join(described(command) for command in commands if command.trains),
        "FLAGS": "\n".join(flags),
    }
    return "#compdef textmill\n" + _head("zsh") + _filled(_ZSH, values).lstrip()


def _zsh_word(word: Word) -> str:
    if not word.takes_value:
        return f"'{word.name}'"
    value = f"({' '.join(word.choices)})" if word.choices else "_files"
    return f"'*{word.name}=: :{value}'"


def _fish(commands: Sequence[CompletedCommand]) -> str:
    lines = [
        "complete -c textmill -f -n __fish_use_subcommand -a "
        f"{command.name} -d {_quote(command.about)}"
        for command in commands
    ]
    trainers = [command.name for command in commands if command.trains]
    lines.append(
        "complete -c textmill -f -n '__fish_seen_subcommand_from train; and not "
        f"__fish_seen_subcommand_from {' '.join(trainers)}' -a '{' '.join(trainers)}'"
    )
    for command in commands:
        if command.choices:
            lines.append(
                f"complete -c textmill -f -n '__fish_seen_subcommand_from {command.name}' -a "
                f"'{' '.join(command.choices)}'"
            )
        seen = f"complete -c textmill -n '__fish_seen_subcommand_from {command.name}'"
        for word in command.words:
            choices = f" -x -a '{' '.join(word.choices)}'" if word.choices else " -r -F"
            lines.append(f"{seen} -l {word.name[2:]}" + choices * word.takes_value)
    return _head("fish") + "\n".join(lines) + "\n"


def _quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _filled(text: str, values: Mapping[str, str]) -> str:
    return re.sub("@([A-Z]+)@", lambda found: values[found[1]], text)
