"""Where the assistant speaks in a rendered conversation. Pure.

A template may do anything with a message, so that its text alone does not tell where a content came
from. It is rendered once more with marks in the contents: characters of Unicode's private planes,
which no template touches. Where the marks, taken out, leave the plain rendering, they tell the
places; otherwise the conversation is refused. White space that a template trims moves a mark
inwards until that holds.

A turn goes from the content's first character to the end of turn: what the template puts after a
content, up to and with its first special token (`<|im_end|>`, ` </s>`). A turn whose text is more
than its content (tool calls, reasoning), or whose content a template treats as it likes, begins
where the prompt for it would end, and ends where the messages up to it would.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple, TypeVar

from pipelines.tasks.chat_template import ChatTemplate, Message, Part, TemplateFailed
from schemas.errors import UsageError

_BLOCK = 1 << 14  # neighbouring private characters, of which a conversation's marks are
_BLOCKS = [
    re.compile(f"[{chr(first)}-{chr(first + _BLOCK - 3)}]")  # a plane's last two are none
    for first in range(0xF0000, 0x110000, _BLOCK)
]
V = TypeVar("V")
_PROBE = "alpha", "bravo", "charlie", "delta"
_BARE = {"role", "content", "weight"}  # fields of a message that says no more than its content


class Refused(Exception):
    """Why a conversation cannot be used: `args` are a reason that is counted, and what is wrong."""


class Turn(NamedTuple):
    """What the assistant says in one message, in characters of the rendering.

    Attributes:
      start: of its first character.
      stop: after its end of turn.
      message: the number of the message.
    """

    start: int
    stop: int
    message: int


@dataclass(frozen=True)
class TurnEnds:
    """What a template puts after what the assistant says.

    Attributes:
      end: up to and with the end of turn: `<|im_end|>`.
      tail: all, after the last message: `<|im_end|>` and a line end.
      is_inner: whether `end` comes after a message that others follow, too.
    """

    end: str
    tail: str
    is_inner: bool


def find_turn_ends(template: ChatTemplate, tokens: Collection[str], given: str) -> TurnEnds:
    """Learns from a small conversation how turns end.

    Args:
      template: that conversations go through.
      tokens: special tokens, as they are written.
      given: --end_of_turn; "" for the first special token.

    Raises:
      UsageError: the template does not serve; says why.
    """
    roles = "user", "assistant", "user", "assistant"
    messages = [{"role": r, "content": c} for r, c in zip(roles, _PROBE, strict=True)]
    try:
        text = template.render(messages)
    except TemplateFailed as failure:
        raise UsageError(
            f"--chat_template: it fails on a question and an answer, twice ({failure}): give one "
            "for conversations of user and assistant, which needs neither a clock nor draws"
        ) from failure
    if [text.count(content) for content in _PROBE] != [1] * 4:
        raise UsageError(
            f"--chat_template: of the messages {', '.join(_PROBE)} it makes {text!r:.200}, where "
            "each should stand once: give a template that writes what the messages say"
        )
    after, tail = (text[text.index(word) + len(word) :] for word in (_PROBE[1], _PROBE[3]))
    ends = [given] if given else sorted(tokens, key=len, reverse=True)
    found = re.search("|".join(map(re.escape, ends)), tail) if ends else None
    if found is None:
        raise UsageError(
            f"--chat_template: after the assistant's last message it writes {tail!r}, where "
            + (f"--end_of_turn={given!r} is not" if given else "no special token is")
            + ": a model would not learn to stop. Give a template that ends a turn with eos_token "
            "or the like, or the text that ends one with --end_of_turn"
        )
    learnt = TurnEnds(tail[: found.end()], tail, after.startswith(tail[: found.end()]))
    try:
        Conversation(template, messages, None).turns(learnt)
    except Refused as refused:
        raise UsageError(f"--chat_template: {refused.args[1]}") from refused
    return learnt


@dataclass
class Conversation:
    """Messages and what a template makes of them.

    Attributes:
      template: that they go through.
      messages: role, perhaps content (a text, or a list of parts of text) and more.
      tools: that the assistant may call.
    """

    template: ChatTemplate
    messages: list[Message]
    tools: list[Any] | None

    @cached_property
    def text(self) -> str:
        """The plain rendering.

        Raises:
          Refused: the template fails.
        """
        try:
            return self.template.render(self.messages, self.tools)
        except TemplateFailed as failure:
            raise Refused("template_failed", str(failure)) from failure

    def turns(self, ends: TurnEnds) -> list[Turn]:
        """The assistant's turns, in order.

        Raises:
          Refused: they cannot be told for certain.
        """
        own = [i for i, message in enumerate(self.messages) if message["role"] == "assistant"]
        bounds = self._contents(self._bare(own))
        turns = [
            self._turn_of_content(i, *bounds[i], ends) if i in bounds else self._whole_turn(i, ends)
            for i in own
        ]
        if any(a.stop > b.start for a, b in zip(turns, turns[1:], strict=False)):
            raise Refused("unclear_turns", "the template writes messages in another order")
        if self.template.marks_generation:
            self._compare(turns)
        return turns

    def _bare(self, own: list[int]) -> list[int]:
        """Those messages of which nothing but the content changes the text."""
        alike: dict[tuple[str, ...], list[int]] = {}  # messages by their other fields
        for i in own:
            if "content" in self.messages[i]:
                more = (k for k, v in self.messages[i].items() if v and k not in _BARE)
                alike.setdefault(tuple(sorted(more)), []).append(i)

        def is_bare(some: list[int]) -> bool:
            messages = list(self.messages)
            for i in some:
                messages[i] = {k: v for k, v in messages[i].items() if k in _BARE}
            return self._render(messages) == self.text

        return sorted(
            i
            for more, some in alike.items()
            for i in (some if not more or is_bare(some) else [i for i in some if is_bare([i])])
        )

    def _contents(self, bare: list[int]) -> dict[int, tuple[int, int]]:
        """Message to start and stop of its content, where they can be told."""
        found = self._locate([(i, at) for i in bare for at in (0, -1)])
        if found is not None:
            return dict(zip(bare, zip(found[::2], found[1::2], strict=True), strict=True))
        starts = _by_halves(bare, lambda some: self._side(some, 0))
        stops = _by_halves(list(starts), lambda some: self._side(some, -1))

        def both(some: list[int]) -> dict[int, tuple[int, int]] | None:
            places = [(i, at) for i in some for at in (starts[i], stops[i])]
            found = self._locate(places)
            if found is None and len(some) == 1:  # nothing but white space: its marks change places
                found = [at for place in places for at in self._locate([place]) or ()]
            if found is None or found != sorted(found):
                return None
            return dict(zip(some, zip(found[::2], found[1::2], strict=True), strict=True))

        return _by_halves(list(stops), both)

    def _side(self, some: list[int], end: int) -> dict[int, int] | None:
        """Where a mark goes at one end of each content: at it, or behind white space there.

        Args:
          some: messages.
          end: 0 for the beginning, -1.

        Returns:
          Message to character of its content; none of one message of which it cannot be told, and
          None where it has to be asked of fewer messages.
        """
        if self._locate([(i, end) for i in some]):
            return dict.fromkeys(some, end)
        said = {i: self._said(i) for i in some}
        white = {
            i: len(t) - len(t.strip() and (t.rstrip() if end else t.lstrip()))
            for i, t in said.items()
        }

        def behind(i: int, spaces: int) -> int:
            return end - spaces if end else spaces

        if len(some) == 1:
            [i] = some
            steps = range(white[i] + 1)
            step = bisect_left(
                steps, True, key=lambda spaces: self._locate([(i, behind(i, spaces))]) is not None
            )
            return {i: behind(i, step)} if step < len(steps) else {}
        # Marks keep what a template trims. Where all that can be trimmed came back, all of it is.
        kept = self._block.sub("", self._marked([(i, end) for i in some]) or "")
        inner = {i: behind(i, white[i]) for i in some}
        if len(kept) == len(self.text) + sum(white.values()) and self._locate([*inner.items()]):
            return inner
        return None

    def _locate(self, places: list[tuple[int, int]]) -> list[int] | None:
        """Where some places of contents are in the text; None if marks there change it.

        Args:
          places: message and character of its content, or -1 for its end, -2 for the place before
            its last character; in the order of the text.
        """
        rendered = self._marked(places)
        if rendered is None or self._block.sub("", rendered) != self.text:
            return None
        found = list(self._block.finditer(rendered))
        if "".join(match[0] for match in found) != self._marks[: len(places)]:
            return None
        return [match.start() - number for number, match in enumerate(found)]

    def _marked(self, places: list[tuple[int, int]]) -> str | None:
        """The rendering with marks at these places; None if it fails, or there are too many."""
        if len(places) > len(self._marks):
            return None
        messages = list(self.messages)
        for (i, at), mark in zip(places[::-1], self._marks[: len(places)][::-1], strict=True):
            content = _insert(messages[i]["content"], at, mark)
            messages[i] = {**messages[i], "content": content}
        return self._render(messages)

    def _said(self, i: int) -> str:
        """The content of a message, its parts joined."""
        content = self.messages[i]["content"]
        return content if isinstance(content, str) else "".join(part["text"] for part in content)

    def _turn_of_content(self, i: int, start: int, stop: int, ends: TurnEnds) -> Turn:
        if self.text.startswith(ends.end, stop):
            return Turn(start, stop + len(ends.end), i)
        if ends.is_inner or i == len(self.messages) - 1:
            after = self.text[stop : stop + 2 * len(ends.end)]
            raise Refused("no_end_of_turn", f"messages[{i}] goes on with {after!r}")
        return Turn(start, stop, i)

    def _whole_turn(self, i: int, ends: TurnEnds) -> Turn:
        """From the prompt for a message to the end of the conversation up to it."""
        before = self._render(self.messages[:i], prompt=True)
        until = self._render(self.messages[: i + 1])
        if before is not None and until is not None and until.endswith(ends.tail):
            stop = len(until) - len(ends.tail) + len(ends.end)
            if self.text.startswith(before) and self.text.startswith(until[:stop]):
                if len(before) < stop:
                    return Turn(len(before), stop, i)
        raise Refused(
            "unclear_turns",
            f"where messages[{i}] is in the text cannot be told: the template treats it by its "
            "content, or messages before by those that follow",
        )

    def _compare(self, turns: list[Turn]) -> None:
        """Refuses a template that marks other text with `{% generation %}`."""
        begin, end = self._marks[:2]
        rendered = self._render(self.messages, generation_marks=(begin, end)) or ""
        marked = re.findall(f"{begin}([^{end}]*){end}|([^{begin}]+)", rendered)
        found, place = [], 0
        for inside, outside in marked:
            if inside:
                found.append((place, place + len(inside)))
            place += len(inside) + len(outside)
        own = [(turn.start, turn.stop) for turn in turns]
        if self._block.sub("", rendered) == self.text and _merge(found) == _merge(own):
            return
        texts = [[self.text[slice(*span)] for span in spans] for spans in (found, own)]
        raise Refused(
            "generation_differs",
            f"the template has {texts[0]!r:.200} in {{% generation %}}, where contents and ends of "
            f"turn are {texts[1]!r:.200}: mend it, or give the end of turn with --end_of_turn",
        )

    @cached_property
    def _block(self) -> re.Pattern[str]:
        """The characters of which marks are: none of them is in the text."""
        for block in _BLOCKS:
            if not block.search(self.text):
                return block
        raise Refused("unclear_turns", "it has characters of all of Unicode's private planes")

    @property
    def _marks(self) -> str:
        return _all_of(self._block)

    def _render(self, messages: list[Message], **more: Any) -> str | None:
        """A rendering beside the plain one; None if the template fails."""
        try:
            return self.template.render(messages, self.tools, **more)
        except TemplateFailed:
            return None


def _by_halves(some: list[int], ask: Callable[[list[int]], dict[int, V] | None]) -> dict[int, V]:
    """What is found of each message, asked of all at once, and of halves of those that fail."""
    if not some:
        return {}
    found = ask(some)
    if found is not None or len(some) == 1:
        return found or {}
    half = len(some) // 2
    return _by_halves(some[:half], ask) | _by_halves(some[half:], ask)


def _insert(content: str | list[Part], at: int, mark: str) -> str | list[Part]:
    """A content with a mark in it; between two parts it goes where `at` is counted from.

    "abc", -2 -> "ab|c"
    """
    if isinstance(content, str):
        place = at if at >= 0 else len(content) + 1 + at
        return content[:place] + mark + content[place:]
    parts = list(content)
    numbers, left = range(len(parts)), at
    for number in numbers if at >= 0 else reversed(numbers):
        text = parts[number]["text"]
        if -len(text) - 1 <= left <= len(text):
            parts[number] = {**parts[number], "text": _insert(text, left, mark)}
            break
        left += len(text) if at < 0 else -len(text)
    return parts


@cache
def _all_of(block: re.Pattern[str]) -> str:
    first = ord(block.pattern[1])
    return "".join(map(chr, range(first, first + _BLOCK - 2)))


def _merge(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """[(1, 3), (3, 4)] -> [(1, 4)]."""
    merged: list[tuple[int, int]] = []
    for start, stop in spans:
        if merged and merged[-1][1] == start:
            start, _ = merged.pop()
        merged.append((start, stop))
    return merged
