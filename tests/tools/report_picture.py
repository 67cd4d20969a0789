"""Takes docs/report.png, the picture of docs/quick_start.md, from the report of the demo's dataset.

    make demo
    python -m tests.tools.report_picture demo/shards

needs Chromium. The picture carries the title of its page, which tests compare with that page.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from tests.tools.browser import FLAGS, PROGRAM
from tests.tools.places import ROOT

PICTURE = ROOT / "docs/report.png"
_WIDTH, _HEIGHT = 800, 992


def main(dataset: str) -> None:
    """Writes the picture of a dataset's report."""
    page = Path(dataset).resolve() / "report.html"
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder) / "shot.png"
        subprocess.run(
            [
                *(PROGRAM or "chromium", *FLAGS),
                *(f"--window-size={_WIDTH},{_HEIGHT}", f"--screenshot={shot}", page.as_uri()),
            ],
            check=True,
            capture_output=True,
            timeout=60,
        )
        image = Image.open(shot).convert("P", palette=Image.Palette.ADAPTIVE, colors=64)
    heading = re.search(r"<h1>(.*?)</h1>", page.read_text(encoding="utf-8"), re.S)
    assert heading, f"{page} has no heading"
    info = PngInfo()
    info.add_text("Title", " ".join(re.sub(r"<[^>]*>", " ", heading[1]).split()))
    image.save(PICTURE, optimize=True, pnginfo=info)


if __name__ == "__main__":
    main(*sys.argv[1:])
