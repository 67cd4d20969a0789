"""What an output directory holds already: the set that is asked for, or what no run may replace."""

import os
import tempfile
from collections.abc import Iterable

from pipelines.readers.corpus_files import CORPUS, is_corpus
from pipelines.readers.sources import Block, hash_inputs
from pipelines.storage import store
from pipelines.storage.store import is_url
from schemas.errors import DataError, UsageError
from schemas.manifest import MANIFEST
from schemas.metadata import Inputs, Schema, SetInfo, read_set
from schemas.stores import store as stores
from schemas.stores.set_files import Cache
from schemas.tokenizer_config import TOKENIZER_CONFIG

TOKENIZER_REPORT = "report.json"
# A file that tells what a directory holds; the first that is there decides.
_KINDS = {
    MANIFEST: "a shard set",  # or a corpus: see `is_corpus`
    TOKENIZER_REPORT: "a tokenizer",
    TOKENIZER_CONFIG: "a tokenizer",
    "config.json": "a model or a run of a trainer",
}


def refuse_others(output: str, own: str) -> None:
    """Never writes over what another command made, whose files may have the same names.

    Args:
      output: the directory.
      own: CORPUS, or a file of _KINDS that the command itself leaves there, or any other name.

    Raises:
      UsageError: `output` holds something else.
    """
    there = [name for name in (*_KINDS, "schema.json") if store.exists(os.path.join(output, name))]
    if "schema.json" in there:  # of a dataset whose publication was interrupted
        there = [name for name in there if name not in ("schema.json", TOKENIZER_CONFIG)]
    name = next(iter(there), own)
    kinds = {**_KINDS, CORPUS: "a corpus"}
    found = CORPUS if name == MANIFEST and is_corpus(output) else name
    if found != own and kinds[found] != kinds.get(own):
        raise UsageError(
            f"--output={output} holds {kinds[found]} ({name}), which must stay as it is: give "
            "another directory"
        )


def refuse_own_inputs(output: str, paths: Iterable[str]) -> None:
    """Keeps inputs out of the directory that is written: the next run would read what this made.

    Args:
      output: the directory.
      paths: of the inputs.

    Raises:
      UsageError: one lies in it.
    """

    def real(folder: str) -> str:
        return os.path.join(folder if is_url(folder) else os.path.realpath(folder), "")

    first_path: dict[str, str] = {}  # in each folder
    for path in paths:
        first_path.setdefault(os.path.dirname(path), path)
    for folder, path in first_path.items():
        if real(folder).startswith(real(output)):
            raise UsageError(
                f"--output={output} is where the input {path} lies: give another directory, or one "
                "below it, that holds nothing but what is made"
            )


def refuse_another(output: str, what: str, differing: list[str], hint: str = "") -> None:
    """Never replaces what was made otherwise, unless --overwrite says so.

    Args:
      output: the directory.
      what: it holds.
      differing: how that differs from what is asked for, each in words; [] if nothing does.
      hint: another way out.

    Raises:
      UsageError: something differs.
    """
    if differing:
        raise UsageError(
            f"{output} holds {what} ({'; '.join(differing)}). Give another --output, or "
            f"--overwrite to replace it{hint}"
        )


def find_finished_set(output: str, schema: Schema, blocks: list[Block]) -> SetInfo | None:
    """The finished set in `output`, if it was made by these settings from these inputs.

    Args:
      output: the directory.
      schema: the contract of the set that is asked for.
      blocks: all inputs.

    Returns:
      None if the directory holds no set.

    Raises:
      UsageError: it holds another set; names what differs and how to go on.
      DataError: it holds a damaged one.
    """
    if not store.exists(os.path.join(output, MANIFEST)):
        return None
    found = set_of(output)
    differing = found.schema.differences(schema) or other_inputs(found.inputs, blocks)
    refuse_another(output, "a shard set made otherwise", differing)
    return found


def set_of(output: str) -> SetInfo:
    """The finished set in a directory, on a disk or in a store.

    Raises:
      DataError: there is none, or a damaged one.
    """
    if not is_url(output):
        return read_set(output)
    with tempfile.TemporaryDirectory(prefix="textmill-") as folder:
        found = read_set(output, Cache(folder))
    there = store.sizes(output)
    for file in found.manifest.files:
        path = f"{output}/{file.path}"
        if there.get(file.path) != file.bytes != stores.size(path):  # a listing may lag
            raise DataError(
                f"{path} does not have the {file.bytes:,} bytes that the manifest says: copy the "
                "set again or build it anew"
            )
    return found


def other_inputs(inputs: Inputs, blocks: list[Block]) -> list[str]:
    """How the inputs differ from those that something was made from, in words; [] if not.

    Reads them all, if their sizes are the same.
    """
    other = other_sizes(inputs, blocks)
    if not other and hash_inputs(blocks).content() != inputs.content():
        other = ["inputs: files of the same sizes but other content"]
    return other


def other_sizes(inputs: Inputs, blocks: list[Block]) -> list[str]:
    """The same without reading the inputs."""
    sizes = sorted(part.size for block in blocks for part in block.parts if not part.start)
    if sizes == sorted(file.bytes for file in inputs.files):
        return []
    there = len(inputs.files)
    return [f"files of the input: {there} there, {len(sizes)} here, of other sizes"]
