"""Where workers get the n-grams to look for: made once, and loaded once a process."""

import os
import pickle

import xxhash

from pipelines.corpus.decontamination.gram_index import GramIndex
from pipelines.corpus.decontamination.matches import Finder
from pipelines.storage import store
from schemas.errors import DataError

_finders: dict[str, Finder] = {}  # by the place of the index, whose name tells its content


def put_index(index: GramIndex, folder: str | None) -> str:
    """Leaves an index where workers find it, and gives that place.

    Args:
      index: the n-grams.
      folder: that all workers see; None if this process alone is to know it.
    """
    content = pickle.dumps(index)
    path = os.path.join(folder or "", f"ngrams-{xxhash.xxh3_128_hexdigest(content)}.pickle")
    if folder:
        store.write_file(path, content)
    _finders.clear()  # one run after the other: an index may be large
    _finders[path] = Finder(index)
    return path


def load_finder(path: str | None) -> Finder:
    """What looks for the n-grams of the index at a place.

    Raises:
      DataError: this machine does not see it.
    """
    if path is None:
        raise RuntimeError("targets are prepared before documents are filtered: targets/prepare.py")
    if path not in _finders:
        try:
            _finders[path] = Finder(pickle.loads(store.read(path)))
        except FileNotFoundError as error:
            raise DataError(
                f"{path} is not there for a worker: --output must lie on a file system that all "
                "workers share"
            ) from error
    return _finders[path]
