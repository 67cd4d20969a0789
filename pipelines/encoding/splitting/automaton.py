r"""A pattern's tree -> a table of states: what one loop runs for any pattern.

Matches are those of a backtracking matcher, which takes the first alternative that leads to one:
a state is the list of places in the pattern where that matcher may be, the preferred first, and a
match cuts off what stands behind it (Cox 2010, https://swtch.com/~rsc/regexp/regexp2.html). A match
is noticed when the character after it is seen, so a look at that character costs nothing.

A step of the table is an int32:

    next state << 2 | EMIT | MARK
    MARK   a match ends before this character, and a longer one may follow
    EMIT   a match ends before this character, which begins the next
    STOP   nothing goes on; STOP | MARK: and a match ends before this character
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipelines.encoding.splitting.character_sets import CODE_POINTS
from pipelines.encoding.splitting.pattern_parser import (
    Ahead,
    Characters,
    Choice,
    Node,
    Repeat,
    Sequence,
    UnsupportedPattern,
    parse_pattern,
)

MARK, EMIT = 1, 2
STOP = -2  # negative, with a lowest bit of 0
_MATCH = -1
_MOST_STATES, _MOST_CLASSES = 2000, 255


@dataclass(frozen=True)
class Automaton:
    """A pattern, ready to run.

    Attributes:
      classes: uint8[code points], which ones the pattern never tells apart.
      steps: int32[states, classes], see above; state 0 is where a match begins.
      ends: bool[states], whether a match ends where the text does.
    """

    classes: np.ndarray
    steps: np.ndarray
    ends: np.ndarray


def compile_pattern(pattern: str) -> Automaton:
    """The automaton of a pattern.

    Raises:
      UnsupportedPattern: it holds what is not known here, or needs too many states.
    """
    program = _Program()
    start = program.add(parse_pattern(pattern), _MATCH)
    classes, holds = _classes(program.sets)
    build = _Build(program, holds)
    return build.automaton(start, classes)


class _Program:
    """The pattern as places: each takes a character of a set, looks ahead, or goes several ways.

    Attributes:
      places: ("take", set, next), ("look", set, at_end, next) or ("ways", nexts).
      sets: bool[code points] of each set.
    """

    def __init__(self) -> None:
        self.places: list[tuple] = []
        self.sets: list[np.ndarray] = []

    def add(self, node: Node, then: int) -> int:
        """Adds a tree before place `then`; where it begins."""
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
        """The places that take, look or match, in order of preference, that lead on from some."""
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
