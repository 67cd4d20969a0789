"""An iterator whose items a background thread makes before they are asked for."""

import queue
import sys
import threading
from typing import Generator, Iterator, TypeVar

T = TypeVar("T")


def read_ahead(items: Iterator[T], depth: int) -> Generator[T, None, None]:
    """The same items, made by a background thread up to `depth` ahead; 0 starts no thread.

    An error in the thread is raised where its item would have come. Closing the generator (or
    leaving its `for` loop and dropping it) ends the thread.
    """
    if not depth:
        yield from items
        return
    ready = queue.Queue(depth)  # type: queue.Queue[tuple]
    stopped = threading.Event()

    def put(message: tuple) -> None:
        while not stopped.is_set():
            try:
                return ready.put(message, timeout=0.1)
            except queue.Full:
                continue

    def fill() -> None:
        try:
            for item in items:
                put(("item", item))
                if stopped.is_set():
                    return
            put(("end", None))
        except BaseException as error:  # noqa: B036  raised again in the consumer's thread
            put(("error", error))

    thread = threading.Thread(target=fill, name="read_ahead", daemon=True)
    thread.start()
    at_exit = sys.is_finalizing  # bound now: when Python exits, modules lose their names
    try:
        while True:
            kind, value = ready.get()
            if kind == "end":
                return
            if kind == "error":
                raise value
            yield value
    finally:
        stopped.set()
        if not at_exit():
            thread.join()
