"""Finds the assistant's turns in a rendered conversation.

A template may change a message in any way, so its text alone does not show where a content begins
and ends. The conversation is rendered again with probe characters in the contents, characters of
Unicode's private planes that no template changes. If the rendering without its probes is the plain
one, they show the positions; otherwise the conversation is rejected. A probe beside white space
that the template trims is moved inwards.

A turn extends from the first character of the content to the end of turn, which is the text that
the template puts after a content, up to and including its first special token (`<|im_end|>`,
` </s>`). A turn with more text than its content (tool calls, reasoning), or whose content the
template changes, begins where the prompt for it would end, and ends where the messages up to it
would.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple, TypeVar

from textmill.schemas.errors import UsageError, flag
from textmill.schemas.tokenizers.chat_template import ChatTemplate, Message, Part, TemplateFailed

_BLOCK = 1 << 14  # consecutive private characters; a conversation's probes are from one block
_BLOCKS = [
    re.compile(f"[{chr(first)}-{chr(first + _BLOCK - 3)}]")  # a plane's last two are not characters
    for first in range(0xF0000, 0x110000, _BLOCK)
]
V = TypeVar("V")
_PROBE = "alpha", "bravo", "charlie", "delta"
_BARE = {"role", "content", "weight"}  # the fields of a message with no text but its content


class BadConversation(Exception):
    """A conversation cannot be used: `args` are the reason that is counted, and the detail."""


class Turn(NamedTuple):
    """The assistant's text of one message, in characters of the rendering.

    Attributes:
      start: its first character.
      stop: the character after its end of turn.
      message: the number of the message.
    """

    start: int
    stop: int
    message: int


@dataclass(frozen=True)
class TurnEnds:
    """The text that a template puts after the assistant's content.

    Attributes:
      end: the text up to and including the end of turn: `<|im_end|>`.
      tail: all text after the last message: `<|im_end|>` and a line end.
      is_inner: whether `end` also follows messages that are not the last.
    """

    end: str
    tail: str
    is_inner: bool


def find_turn_ends(template: ChatTemplate, tokens: Collection[str], given: str) -> TurnEnds:
    """Finds out how turns end by rendering a small conversation.

    Args:
      template: the template that renders conversations.
      tokens: special tokens, as they are written.
      given: --end_of_turn; "" for the first special token.

    Raises:
      UsageError: the template cannot be used.
    """
    roles = "user", "assistant", "user", "assistant"
    messages = [{"role": r, "content": c} for r, c in zip(roles, _PROBE, strict=True)]
    try:
        text = template.render(messages)
    except TemplateFailed as failure:
        raise UsageError(
            f"{flag('chat_template')} fails on two questions and answers ({failure}): use a "
            "template for conversations of user and assistant, without a clock or random numbers"
        ) from failure
    if [text.count(content) for content in _PROBE] != [1] * 4:
        raise UsageError(
            f"{flag('chat_template')} renders the messages {', '.join(_PROBE)} as {text!r:.200}: "
            "use a template that writes the content of each message once"
        )
    after, tail = (text[text.index(word) + len(word) :] for word in (_PROBE[1], _PROBE[3]))
    tokens = [given] if given else sorted(tokens, key=len, reverse=True)
    match = re.search("|".join(map(re.escape, tokens)), tail) if tokens else None
    if match is None:
        raise UsageError(
            f"{flag('chat_template')} writes {tail!r} after the assistant's last message, without "
            + (flag("end_of_turn", repr(given)) if given else "a special token")
            + ", so a model would not learn to stop: use a template that ends turns with "
            f"eos_token or similar, or set {flag('end_of_turn')} to the text that ends them"
        )
    ends = TurnEnds(tail[: match.end()], tail, after.startswith(tail[: match.end()]))
    try:
        Conversation(template, messages, None).turns(ends)
    except BadConversation as error:
        raise UsageError(f"{flag('chat_template')}: {error.args[1]}") from error
    return ends


@dataclass
class Conversation:
    """Messages and their rendering by a template.

    Attributes:
      template: the template that renders them.
      messages: objects with a role, usually a content (a text, or a list of parts), and more.
      tools: the tools that the assistant may call.
    """

    template: ChatTemplate
    messages: list[Message]
    tools: list[Any] | None

    @cached_property
    def text(self) -> str:
        """The plain rendering.

        Raises:
          BadConversation: the template fails.
        """
        try:
            return self.template.render(self.messages, self.tools)
        except TemplateFailed as failure:
            raise BadConversation("template_failed", str(failure)) from failure

    def turns(self, ends: TurnEnds) -> list[Turn]:
        """The assistant's turns, in order.

        Raises:
          BadConversation: they cannot be located with certainty.
        """
        own = [i for i, message in enumerate(self.messages) if message["role"] == "assistant"]
        bounds = self._contents(self._bare(own))
        turns = [
            self._turn_of_content(i, *bounds[i], ends) if i in bounds else self._whole_turn(i, ends)
            for i in own
        ]
        if any(a.stop > b.start for a, b in zip(turns, turns[1:], strict=False)):
            raise BadConversation("unclear_turns", "the template changes the order of messages")
        if self.template.marks_generation:
            self._compare(turns)
        return turns

    def _bare(self, own: list[int]) -> list[int]:
        """The messages whose other fields do not change the text."""
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
        """Message to start and stop of its content, for contents that can be located."""
        bounds = self._locate([(i, at) for i in bare for at in (0, -1)])
        if bounds is not None:
            return dict(zip(bare, zip(bounds[::2], bounds[1::2], strict=True), strict=True))
        starts = _by_halves(bare, lambda some: self._side(some, 0))
        stops = _by_halves(list(starts), lambda some: self._side(some, -1))

        def both(some: list[int]) -> dict[int, tuple[int, int]] | None:
            places = [(i, at) for i in some for at in (starts[i], stops[i])]
            bounds = self._locate(places)
            if bounds is None and len(some) == 1:  # only white space, whose two probes swap
                bounds = [at for place in places for at in self._locate([place]) or ()]
            if bounds is None or bounds != sorted(bounds):
                return None
            return dict(zip(some, zip(bounds[::2], bounds[1::2], strict=True), strict=True))

        return _by_halves(list(stops), both)

    def _side(self, some: list[int], end: int) -> dict[int, int] | None:
        """Where a probe goes at one end of each content: at that end, or behind white space there.

        Args:
          some: messages.
          end: 0 for the beginning, -1 for the end.

        Returns:
          Message to character of its content; empty if it cannot be located for a single message;
          None to try again with fewer messages.
        """
        if self._locate([(i, end) for i in some]):
            return dict.fromkeys(some, end)
        contents = {i: self._content(i) for i in some}
        white = {
            i: len(t) - len(t.strip() and (t.rstrip() if end else t.lstrip()))
            for i, t in contents.items()
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
        # Probes keep white space that a template trims. If all of it came back, all is trimmed.
        kept = self._block.sub("", self._marked([(i, end) for i in some]) or "")
        inner = {i: behind(i, white[i]) for i in some}
        if len(kept) == len(self.text) + sum(white.values()) and self._locate([*inner.items()]):
            return inner
        return None

    def _locate(self, places: list[tuple[int, int]]) -> list[int] | None:
        """Where positions of contents are in the text; None if probes there change it.

        Args:
          places: (message, character of its content), with -1 for the content's end, -2 for the
            position before its last character; in the order of the text.
        """
        rendered = self._marked(places)
        if rendered is None or self._block.sub("", rendered) != self.text:
            return None
        matches = list(self._block.finditer(rendered))
        if "".join(match[0] for match in matches) != self._marks[: len(places)]:
            return None
        return [match.start() - number for number, match in enumerate(matches)]

    def _marked(self, places: list[tuple[int, int]]) -> str | None:
        """The rendering with probes at these positions; None if it fails, or they are too many."""
        if len(places) > len(self._marks):
            return None
        messages = list(self.messages)
        for (i, at), mark in zip(places[::-1], self._marks[: len(places)][::-1], strict=True):
            content = _insert(messages[i]["content"], at, mark)
            messages[i] = {**messages[i], "content": content}
        return self._render(messages)

    def _content(self, i: int) -> str:
        """The content of a message, its parts joined."""
        content = self.messages[i]["content"]
        return content if isinstance(content, str) else "".join(part["text"] for part in content)

    def _turn_of_content(self, i: int, start: int, stop: int, ends: TurnEnds) -> Turn:
        if self.text.startswith(ends.end, stop):
            return Turn(start, stop + len(ends.end), i)
        if ends.is_inner or i == len(self.messages) - 1:
            after = self.text[stop : stop + 2 * len(ends.end)]
            raise BadConversation("no_end_of_turn", f"messages[{i}] is followed by {after!r}")
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
        raise BadConversation(
            "unclear_turns",
            f"messages[{i}] cannot be located in the text: the template changes it depending on "
            "its content, or changes earlier messages depending on later ones",
        )

    def _compare(self, turns: list[Turn]) -> None:
        """Rejects a conversation in which `{% generation %}` encloses other text than the turns."""
        begin, end = self._marks[:2]
        rendered = self._render(self.messages, generation_marks=(begin, end)) or ""
        marked = re.findall(f"{begin}([^{end}]*){end}|([^{begin}]+)", rendered)
        enclosed, place = [], 0
        for inside, outside in marked:
            if inside:
                enclosed.append((place, place + len(inside)))
            place += len(inside) + len(outside)
        own = [(turn.start, turn.stop) for turn in turns]
        if self._block.sub("", rendered) == self.text and _merge(enclosed) == _merge(own):
            return
        texts = [[self.text[slice(*span)] for span in spans] for spans in (enclosed, own)]
        raise BadConversation(
            "generation_differs",
            f"the template has {texts[0]!r:.200} in {{% generation %}}, but contents and ends of "
            f"turn are {texts[1]!r:.200}: correct it, or set {flag('end_of_turn')}",
        )

    @cached_property
    def _block(self) -> re.Pattern[str]:
        """The characters used as probes: the first block of which the text has none."""
        for block in _BLOCKS:
            if not block.search(self.text):
                return block
        raise BadConversation(
            "unclear_turns", "it has characters of all blocks of Unicode's private planes"
        )

    @property
    def _marks(self) -> str:
        return _all_of(self._block)

    def _render(self, messages: list[Message], **more: Any) -> str | None:
        """Another rendering than the plain one; None if the template fails."""
        try:
            return self.template.render(messages, self.tools, **more)
        except TemplateFailed:
            return None


def _by_halves(some: list[int], ask: Callable[[list[int]], dict[int, V] | None]) -> dict[int, V]:
    """Calls `ask` with all messages at once, and with halves of those for which it fails."""
    if not some:
        return {}
    answer = ask(some)
    if answer is not None or len(some) == 1:
        return answer or {}
    half = len(some) // 2
    return _by_halves(some[:half], ask) | _by_halves(some[half:], ask)


def _insert(content: str | list[Part], at: int, mark: str) -> str | list[Part]:
    """Inserts a probe into a content: "abc", -2 -> "ab|c".

    Between two parts it goes into the one that is nearer to where `at` is counted from.
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
    """Merges adjacent spans: [(1, 3), (3, 4)] -> [(1, 4)]."""
    merged: list[tuple[int, int]] = []
    for start, stop in spans:
        if merged and merged[-1][1] == start:
            start, _ = merged.pop()
        merged.append((start, stop))
    return merged
