"""A checkpoint that is written while the next steps run."""

from __future__ import annotations

import queue
import threading
from collections import deque
from contextlib import suppress
from typing import Callable, Iterator, Sequence

import numpy as np

from textmill.trainers.run.processes import Processes
from textmill.trainers.run.tensors import Tensor


class Writer:
    """A checkpoint that a thread of the first process writes while the next steps run.

    The thread holds one array on the host. In a single process it fetches the arrays itself.
    Several processes gather each array together, so their main threads must fetch it between the
    same steps.
    """

    def __init__(
        self,
        tensors: Sequence[Tensor],
        publish: Callable[[Iterator[np.ndarray]], None],
        processes: Processes,
        steps: int,
    ):
        self._left, self._is_shared = deque(tensors), processes.count > 1
        self._at_once = -(-len(tensors) // steps)  # tensors after a step
        # Of functions that wait for an array; None ends.
        self._reads: queue.Queue[Callable[[], np.ndarray] | None] = queue.Queue(1)
        self._error: BaseException | None = None
        self._is_abandoned = False
        self._thread: threading.Thread | None = None
        if processes.is_first:
            self._thread = threading.Thread(target=self._run, args=(publish,), daemon=True)
            self._thread.start()

    def advance(self) -> bool:
        """Fetches the next arrays, between two steps; returns whether all is written.

        Raises:
          DataError: the checkpoint cannot be written (disk full, permissions).
        """
        if self._is_shared:
            for _ in range(min(self._at_once, len(self._left))):
                self._hand_over(self._left.popleft().fetch())
        if self._error is not None:
            raise self._error
        return not self._left and not self._is_writing

    def finish(self) -> None:
        """Waits until all is written; raises like `advance`."""
        while self._is_shared and self._left:
            self.advance()
        self._hand_over(None)
        if self._thread is not None:
            self._thread.join()
        self.advance()

    def abandon(self) -> None:
        """Ends the thread and removes what it has written."""
        self._is_abandoned = True
        self._hand_over(None)
        if self._thread is not None:
            self._thread.join(timeout=5)  # it may wait for a process that has ended

    @property
    def _is_writing(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _hand_over(self, read: Callable[[], np.ndarray] | None) -> None:
        while self._is_shared and self._is_writing:  # else the thread needs none
            with suppress(queue.Full):
                return self._reads.put(read, timeout=0.1)

    def _run(self, publish: Callable[[Iterator[np.ndarray]], None]) -> None:
        try:
            publish(self._arrays())
        except _Abandoned:
            pass
        except BaseException as error:  # noqa: B036  raised in the main thread
            self._error = error

    def _arrays(self) -> Iterator[np.ndarray]:
        while True:
            if not self._is_shared:
                read = self._left.popleft().fetch() if self._left else None
            else:
                read = self._reads.get()
            if self._is_abandoned:
                raise _Abandoned
            if read is None:
                return
            yield read()


class _Abandoned(Exception):
    """Ends the thread of a `Writer`."""
