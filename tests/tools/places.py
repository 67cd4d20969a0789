"""Paths of this checkout, and of the corpora beside it."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
CHAT_TEMPLATE = ROOT / "tests" / "tools" / "chat.jinja"  # for a tokenizer with an eos token alone
