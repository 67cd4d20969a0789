"""The console of all commands: rich's, with control characters of texts made visible."""

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from schemas.commands.terminal import visible

_LINE_SECONDS = 10.0


class Console(rich.console.Console):
    """Shows control characters of text instead of sending them; [brackets] are no markup.

    Control sequences of rich itself (colours, progress bars) are sent.
    """

    def __init__(
        self,
        *,
        file: TextIO | None = None,
        stderr: bool = False,
        soft_wrap: bool = False,
        width: int | None = None,
    ):
        """Creates rich's console without its markup and its colours for numbers."""
        super().__init__(
            file=file,
            stderr=stderr,
            soft_wrap=soft_wrap,
            width=width,
            markup=False,
            highlight=False,
        )

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Shows that work is in progress: a spinner on a terminal, else a line every 10 s."""
        if self.is_terminal:
            with self.status(what):
                yield
            return
        self.print(what)
        began, ended = time.monotonic(), threading.Event()

        def repeat() -> None:
            while not ended.wait(_LINE_SECONDS):
                self.print(f"{what}: {time.monotonic() - began:.0f} s")

        thread = threading.Thread(target=repeat, name="working", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def render_str(self, text: str, **how: Any) -> Text:
        """Converts a string; the width is that of the visible text."""
        return super().render_str(_make_visible(text), **how)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Renders as rich does, with control characters of texts made visible."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=_make_visible(segment.text))


def _make_visible(text: str) -> str:
    return visible(text, keep="\n")
