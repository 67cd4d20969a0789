"""Content and sections that the reports of a corpus and of a dataset share. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.filesize import decimal

from textmill.pipelines.inspection.report.count_names import name_of_reason
from textmill.pipelines.inspection.report.flow_and_zipf import Flow, flow
from textmill.pipelines.inspection.report.numbers import compact, cut_text, largest, percent
from textmill.pipelines.inspection.report.parts import (
    CellTable,
    CodeLines,
    FactList,
    Figure,
    Pair,
    Shown,
)
from textmill.pipelines.inspection.set_tables import length_bins
from textmill.pipelines.readers.documents import Reject
from textmill.pipelines.writers.rejects import Rejects
from textmill.schemas.errors import as_flags
from textmill.schemas.format.drops import drop_of, spaced
from textmill.schemas.format.manifest import ManifestFile
from textmill.schemas.format.metadata import InputFile, Inputs

LISTED = 20  # inputs, reasons, classes; the rest is one line
_PARAMETERS = 40


@dataclass(frozen=True, kw_only=True)
class ReportContent:
    """The published files that a report shows.

    Attributes:
      schema: of the directory; it has versions, a fingerprint and parameters.
      statistics: all counts.
      inputs: the input files.
      files: the files of documents or shards, and others.
      rejects: the content of rejects/.
      config: the content of config.yaml.
    """

    schema: Any
    statistics: Any
    inputs: Inputs
    files: Sequence[ManifestFile]
    rejects: Rejects
    config: bytes


def show_flows(flows: Mapping[str, Flow | None]) -> Pair:
    """Flows by their titles."""
    return Pair([Figure(title, drawn or "There were none.") for title, drawn in flows.items()])


def name_reasons(dropped: Sequence[tuple[str, int]]) -> list[tuple[str, int, str]]:
    """Plain name, number and CSS class of each reason, for a flow."""
    return [(name_of_reason(reason).title, n, drop_of(reason).color) for reason, n in dropped]


def flow_of_documents(
    kept: Sequence[tuple[str, int, str]], dropped: Sequence[tuple[str, int]]
) -> Flow | None:
    """The flow from the documents that were read to those that were kept, and to each reason.

    Args:
      kept: name, number and CSS class.
      dropped: reason and number.
    """
    ends = [*kept, *name_reasons(dropped)]
    colors = {name: color for name, _, color in ends}
    return flow([("read", name, n) for name, n, _ in ends], {"read": "ink", **colors})


def length_columns(histogram: Sequence[int], unit: str) -> Iterator[tuple[int, int, str, int, str]]:
    """Columns of a histogram of lengths: bin, lower bound, label, documents, title."""
    for bin_, low, high in length_bins(histogram):
        span = f"{low:,}" if low >= high else f"{low:,} to {high:,}"
        label = f"{low:,}" if low < 10_000 else compact(low)
        yield (
            bin_,
            low,
            label,
            histogram[bin_],
            f"{histogram[bin_]:,} documents {unit.format(span)}",
        )


def show_rejects(dropped: Mapping[str, int], read: int, rejects: Rejects) -> Sequence[Shown]:
    """Documents that were dropped, by reason, with the first one that rejects/ has of each."""
    number, first = sum(dropped.values()), rejects.first_of_reasons()
    if not number:
        return ()
    rows = [
        (name_of_reason(reason), count, count / read, _describe(first.get(reason)))
        for reason, count in largest(dropped, LISTED)
    ]
    heads = ("reason", "documents", "share", "the first")
    if not any(row[-1] for row in rows):
        rows, heads = [row[:-1] for row in rows], heads[:-1]
    return (
        f"{number:,} of {read:,} documents ({percent(number / read)}) were rejected or filtered.",
        CellTable(rows, heads),
    )


def _describe(reject: Reject | None) -> str:
    if reject is None:
        return ""
    where = "" if reject.offset is None else f" at {reject.offset:,}"
    return f"{cut_text(reject.path)}{where}: {cut_text(as_flags(reject.detail))}"


def show_making(
    content: ReportContent,
    *,
    command: str,
    left_out: Sequence[str],
    facts: Mapping[str, str],
    columns: Figure,
) -> Sequence[Shown]:
    """The command that makes the directory again, its facts, inputs and columns.

    Args:
      content: of the report.
      command: writes the same data.
      left_out: flags of config.yaml that the command has.
      facts: more of them.
      columns: the features of a row, or the columns of documents.
    """
    schema, lines = content.schema, content.config.decode().strip().split("\n")
    parameters = sorted(schema.parameters.items())[:_PARAMETERS]
    all_facts = {
        "written by": f"Textmill {schema.code_version}, format {schema.format_version}",
        "fingerprint": schema.fingerprint,
        **facts,
        **{spaced(name): cut_text(_value(value)) for name, value in parameters},
    }
    inputs = Figure("Input files", CellTable(_sizes(content.inputs.files), look="sizes"))
    return (
        "This command writes the same data again. DIR is this directory.",
        CodeLines([as_flags(command)]),
        CodeLines(
            [line for line in lines if not line.startswith(("#", *left_out))],
            "Other flags, from config.yaml",
        ),
        Pair(
            [
                Figure("Facts", FactList({n: value for n, value in all_facts.items() if value})),
                (inputs, columns),
            ]
        ),
    )


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        more = [f"… {len(value):,} in all"] if len(value) > LISTED else []
        return ", ".join([*map(str, value[:LISTED]), *more])
    return "" if value is None else str(value)


def _sizes(files: Sequence[InputFile]) -> list[tuple[str, str]]:
    """Paths and sizes of the first input files, and the size of the rest as one."""
    inputs = [(file.path, decimal(file.bytes)) for file in files[:LISTED]]
    if len(files) > LISTED:
        rest = sum(file.bytes for file in files[LISTED:])
        inputs.append((f"and {len(files) - LISTED:,} more", decimal(rest)))
    return inputs
