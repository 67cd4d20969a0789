"""Signals that wait: Ctrl-C ends a run after the step that it interrupts."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any


class Interruption:
    """A context in which the first signal only sets `signal`; a second one stops at once.

    Outside the main thread, where Python cannot catch signals, it stays None.
    """

    def __init__(self) -> None:
        self.signal: int | None = None  # the number of the signal
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        """Catches the signals."""
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        except ValueError:  # not the main thread
            pass
        return self

    def __exit__(self, *_: object) -> None:
        """Restores the handlers; `_note` calls it too, so it may run twice."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def deliver(self) -> None:
        """Raises the signal again; called after the context."""
        if self.signal is not None:
            signal.raise_signal(self.signal)

    def _note(self, number: int, _: FrameType | None) -> None:
        self.signal = number
        self.__exit__()
