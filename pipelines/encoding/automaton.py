r"""Compiles splitting patterns to tables of states, which one loop runs for any pattern.

It takes the part of Oniguruma's regular expressions that splitting patterns use: literals, sets,
properties, `.`, groups, `(?i:`, alternatives, repetitions (also lazy ones, and possessive ones of a
set), and `(?!` or `(?=` with one character. Other patterns raise UnsupportedPattern, and
`tokenizers` encodes.

Matches are those of a backtracking matcher, which takes the first alternative that leads to one: a
state is the list of nodes of the pattern where that matcher may be, the preferred first, and a
match discards the nodes after it (Cox 2010, https://swtch.com/~rsc/regexp/regexp2.html). The loop
notices a match at the character after it, so lookahead costs nothing.

A step of the table is an int32:

    next state << 2 | EMIT | MARK
    MARK   a match ends before this character, and a longer one may follow
    EMIT   a match ends before this character, which begins the next
    STOP   no match continues; STOP | MARK: a match ends before this character
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from textmill.pipelines.encoding.character_sets import (
    CODE_POINTS,
    characters,
    folds_to_several,
    ignoring_case,
    property_set,
)

MARK, EMIT = 1, 2
STOP = -2  # negative, with a lowest bit of 0
_MATCH = -1
_MOST_STATES, _MOST_CLASSES = 2000, 255
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "a": "\a", "e": "\x1b"}
_ATOM = re.compile(r"\\(?:[pP]\{\^?[\w ]+\}|[sSdDwWhH])")
_CODE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|x\{([0-9A-Fa-f]{1,6})\})")
_COUNT = re.compile(r"\{(\d++)(,?)(\d*+)\}")
_MOST_COPIES = 64


class UnsupportedPattern(ValueError):
    """A pattern that Textmill does not compile; the message is the reason."""


@dataclass(frozen=True, eq=False)
class Characters:
    """One character of a set: bool[code points]."""

    members: np.ndarray


@dataclass(frozen=True, eq=False)
class Ahead:
    """Matches no character, if the next one is in a set; with `at_end` also if there is none."""

    members: np.ndarray
    at_end: bool


@dataclass(frozen=True, eq=False)
class Sequence:
    """One part after another."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Choice:
    """The first alternative that leads to a match."""

    options: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Repeat:
    """Repeats a part as often as possible, with `lazy` as rarely; most=None: without limit."""

    part: Node
    least: int
    most: int | None
    lazy: bool = False


Node = Characters | Ahead | Sequence | Choice | Repeat


def parse_pattern(pattern: str) -> Node:
    """Parses a pattern to a tree.

    Raises:
      UnsupportedPattern: it uses an unsupported construct, or may match the empty string.
    """
    parser = _Parser(pattern)
    tree = parser.choice(ignore_case=False)
    if parser.place < len(pattern):
        parser.refuse("an unmatched bracket")
    if can_be_empty(tree):
        raise UnsupportedPattern(f"{pattern!r} can match the empty string")
    return tree


def can_be_empty(node: Node) -> bool:
    """Whether the node may match without taking a character."""
    if isinstance(node, Sequence):
        return all(map(can_be_empty, node.parts))
    if isinstance(node, Choice):
        return any(map(can_be_empty, node.options))
    if isinstance(node, Repeat):
        return node.least == 0 or can_be_empty(node.part)
    return isinstance(node, Ahead)


class _Parser:
    def __init__(self, pattern: str):
        self.pattern = pattern
        self.place = 0

    def refuse(self, what: str) -> NoReturn:
        raise UnsupportedPattern(f"{what} at character {self.place} of the pattern")

    def looks_at(self, text: str) -> bool:
        return self.pattern.startswith(text, self.place)

    def takes(self, text: str) -> bool:
        is_next = self.looks_at(text)
        self.place += len(text) * is_next
        return is_next

    def choice(self, ignore_case: bool) -> Node:
        options = [self.sequence(ignore_case)]
        while self.takes("|"):
            options.append(self.sequence(ignore_case))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def sequence(self, ignore_case: bool) -> Node:
        parts: list[Node] = []
        began = self.place
        while self.place < len(self.pattern) and self.pattern[self.place] not in "|)":
            parts.append(self.repeated(self.item(ignore_case)))
        if ignore_case:
            text = self.pattern[began : self.place].casefold()
            if any(several in text for several in folds_to_several()):
                self.refuse("letters that one character can stand for when case is ignored")
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def item(self, ignore_case: bool) -> Node:
        if self.takes("(?!"):
            return self.ahead(negated=True)
        if self.takes("(?="):
            return self.ahead(negated=False)
        for opening, ignores in (("(?:", ignore_case), ("(?i:", True), ("(", ignore_case)):
            if self.takes(opening):
                if opening == "(" and self.looks_at("?"):
                    self.refuse("an unsupported kind of group")
                inside = self.choice(ignores)
                if not self.takes(")"):
                    self.refuse("a bracket that is not closed")
                return inside
        return Characters(self.character(ignore_case))

    def ahead(self, *, negated: bool) -> Ahead:
        inside = self.choice(ignore_case=False)
        if not self.takes(")") or not isinstance(inside, Characters):
            self.refuse("a lookahead of more than one character")
        return Ahead(~inside.members if negated else inside.members, at_end=negated)

    def character(self, ignore_case: bool) -> np.ndarray:
        """A set, a property, or one character."""
        if self.takes("."):
            return ~characters("\n", "\n")
        if self.takes("["):
            return self.set(ignore_case)
        if self.pattern[self.place] in "^$*+?{":
            self.refuse(f"{self.pattern[self.place]!r}")
        return self.member(ignore_case)

    def set(self, ignore_case: bool) -> np.ndarray:
        negated = self.takes("^")
        found = np.zeros(CODE_POINTS, bool)
        first = True
        while first or not self.looks_at("]"):
            if self.place >= len(self.pattern) or self.looks_at("[") or self.looks_at("&&"):
                self.refuse("a set that is not closed, or one within another,")
            found |= self.range(ignore_case)
            first = False
        self.place += 1
        return ~found if negated else found

    def range(self, ignore_case: bool) -> np.ndarray:
        single = self.literal()
        if single is None:
            return self.member(ignore_case)
        if self.looks_at("-") and not self.looks_at("-]"):
            self.place += 1
            last = self.literal()
            if last is None or last < single or ignore_case:
                self.refuse("a range that is not from one character to another")
            return characters(single, last)
        return ignoring_case(single) if ignore_case else characters(single, single)

    def member(self, ignore_case: bool) -> np.ndarray:
        if atom := _ATOM.match(self.pattern, self.place):
            self.place = atom.end()
            try:
                return property_set(atom[0])
            except ValueError as error:
                raise UnsupportedPattern(str(error)) from error
        single = self.literal()
        if single is None:
            self.refuse("an unsupported escape")
        return ignoring_case(single) if ignore_case else characters(single, single)

    def literal(self) -> str | None:
        """One character, plain or escaped; None if something else comes next."""
        if not self.looks_at("\\"):
            self.place += 1
            return self.pattern[self.place - 1]
        if code := _CODE.match(self.pattern, self.place):
            self.place = code.end()
            return chr(int(code[1] or code[2] or code[3], 16))
        escaped = self.pattern[self.place + 1 : self.place + 2]
        if escaped in _CONTROLS or (escaped and not escaped.isalnum()):
            self.place += 2
            return _CONTROLS.get(escaped, escaped)
        return None

    def repeated(self, item: Node) -> Node:
        while True:
            count = _COUNT.match(self.pattern, self.place)
            if count:
                self.place = count.end()
                least = int(count[1])
                most = least if not count[2] else int(count[3]) if count[3] else None
                lazy, possessive = self.takes("?"), False
            elif self.place < len(self.pattern) and self.pattern[self.place] in "?*+":
                kind = self.pattern[self.place]
                self.place += 1
                least, most = int(kind == "+"), 1 if kind == "?" else None
                lazy, possessive = self.takes("?"), self.takes("+")
            else:
                return item
            if can_be_empty(item) and most != 1 or max(least, most or 0) > _MOST_COPIES:
                self.refuse("a repetition")  # Oniguruma ends one of nothing by rules of its own
            repeat = Repeat(item, least, most, lazy)
            item = _as_possessive(repeat) if possessive else repeat


def _as_possessive(repeat: Repeat) -> Node:
    """A repetition of a set, `?`, `*` or `+`, that gives no character of the set back.

    No character of the set follows what it takes: `[a-c]*+` is `[a-c]*(?![a-c])`.
    """
    if not isinstance(repeat.part, Characters) or repeat.lazy:
        raise UnsupportedPattern("a possessive repetition of more than a set")
    no_more = Ahead(~repeat.part.members, at_end=True)
    return Choice((repeat.part, no_more)) if repeat.most == 1 else Sequence((repeat, no_more))


# ---- trees -> states ----


@dataclass(frozen=True)
class Automaton:
    """A pattern, ready to run.

    Attributes:
      classes: uint8[code points], the class of each; the pattern treats all of a class alike.
      steps: int32[states, classes], see above; state 0 is where a match begins.
      ends: bool[states], whether a match ends where the text does.
    """

    classes: np.ndarray
    steps: np.ndarray
    ends: np.ndarray


def compile_pattern(pattern: str) -> Automaton:
    """Compiles a pattern.

    Raises:
      UnsupportedPattern: it uses an unsupported construct, or needs too many states.
    """
    program = _Program()
    start = program.add(parse_pattern(pattern), _MATCH)
    classes, holds = _classes(program.sets)
    build = _Build(program, holds)
    return build.automaton(start, classes)


class _Program:
    """The pattern as nodes: each takes a character of a set, looks ahead, or branches.

    Attributes:
      places: the nodes: ("take", set, next), ("look", set, at_end, next) or ("ways", nexts).
      sets: bool[code points] of each set.
    """

    def __init__(self) -> None:
        self.places: list[tuple] = []
        self.sets: list[np.ndarray] = []

    def add(self, node: Node, then: int) -> int:
        """Adds a tree before node `then`; returns the node where the tree begins."""
        if isinstance(node, Characters):
            return self._place("take", self._set(node.members), then)
        if isinstance(node, Ahead):
            return self._place("look", self._set(node.members), node.at_end, then)
        if isinstance(node, Sequence):
            for part in reversed(node.parts):
                then = self.add(part, then)
            return then
        if isinstance(node, Choice):
            return self._place("ways", [self.add(option, then) for option in node.options])
        return self._repeat(node, then)

    def _repeat(self, node: Repeat, then: int) -> int:
        def ways(more: int) -> list[int]:
            return [then, more] if node.lazy else [more, then]

        begin = then
        if node.most is None:
            nexts: list[int] = []
            begin = self._place("ways", nexts)
            nexts += ways(self.add(node.part, begin))
        else:
            for _ in range(node.most - node.least):
                begin = self._place("ways", ways(self.add(node.part, begin)))
        for _ in range(node.least):
            begin = self.add(node.part, begin)
        return begin

    def _place(self, *place: object) -> int:
        self.places.append(place)
        return len(self.places) - 1

    def _set(self, members: np.ndarray) -> int:
        for i, other in enumerate(self.sets):
            if np.array_equal(members, other):
                return i
        self.sets.append(members)
        return len(self.sets) - 1


def _classes(sets: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Classes of code points that are in the same sets: uint8[code points]; bool[classes, sets]."""
    members = np.array(sets).reshape(len(sets), CODE_POINTS)
    differs = (members[:, 1:] != members[:, :-1]).any(axis=0)
    starts = np.append(0, np.flatnonzero(differs) + 1)
    holds, of_run = np.unique(members[:, starts].T, axis=0, return_inverse=True)
    if len(holds) > _MOST_CLASSES:
        raise UnsupportedPattern("the pattern has too many sets of characters")
    sizes = np.diff(np.append(starts, CODE_POINTS))
    return np.repeat(of_run.astype(np.uint8), sizes), holds


class _Build:
    """Finds the states that a program can be in."""

    def __init__(self, program: _Program, holds: np.ndarray):
        self.places, self.holds = program.places, holds
        self.states: dict[tuple[int, ...], int] = {}

    def automaton(self, start: int, classes: np.ndarray) -> Automaton:
        end = len(self.holds)  # stands for the end of the text
        todo = [self._closed([start])]
        self.states[todo[0]] = 0
        found: list[list[tuple[bool, tuple[int, ...]]]] = []
        for state in todo:
            found.append([self._step(state, kind) for kind in range(end + 1)])
            for _, after in found[-1][:end]:
                if after and after not in self.states:
                    self.states[after] = len(self.states)
                    todo.append(after)
            if len(todo) > _MOST_STATES:
                raise UnsupportedPattern("the pattern has too many states")
        steps = [[self._encode(found, state, kind) for kind in range(end)] for state in found]
        ends = [state[end][0] for state in found]
        return Automaton(classes, np.array(steps, np.int32), np.array(ends))

    def _encode(self, found: list, state: list, kind: int) -> int:
        matched, after = state[kind]
        if after:
            return self.states[after] << 2 | MARK * matched
        again = found[0][kind][1]
        if matched and again:
            return self.states[again] << 2 | EMIT
        return STOP | MARK * matched

    def _closed(self, begins: list[int]) -> tuple[int, ...]:
        """The nodes that take, look or match reached from `begins`, in order of preference."""
        found: dict[int, None] = {}
        seen: set[int] = set()
        stack = begins[::-1]
        while stack:
            place = stack.pop()
            if place in seen:
                continue
            seen.add(place)
            if place != _MATCH and self.places[place][0] == "ways":
                stack += reversed(self.places[place][1])
            else:
                found[place] = None
                if place == _MATCH:
                    break
        return tuple(found)

    def _step(self, state: tuple[int, ...], kind: int) -> tuple[bool, tuple[int, ...]]:
        """Whether a match ends before a character of a class, and the state after it."""
        at_end = kind == len(self.holds)
        taken: list[int] = []
        matched = False
        stack, seen = list(state[::-1]), set()
        while stack:
            place = stack.pop()
            if place == _MATCH:
                matched = True
                break
            if place in seen:
                continue
            seen.add(place)
            what, which = self.places[place][:2]
            if what == "ways":
                stack += reversed(which)
            elif what == "take":
                if not at_end and self.holds[kind, which]:
                    taken.append(self.places[place][2])
            elif self.places[place][2] if at_end else self.holds[kind, which]:
                stack.append(self.places[place][3])
        return matched, self._closed(taken)
