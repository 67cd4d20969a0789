"""Where this checkout is, and the corpora beside it."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
