"""Whether a directory already holds the set that is asked for."""

import contextlib
import os
from dataclasses import replace

from pipelines.readers.sources import Block, hash_inputs
from pipelines.storage import store
from schemas.errors import DataError, UsageError
from schemas.manifest import MANIFEST
from schemas.sidecar import SIDECARS, Inputs, Schema, SetInfo, read_set, read_sidecars
from schemas.stores import store as stores
from schemas.stores.set_files import open_files


def find_finished_set(
    output: str, schema: Schema, blocks: list[Block], *, explain: bool
) -> SetInfo | None:
    """The finished set in `output`, if it was made by these settings from these inputs.

    Args:
      output: the directory.
      schema: the contract of the set that is asked for.
      blocks: all inputs.
      explain: whether its statistics are to say what was left out.

    Returns:
      None if the directory holds no set.

    Raises:
      UsageError: it holds another set; names what differs and how to go on.
      DataError: it holds a damaged one.
    """
    if not store.exists(os.path.join(output, MANIFEST)):
        return None
    found = set_of(output)
    differing = differences(found, schema, blocks)
    if not differing and hash_inputs(blocks).content() != found.inputs.content():
        differing = ["inputs: files of the same sizes but other content"]
    if explain and found.stats.funnel is None:
        differing.append("without what --explain counts")
    if differing:
        raise UsageError(
            f"{output} holds a shard set made otherwise ({'; '.join(differing)}). Give another "
            "--output, or --overwrite to replace it"
        )
    return found


def set_of(output: str) -> SetInfo:
    """The finished set in a directory, on a disk or in a store.

    Raises:
      DataError: there is none, or a damaged one.
    """
    if not store.is_url(output):
        return read_set(output)
    with store.workspace(output) as folder:
        for name in (MANIFEST, *SIDECARS):
            with contextlib.suppress(FileNotFoundError):  # read_sidecars says so
                store.local_copy(f"{output}/{name}", folder)
        try:
            found = replace(read_sidecars(open_files(folder)), directory=output)
        except DataError as error:
            raise DataError(str(error).replace(folder, output)) from error
    there = store.sizes(output)
    for file in found.manifest.files:
        path = f"{output}/{file.path}"
        if there.get(file.path) != file.bytes != stores.size(path):  # a listing may lag
            raise DataError(
                f"{path} does not have the {file.bytes:,} bytes that the manifest says: copy the "
                "set again or build it anew"
            )
    return found


def differences(found: SetInfo, schema: Schema, blocks: list[Block]) -> list[str]:
    """What tells a set from the one asked for, without reading the inputs; [] if nothing does."""
    return found.schema.differences(schema) or other_sizes(found.inputs, blocks)


def other_sizes(inputs: Inputs, blocks: list[Block]) -> list[str]:
    """Whether something was made from files of other sizes than these, in words; [] if not."""
    sizes = sorted(part.size for block in blocks for part in block.parts if not part.start)
    if sizes == sorted(file.bytes for file in inputs.files):
        return []
    there = len(inputs.files)
    return [f"files of the input: {there} there, {len(sizes)} here, of other sizes"]
