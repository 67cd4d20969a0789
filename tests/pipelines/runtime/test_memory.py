"""Memory that a process keeps."""

import subprocess
import sys

_COUNT_FAULTS = """
import resource
import numpy as np
import pyarrow as pa
from textmill.pipelines.runtime.memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        both = np.zeros(500_000, np.uint8), np.zeros(500_000, np.uint8)
        both[0][:], both[1][:] = 1, 2
        del both
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(faults(), end=" ")
keep_freed_memory()
faults()
print(faults(), pa.default_memory_pool().backend_name)
"""


def test_arrays_reuse_the_pages_of_those_that_were_freed():
    command = [sys.executable, "-c", _COUNT_FAULTS]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    before, after = map(int, printed[:2])
    assert before > 20_000 and after < 100, "244 pages a round of 100, and none"
    assert printed[2] == "system", "Arrow's arrays share the heap"
