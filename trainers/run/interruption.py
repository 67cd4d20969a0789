"""Ctrl-C and SIGTERM as a request: the loop ends its step, saves and leaves."""

import signal
from types import FrameType
from typing import Any, Dict, Optional


class Interruption:
    """A context in which the first signal only sets `signal`; a second one stops at once.

    Outside of the main thread, where Python lets nobody catch signals, it stays None.
    """

    def __init__(self) -> None:
        self.signal: Optional[int] = None  # the number of the one that came
        self._before: Dict[int, Any] = {}

    @property
    def exit_code(self) -> int:
        """As shells report a signal: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + (self.signal or signal.SIGINT)

    def __enter__(self) -> "Interruption":
        """Catches the signals."""
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        except ValueError:  # not the main thread
            pass
        return self

    def __exit__(self, *_: object) -> None:
        """Gives the signals back, once more where one comes in the middle of this."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: Optional[FrameType]) -> None:
        self.signal = number
        self.__exit__()
