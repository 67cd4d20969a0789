"""The first rows of a dataset, for its report. Pure."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from textmill.pipelines.inspection.read_rows import sequences
from textmill.pipelines.inspection.report.content import SetContent
from textmill.pipelines.inspection.report.parts import SampleRows, Shown
from textmill.pipelines.inspection.row_text import (
    KEPT,
    LOSS,
    PREFIX,
    RANDOM,
    REPLACED,
    Piece,
    row_facts,
    row_pieces,
)

_EXAMPLES = 3  # rows of each split
_EXAMPLE_TOKENS = 512  # shown of a row
_LOOKS = {LOSS: "loss", PREFIX: "prefix"}


def examples(content: SetContent) -> Sequence[Shown]:
    """The first rows of each split."""
    rows, looks = [], set()
    for split in filter(content.samples.__contains__, content.splits):
        sample = content.samples[split]
        for number in range(min(_EXAMPLES, len(next(iter(sample.values()))))):
            row = {name: column[number] for name, column in sample.items()}
            streams = [_stream(content, row, name) for name in sequences(content.schema)]
            rows.append((f"{split}, row {number}", row_facts(row, content.schema), streams))
            for stream in streams:
                spans = (span for _, spans in stream["segments"] for span in spans)
                looks.update(look for span in spans for look in span["look"].split())
    if not rows:
        return ()
    return (
        "The first rows of each split. Each numbered segment is a document or a piece of one; "
        "attention stays inside it.",
        SampleRows(rows, looks),
    )


def _stream(content: SetContent, row: Mapping[str, np.ndarray], name: str) -> dict[str, Any]:
    """The first tokens of one sequence of a row: its segments, each a list of spans."""
    segments = sequences(content.schema)[name]
    segment_ids = row[segments]
    cut = np.where(np.arange(len(segment_ids)) < _EXAMPLE_TOKENS, segment_ids, 0)
    pieces = row_pieces({**row, segments: cut}, content.schema, content.texts, name)
    pieces = [piece for piece in pieces if piece.segment]
    tokens = int(np.count_nonzero(segment_ids))
    return {
        "name": name,
        "tokens": tokens,
        "padding": len(segment_ids) - tokens,
        "left_out": tokens - sum(piece.tokens for piece in pieces),
        "segments": [
            (segment, [_span(piece) for piece in group])
            for segment, group in groupby(pieces, key=lambda piece: piece.segment)
        ],
    }


def _span(piece: Piece) -> dict[str, str]:
    """A stretch of text of one look; the space before a masked word is not part of it."""
    titles = {
        REPLACED: f"“{piece.text}” became the mask token",
        RANDOM: f"“{piece.text}” became the random token “{piece.now}”",
        KEPT: f"“{piece.text}” is to be predicted, and was kept",
    }
    text = piece.text.lstrip(" ") if piece.kind in titles else piece.text
    return {
        "lead": piece.text[: len(piece.text) - len(text)],
        "text": text or "␣",
        "now": piece.now.strip(" ") if piece.kind == RANDOM else "",
        "look": " ".join([piece.kind, *(_LOOKS.get(mark, "marked") for mark in piece.marks)]),
        "title": titles.get(piece.kind, ""),
    }
