"""Chromium, for tests of pages: it loads pages in frames of given widths and measures them."""

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from typing import Any

import pytest

PROGRAM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
# A page has no scripts. The one that measures is on the page around its frame.
_HARNESS = """<!doctype html><body style="margin:0"><script>
const jobs = {jobs}, found = {{}};
let left = Object.keys(jobs).length;
for (const [name, job] of Object.entries(jobs)) {{
  const frame = document.createElement("iframe");
  frame.style.cssText = `border:0;height:900px;width:${{job.width}}px`;
  frame.onload = () => {{
    const page = frame.contentDocument, view = frame.contentWindow;
    found[name] = {{
      title: page.title,
      width: page.documentElement.scrollWidth,
      color: view.getComputedStyle(page.body).color,
      soft: view.getComputedStyle(page.querySelector("small, .axis, dt")).color,
      paper: view.getComputedStyle(page.body).backgroundColor,
      failed: page.querySelectorAll(".failed").length,
      flat: [...page.querySelectorAll("figure")].filter((one) => one.offsetHeight < 20).length,
      empty: [...page.querySelectorAll("td, dd")].filter((one) => !one.textContent.trim()
        && !one.querySelector(".bar")).length,
      outside: [...page.querySelectorAll("figure, table, article, .tiles")].filter((one) =>
        one.getBoundingClientRect().right > job.width + 1 && !one.closest(".scroll")).length,
    }};
    if (--left === 0) document.body.textContent = JSON.stringify(found);
  }};
  frame.src = job.url;
  document.body.append(frame);
}}
</script>"""


def need_browser() -> str:
    """Chromium's program; skips the test without one. `.ci/run` installs it."""
    if not PROGRAM:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    return PROGRAM


def measure(pages: Mapping[str, tuple[Path, int]], *, dark: bool = False) -> dict[str, Any]:
    """Loads pages in frames; returns what it measured of each, and what the console printed.

    Args:
      pages: name -> (file, width of the frame in pixels).
      dark: whether the user prefers dark pages.
    """
    jobs = {
        name: {"url": path.resolve().as_uri(), "width": width}
        for name, (path, width) in pages.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        harness = Path(folder, "harness.html")
        harness.write_text(_HARNESS.format(jobs=json.dumps(jobs)), encoding="utf-8")
        done = subprocess.run(
            [
                *(need_browser(), *FLAGS, "--allow-file-access-from-files", "--dump-dom"),
                *("--virtual-time-budget=20000", "--enable-logging=stderr", "--v=0"),
                f"--blink-settings=preferredColorScheme={0 if dark else 1}",
                *(f"--user-data-dir={folder}/profile", harness.as_uri()),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    body = re.search(r"<body[^>]*>(\{.*\})</body>", done.stdout, re.S)
    assert body, done.stdout + done.stderr
    console = re.findall(r":CONSOLE:?\(?\d*\)?\] (.*)", done.stderr)
    return {"console": console, **json.loads(unescape(body[1]))}
