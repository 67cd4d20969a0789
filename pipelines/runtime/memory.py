"""Memory that a step frees stays with the process, for the next block or shard.

glibc and Arrow return large arrays to the system, whose next use costs a page fault for each 4 KiB.
That was a third of the system's time of build_shards.
"""

import ctypes

# Parameters of mallopt, from glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
_KEPT_BYTES = 256 << 20  # of free memory at the end of the heap; more is returned


def keep_freed_memory() -> None:
    """Makes one heap of numpy's and Arrow's arrays, and keeps what it frees.

    Call it before threads start: they would begin heaps of their own. Does nothing where the C
    library is not glibc.
    """
    # Imported here, for a fast --help.
    import pyarrow

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    mallopt(_ARENA_MAX, 1)
    mallopt(_MMAP_MAX, 0)
    mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
