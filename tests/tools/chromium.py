"""Headless Chromium for tests, spoken to by the DevTools protocol over a pipe: no driver needed."""

import json
import os
import shutil
import subprocess
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
VARIABLE = "CHROMIUM"
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # a container's root has no other way
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)


def find_chromium() -> str | None:
    """The program that $CHROMIUM names, or one of the usual names; None if there is none."""
    named = os.environ.get(VARIABLE)
    return next(filter(None, map(shutil.which, [named] if named else NAMES)), None)


class Page:
    """One open page.

    Attributes:
      messages: what the console and the log of the browser said.
      requests: addresses that were requested.
    """

    def __init__(self, write: int, read: int):
        self._write, self._read = write, read
        self._number, self._rest, self._session = 0, b"", None
        self._events: deque[dict[str, Any]] = deque()
        self.messages: list[str] = []
        self.requests: list[str] = []

    def attach(self) -> None:
        """Opens an empty page and listens to it."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Calls a method of the protocol and waits for its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = os.read(self._read, 1 << 16)
            if not data:
                raise RuntimeError("Chromium went away")
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        method, values = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
        elif method == "Runtime.consoleAPICalled":
            self.messages.append(str(values["args"]))
        elif method == "Runtime.exceptionThrown":
            self.messages.append(str(values["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.messages.append(values["entry"]["text"])
        self._events.append(event)

    def show(self, path: Path, *, width: int, dark: bool) -> None:
        """Loads a file in a window of some width and waits until it is drawn."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=844,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self._events.clear()
        self.call("Page.navigate", url=path.as_uri())
        while not any(e.get("method") == "Page.loadEventFired" for e in self._events):
            self._note(self._receive())

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")


@contextmanager
def open_page(program: str, profile: Path) -> Iterator[Page]:
    """Starts Chromium with an empty profile and ends it.

    Args:
      program: as `find_chromium` gives it.
      profile: a folder to make.
    """
    to_browser, write = os.pipe()
    read, from_browser = os.pipe()
    # Chromium reads file descriptor 3 and writes to 4, whatever numbers ours have.
    script = 'in=$1 out=$2; shift 2; exec "$@" 3<&$in 4>&$out'
    process = subprocess.Popen(
        ["bash", "-c", script, "chromium", f"{to_browser}", f"{from_browser}", program, *_FLAGS]
        + [f"--user-data-dir={profile}"],
        pass_fds=(to_browser, from_browser),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser)
    os.close(from_browser)
    try:
        page = Page(write, read)
        page.attach()
        yield page
    finally:
        os.close(write)  # it ends when its input does
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()
        os.close(read)
