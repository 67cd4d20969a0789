"""The directory that find_duplicates leaves: what is in it, written, found again and checked.

duplicates-00000-of-00001.parquet  a row for each removed document, by its digest
duplicates.json                    flags and counts
inputs.json, config.yaml, rejects/ as in a shard set
MANIFEST.json                      the size and sha256 of all others, written last
"""

import hashlib
import io
import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.corpus.near_duplicates.job import FindReport, name_tally
from pipelines.corpus.near_duplicates.rows import EDGE, by_key, digest_bytes, partition_of, to_batch
from pipelines.corpus.near_duplicates.steps import Batches, Counts
from pipelines.readers.sources import Block, file_digests, read_blocks
from pipelines.runners.shuffle import AGAIN, check_deliveries
from pipelines.storage import store
from pipelines.storage.store import write_file
from pipelines.writers import shard_files
from pipelines.writers.output_directory import FOUND, other_inputs, refuse_another
from pipelines.writers.rejects import collect, rejects_file
from schemas.commands.flag_file import CONFIG
from schemas.errors import DataError, UsageError
from schemas.manifest import MANIFEST, Manifest, ManifestFile, parse_manifest
from schemas.sidecar import Inputs, shard_name
from schemas.typed_json import from_json, parse_json, to_json
from schemas.version import VERSION

_OWN = ("near_duplicates", "shingle", "bands", "num_files")  # flags that are not of texts
PART = "duplicates"  # what the files are called, as a split names shards
_INPUTS = "inputs.json"
_COLUMNS = pa.schema(
    [
        ("document", pa.binary(16)),
        ("representative", pa.binary(16)),
        ("similarity", pa.float64()),
        ("cluster", pa.binary(16)),
    ]
)


@dataclass(frozen=True)
class Found:
    """duplicates.json.

    Attributes:
      parameters: what decides besides the text, by flag.
      documents_read: found in the inputs.
      documents_rejected: reason to number of those that were not compared.
      without_words: documents that hold none, and are like no other.
      exact_duplicates: documents that others are equal to, but for one of each.
      distinct: different documents that were compared.
      near_duplicates: of them, those that are to be removed: the rows of the files.
      kept: of them, all others.
      pairs_verified: that are as similar as the threshold.
      pairs_refuted: that met in a bucket and are not.
      uncompared: members of large buckets that found no room there; see docs/near_duplicates.md.
      clusters: documents with what was removed for them: number by size, "4 to 7".
    """

    format_version: int
    code_version: str
    parameters: dict[str, Any]
    documents_read: int
    documents_rejected: dict[str, int]
    without_words: int
    exact_duplicates: int
    distinct: int
    near_duplicates: int
    kept: int
    pairs_verified: int
    pairs_refuted: int
    uncompared: int
    clusters: dict[str, int]

    def problems(self) -> list[str]:
        """The equations that do not hold, each as a sentence."""
        compared = self.documents_read - sum(self.documents_rejected.values()) - self.without_words
        equations = {
            "documents compared != exact duplicates + distinct ones": compared
            == self.exact_duplicates + self.distinct,
            "distinct documents != near-duplicates + kept": self.distinct
            == self.near_duplicates + self.kept,
            "more clusters than removed documents": sum(self.clusters.values())
            <= self.near_duplicates,
            "fewer pairs than removed documents": self.pairs_verified >= self.near_duplicates,
        }
        return [said for said, holds in equations.items() if not holds]


@dataclass(frozen=True)
class Files:
    """Puts removed documents into files by their digests."""

    number: int

    def place(self, removed: np.ndarray) -> Batches:
        """EDGE rows, by the number of the file."""
        of = partition_of(removed["lower"], self.number)
        return [(file, to_batch(rows)) for file, rows in by_key(removed, of)]


@dataclass(frozen=True)
class Publishing:
    """What the last step of find_duplicates needs to know.

    Attributes:
      output: the directory.
      staging: the folder in it.
      run: names the run.
      parameters: what decides besides the text.
      config: the file that repeats the run.
      max_rejects: a run with more refused documents fails; below 0 for no limit.
      blocks: how many the plan has.
      files: of the result.
    """

    output: str
    staging: str
    run: str
    parameters: dict[str, Any]
    config: bytes
    max_rejects: int
    blocks: int
    files: int


def write_part(staging: str, number: int, files: int, rows: np.ndarray) -> ManifestFile:
    """Stages one file of the result, sorted by document."""
    rows = rows[np.argsort(rows["lower"], kind="stable")]
    digests = {
        name: pa.Array.from_buffers(
            pa.binary(16), len(rows), [None, pa.py_buffer(digest_bytes(rows[column]))]
        )
        for name, column in (("document", "lower"), ("representative", "higher"))
    }
    similarity = pa.array(np.ascontiguousarray(rows["similarity"]))
    columns = [digests["document"], digests["representative"], similarity]
    sink = io.BytesIO()
    table = pa.table([*columns, digests["representative"]], schema=_COLUMNS)
    pq.write_table(table, sink, compression="zstd", use_dictionary=False)
    content = sink.getvalue()
    name = f"{shard_name(PART, number, files)}.parquet"
    made = ManifestFile(name, len(content), hashlib.sha256(content).hexdigest(), PART, len(rows))
    write_file(os.path.join(staging, shard_files.staged_name(made)), content)
    return made


def publish_result(report: FindReport, publishing: Publishing) -> None:
    """Checks what all workers said, writes the sidecars, moves everything into place.

    Raises:
      DataError: something was lost on the way, or too much was refused, or nothing is left.
    """
    staging = publishing.staging
    check_deliveries(
        report.deliveries,
        lambda: 2 * read_blocks(staging),
        2 * publishing.blocks,
        name_tally,
    )
    report.rejects.refuse_too_many(publishing.max_rejects)
    found = _found(report, publishing.parameters)
    rows = sum(file.rows or 0 for file in report.files)
    if found.problems() or len(report.files) != publishing.files or rows != found.near_duplicates:
        said = "; ".join(found.problems()) or "of a file"
        raise DataError(f"documents were lost on the way ({said}): {AGAIN}")
    if not found.distinct:
        raise DataError(
            f"no document is left to compare; read: {report.read:,}, dropped: {report.dropped}"
        )
    contents = {
        FOUND: to_json(found),
        _INPUTS: to_json(file_digests(report.digests)),
        CONFIG: publishing.config,
        **rejects_file(report.rejects),
    }
    staged = [*report.files, *collect(report.stashed, staging)]
    fingerprint = _fingerprint(publishing.parameters)
    shard_files.publish(publishing.output, publishing.run, fingerprint, staged, contents)


def _found(report: FindReport, parameters: dict[str, Any]) -> Found:
    counts: Counts = report.counts
    return Found(
        format_version=1,
        code_version=VERSION,
        parameters=parameters,
        documents_read=report.read,
        documents_rejected=report.dropped,
        without_words=report.read - sum(report.dropped.values()) - counts.compared,
        exact_duplicates=counts.compared - counts.distinct,
        distinct=counts.distinct,
        near_duplicates=counts.removed,
        kept=counts.distinct - counts.removed,
        pairs_verified=counts.verified,
        pairs_refuted=counts.refuted,
        uncompared=counts.uncompared,
        clusters=counts.cluster_sizes(),
    )


def _fingerprint(parameters: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(parameters, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Result:
    """A finished directory.

    Attributes:
      directory: where it lies, or its URL.
      found: duplicates.json.
      inputs: inputs.json.
      manifest: MANIFEST.json.
    """

    directory: str
    found: Found
    inputs: Inputs
    manifest: Manifest

    @property
    def parts(self) -> list[ManifestFile]:
        """The files with the documents, in order."""
        return [file for file in self.manifest.files if file.split == PART]

    def rows(self, file: ManifestFile) -> np.ndarray:
        """What a file says: EDGE rows.

        Raises:
          DataError: it is not as it was written.
        """
        content = _read(self.directory, file)
        try:
            table = pq.read_table(pa.BufferReader(content), schema=_COLUMNS)
        except (pa.ArrowInvalid, OSError) as error:
            raise _damaged(f"{self.directory}/{file.path}", str(error)) from error
        rows = np.zeros(len(table), EDGE)
        for name, column in (("document", "lower"), ("representative", "higher")):
            chunk = table[name].combine_chunks()
            data = np.frombuffer(
                chunk.buffers()[1] or b"", EDGE["lower"], chunk.offset + len(chunk)
            )
            rows[column] = data[chunk.offset :]
        rows["similarity"] = table["similarity"].to_numpy()
        return rows


def _damaged(path: str, what: str) -> DataError:
    return DataError(f"{path}: {what}; copy the directory again, or run find_duplicates anew")


def _read(directory: str, file: ManifestFile) -> bytes:
    path = os.path.join(directory, file.path)
    try:
        content = store.read(path)
    except FileNotFoundError as error:
        raise _damaged(path, "it is missing") from error
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise _damaged(path, f"its sha256 is not the one in {MANIFEST}")
    return content


def is_result(directory: str) -> bool:
    """Whether a directory holds what find_duplicates leaves."""
    return store.exists(os.path.join(directory, FOUND))


def read_result(directory: str) -> Result:
    """Opens a finished directory; its files of documents are read when they are asked for.

    Raises:
      DataError: there is none, or a damaged one.
    """
    path = os.path.join(directory, MANIFEST)
    if not store.exists(path):
        raise DataError(
            f"{directory} holds no result of find_duplicates: it has no {MANIFEST}. "
            "--near_duplicates is jaccard:0.8, or the directory of one"
        )
    manifest = parse_manifest(store.read(path), path)
    files = {file.path: file for file in manifest.files}
    if not {FOUND, _INPUTS} <= files.keys():
        raise DataError(
            f"{directory} holds no result of find_duplicates: its {MANIFEST} lists no {FOUND}"
        )
    sidecars = {}
    for name, kind in ((FOUND, Found), (_INPUTS, Inputs)):
        at = os.path.join(directory, name)
        sidecars[name] = from_json(kind, parse_json(_read(directory, files[name]), at), at)
    result = Result(directory, sidecars[FOUND], sidecars[_INPUTS], manifest)
    rows = sum(file.rows or 0 for file in result.parts)
    if result.found.problems() or rows != result.found.near_duplicates:
        raise _damaged(os.path.join(directory, FOUND), "its counts do not add up")
    return result


def find_result(output: str, parameters: dict[str, Any], blocks: list[Block]) -> Result | None:
    """The result in `output`, if it was made by these flags from these inputs; None if none is.

    Raises:
      UsageError: it holds another one; names what differs and how to go on.
      DataError: it holds a damaged one.
    """
    if not store.exists(os.path.join(output, MANIFEST)):
        return None
    result = read_result(output)
    differing = differences(result.found.parameters, parameters)
    differing = differing or other_inputs(result.inputs, blocks)
    refuse_another(output, "what find_duplicates found otherwise", differing)
    return result


def differences(there: dict[str, Any], here: dict[str, Any]) -> list[str]:
    """What tells two sets of flags apart."""
    return [
        f"{name} {there.get(name)!r}, not {here.get(name)!r}"
        for name in sorted({*here, *there})
        if there.get(name) != here.get(name)
    ]


def parts_of(directory: str) -> list[ManifestFile]:
    """The files of documents of a finished directory."""
    return read_result(directory).parts


def found_parameters(directory: str) -> dict[str, Any]:
    """What a finished result decides about a set, by flag."""
    result = read_result(directory)
    hashes = hashlib.sha256("".join(file.sha256 for file in result.parts).encode())
    there = result.found.parameters
    return {
        "near_duplicates_rule": f"{there['near_duplicates']} {there['shingle']} {there['bands']}",
        "near_duplicates_sha256": hashes.hexdigest(),
    }


def refuse_other_texts(result: Result, parameters: dict[str, Any], blocks: list[Block]) -> None:
    """Refuses a result that says nothing of some documents.

    Args:
      result: given.
      parameters: of `text_parameters`, of the set.
      blocks: of its inputs.

    Raises:
      UsageError: it was found with other flags, or files of the input were not searched.
    """
    there = {n: v for n, v in result.found.parameters.items() if n not in _OWN}
    differing = differences(there, parameters)
    sizes = Counter(part.size for block in blocks for part in block.parts if not part.start)
    if sizes - Counter(file.bytes for file in result.inputs.files):
        differing.append("files of the input that were not searched")
    if differing:
        raise UsageError(
            f"--near_duplicates={result.directory} was found otherwise "
            f"({'; '.join(differing)}): run find_duplicates with the flags and inputs of this "
            "command, or give jaccard:0.8"
        )


def refuse_other_files(directory: str, inputs: Inputs) -> None:
    """Refuses a result that says nothing of some files, now that they have been read.

    Raises:
      DataError: one was not searched, or was another then.
    """
    searched = Counter(read_result(directory).inputs.content())
    if others := Counter(inputs.content()) - searched:
        file = next(file for file in inputs.files if (file.bytes, file.digest) in others)
        raise DataError(
            f"{file.path} is not among the files that --near_duplicates={directory} was found in, "
            "or was changed since: run find_duplicates again"
        )


def check_result(directory: str) -> Iterator[str]:
    """Reads all of a finished directory; gives what is wrong, each a sentence.

    Raises:
      DataError: there is none.
    """
    result = read_result(directory)
    last = b""
    for file in result.manifest.files:
        try:
            if file.split != PART:
                _read(directory, file)
                continue
            rows = result.rows(file)
        except DataError as error:
            yield str(error)
            continue
        documents, ordered = rows["lower"], np.unique(rows["lower"])
        repeated = len(ordered) < len(documents) or (ordered != documents).any()
        if repeated or (len(documents) and documents[0].tobytes() <= last):
            yield f"{file.path}: documents are not in order, each once"
        if np.isin(rows["higher"], documents).any():
            yield f"{file.path}: a representative is removed itself"
        last = documents[-1:].tobytes() or last
