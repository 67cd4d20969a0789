"""Trains fastText in a process of its own, and prints its CPU seconds.

    python -m tests.benchmarks.scripts.train_fasttext TEXT MODEL SETTINGS

fastText 0.9.2 uses memory that it never set: where the process freed memory before, training may
end with "Encountered NaN".
"""

import importlib
import json
import sys
from typing import Any

from tests.benchmarks.clock import timed

# The package that other packages need has no `train_supervised`.
fasttext: Any = importlib.import_module("fasttext")
text, stored, settings = sys.argv[1:]
seconds, model = timed(
    lambda: fasttext.train_supervised(text, thread=1, verbose=0, **json.loads(settings))
)
model.save_model(stored)
print(seconds.cpu)
