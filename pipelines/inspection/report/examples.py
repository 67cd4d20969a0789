"""Section of report.html: the first rows, with segments and masks in colour. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from pipelines.inspection.read_rows import sequences
from pipelines.inspection.report.content import SetContent
from pipelines.inspection.row_text import (
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


@dataclass(frozen=True)
class _Span:
    """A stretch of text of one look; the space before a masked word is no part of it."""

    lead: str
    text: str
    now: str
    look: str
    title: str


_LOOKS = {LOSS: "loss", PREFIX: "prefix"}


def examples(content: SetContent) -> dict[str, Any] | None:
    """The first rows of each split."""
    rows = []
    for split, sample in ((split, content.samples.get(split)) for split in content.splits):
        if sample is None:
            continue
        for number in range(min(_EXAMPLES, len(next(iter(sample.values()))))):
            row = {name: column[number] for name, column in sample.items()}
            streams = [_stream(content, row, name) for name in sequences(content.schema)]
            rows.append((split, number, row_facts(row, content.schema), streams))
    if not rows:
        return None
    looks = {
        look
        for *_, streams in rows
        for stream in streams
        for _, spans in stream["segments"]
        for span in spans
        for look in span.look.split()
    }
    return {"rows": rows, "looks": looks}


def _stream(content: SetContent, row: Mapping[str, np.ndarray], name: str) -> dict[str, Any]:
    """The segments of one sequence of a row, each a list of spans."""
    pieces = _cut(row, content, name)
    segment_ids = row[sequences(content.schema)[name]]
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


def _cut(row: Mapping[str, np.ndarray], content: SetContent, name: str) -> list[Piece]:
    """The pieces of the first tokens, without padding."""
    segments = sequences(content.schema)[name]
    shown = {
        **row,
        segments: np.where(np.arange(len(row[segments])) < _EXAMPLE_TOKENS, row[segments], 0),
    }
    pieces = row_pieces(shown, content.schema, content.texts, name)
    return [piece for piece in pieces if piece.segment]


def _span(piece: Piece) -> _Span:
    look = " ".join([piece.kind, *(_LOOKS.get(mark, "marked") for mark in piece.marks)])
    titles = {
        REPLACED: f"“{piece.text}” became the mask token",
        RANDOM: f"“{piece.text}” became the random token “{piece.now}”",
        KEPT: f"“{piece.text}” is to be predicted, and was kept",
    }
    now = piece.now.strip(" ") if piece.kind == RANDOM else ""
    text = piece.text.lstrip(" ") if piece.kind in titles else piece.text
    lead = piece.text[: len(piece.text) - len(text)]
    return _Span(lead, text or "␣", now, look, titles.get(piece.kind, ""))
